//! Settings: what can be chosen, from the environment or by a call, and what is chosen now.
//!
//! Promises upward: a value is checked before it is taken; a bad one changes nothing, and the error says what would do.
//! In the environment a bad value costs one line on standard error.
//! Asks from below: [`os::variable`].
//!
//! | name | values | default |
//! | --- | --- | --- |
//! | `TERRACE_PURGE_DELAY` | `250ms`, `2s`, `0`, `never` | `250ms`: free memory goes back to the system after one to two of these |
//! | `TERRACE_BACKGROUND` | `auto`, `0`, `1` | `auto`: a thread does it once more than 32 MiB wait or several threads work; with `1` from the first on |
//! | `TERRACE_HUGE_PAGES` | `default`, `always`, `never` | `default`: what the system does anyway |
//! | `TERRACE_NUMA` | `default`, `local`, `interleave`, `bind:0,2` | `default`: the policy of the process |
//! | `TERRACE_CACHE` | `0` to `32K` | `32K`: bytes of one size class that a thread keeps |
//! | `TERRACE_LIMIT` | `2G`, `none` | `none`: pages that may be held |
//! | `TERRACE_DEEPBIND` | `0`, `1` | `0`: `dlopen` of the preloaded library ignores `RTLD_DEEPBIND` |
//! | `TERRACE_STATS` | `0`, `1` | `0`: statistics on standard error when the process ends |
//! | `TERRACE_CHECK` | `0`, `1` | `0`: for debugging: `check` when the process ends, which an inconsistency aborts |

use crate::{class, os, purge_clock};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use terrace_core::spelling::nearest;

/// One setting with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Delay in milliseconds before free memory is purged, which takes one to two of these; `None`: never.
    PurgeDelay(Option<u32>),
    /// When a thread of the library's own purges. The first call that needs more than its cache starts it.
    Background(Background),
    /// Huge pages under later mappings.
    HugePages(HugePages),
    /// Where the memory of later mappings is placed.
    Numa(Numa),
    /// The most bytes of one size class in a thread's cache, at most 32 KiB; two blocks always fit.
    Cache(usize),
    /// The most bytes of pages held, `usize::MAX` for no limit.
    ///
    /// Near it free memory is purged sooner, beyond it allocations fail.
    Limit(usize),
    /// Whether libraries opened with `RTLD_DEEPBIND` bind past a preloaded terrace; read at its loading.
    Deepbind(bool),
    /// Whether statistics are printed when the process ends (in Rust programs on Linux only).
    Stats(bool),
    /// Whether every structure is checked when the process ends (in Rust programs on Linux only).
    ///
    /// An inconsistency aborts the process.
    Check(bool),
}

/// When a thread of the library's own purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Once much waits to be purged, or many threads may be idle next.
    ///
    /// Much: 32 MiB and a quarter of what is in use, or 32 MiB left by a call. Many: 32 threads, or a tick that finds another
    /// at work.
    Auto,
    /// Never: calls purge. A thread that was started before sleeps.
    Never,
    /// As soon as anything is free.
    Always,
}

/// Huge pages: 2 MiB of memory at a time, fewer misses of the address cache, more memory held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// As the system is set.
    Default,
    /// Requested wherever 2 MiB are mapped.
    Always,
    /// Refused, also where the system gives them to every mapping.
    Never,
}

/// Where memory is placed on machines of several NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// The policy of the process.
    Default,
    /// The node of the thread that first touches it.
    Local,
    /// All nodes in turn, page by page.
    Interleave,
    /// These nodes only: bit n stands for node n.
    Bind(u64),
}

/// A value that a setting refused; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// The setting's name, as in the environment.
    pub name: &'static str,
    /// The values that the setting takes.
    pub expected: &'static str,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} takes {}; it stays as it was", self.name, self.expected)
    }
}

impl core::error::Error for BadSetting {}

/// Milliseconds; `u32::MAX`: for ever.
static PURGE_DELAY: AtomicU32 = AtomicU32::new(250);
/// 0 auto, 1 never, 2 always.
static BACKGROUND: AtomicU32 = AtomicU32::new(0);
static DEEPBIND: AtomicBool = AtomicBool::new(false);
static STATS: AtomicBool = AtomicBool::new(false);
static CHECK: AtomicBool = AtomicBool::new(false);
/// 0 default, 1 always, 2 never.
static HUGE_PAGES: AtomicU32 = AtomicU32::new(0);
/// The number of `linux/mempolicy.h`; 0 default.
static NUMA_POLICY: AtomicU32 = AtomicU32::new(0);
static NUMA_NODES: AtomicU64 = AtomicU64::new(0);
static CACHE: AtomicUsize = AtomicUsize::new(class::LARGEST);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Every name, and the values it takes.
const NAMES: [(&str, &str); 9] = [
    ("TERRACE_PURGE_DELAY", "milliseconds (250, 250ms), seconds (2s), or `never`"),
    ("TERRACE_BACKGROUND", "`auto`, 0 or 1"),
    ("TERRACE_HUGE_PAGES", "`default`, `always` or `never`"),
    ("TERRACE_NUMA", "`default`, `local`, `interleave` or `bind:` with node numbers below 64 (bind:0,2)"),
    ("TERRACE_CACHE", "bytes up to 32K"),
    ("TERRACE_LIMIT", "bytes, at least 4M (512M, 2G), or `none`"),
    ("TERRACE_DEEPBIND", "0 or 1"),
    ("TERRACE_STATS", "0 or 1"),
    ("TERRACE_CHECK", "0 or 1"),
];

/// The error for an unknown name.
const UNKNOWN: BadSetting = BadSetting {
    name: "a setting",
    expected: "one of the names PURGE_DELAY, BACKGROUND, HUGE_PAGES, NUMA, CACHE, LIMIT, DEEPBIND, STATS, CHECK, each after TERRACE_",
};

impl Setting {
    /// Parses a setting: its name as in the environment, its value as a person writes it.
    ///
    /// # Errors
    /// A value that the name does not take, or an unknown name.
    pub fn parse(name: &str, value: &str) -> Result<Self, BadSetting> {
        let Some(at) = NAMES.iter().position(|(known, _)| *known == name) else { return Err(UNKNOWN) };
        let (name, expected) = NAMES[at];
        let parsed = match at {
            0 => duration(value).map(Self::PurgeDelay),
            1 if value == "auto" => Some(Self::Background(Background::Auto)),
            1 => switch(value).map(|on| Self::Background(if on { Background::Always } else { Background::Never })),
            2 => huge(value).map(Self::HugePages),
            3 => numa(value).map(Self::Numa),
            4 => bytes(value).map(Self::Cache),
            5 if value == "none" => Some(Self::Limit(usize::MAX)),
            5 => bytes(value).map(Self::Limit),
            6 => switch(value).map(Self::Deepbind),
            7 => switch(value).map(Self::Stats),
            _ => switch(value).map(Self::Check),
        };
        let bad = BadSetting { name, expected };
        let setting = parsed.ok_or(bad)?;
        if setting.is_sound() { Ok(setting) } else { Err(bad) }
    }

    /// Applies the setting to the process.
    ///
    /// # Errors
    /// A number out of bounds.
    pub fn apply(self) -> Result<(), BadSetting> {
        if !self.is_sound() {
            let (name, expected) = NAMES[if matches!(self, Self::Cache(_)) { 4 } else { 5 }];
            return Err(BadSetting { name, expected });
        }
        match self {
            Self::PurgeDelay(delay) => PURGE_DELAY.store(delay.unwrap_or(u32::MAX), Relaxed),
            Self::Background(when) => {
                BACKGROUND.store(when as u32, Relaxed);
                purge_clock::allow_thread(when != Background::Never);
            }
            Self::HugePages(wanted) => HUGE_PAGES.store(wanted as u32, Relaxed),
            Self::Numa(wanted) => {
                let (policy, nodes) = match wanted {
                    Numa::Default => (0, 0),
                    Numa::Bind(nodes) => (2, nodes),
                    Numa::Interleave => (3, u64::MAX),
                    Numa::Local => (4, 0),
                };
                NUMA_NODES.store(nodes, Relaxed);
                NUMA_POLICY.store(policy, Relaxed);
            }
            Self::Cache(bytes) => CACHE.store(bytes, Relaxed),
            Self::Limit(bytes) => LIMIT.store(bytes, Relaxed),
            Self::Deepbind(on) => DEEPBIND.store(on, Relaxed),
            Self::Stats(on) => STATS.store(on, Relaxed),
            Self::Check(on) => CHECK.store(on, Relaxed),
        }
        Ok(())
    }

    /// Whether the number is within its bounds.
    fn is_sound(self) -> bool {
        match self {
            Self::Cache(bytes) => bytes <= class::LARGEST,
            // The emergency pool is 2 MiB of it, caches and the first spans about one.
            Self::Limit(bytes) => bytes >= 4 << 20,
            _ => true,
        }
    }
}

/// Whether the environment was read.
static READ: AtomicBool = AtomicBool::new(false);

/// Reads the settings from the environment, once, as soon as the C library knows it.
pub fn read_environment() {
    if os::environ().is_some() && !READ.swap(true, Relaxed) {
        apply_environment();
    }
}

/// Applies what the environment says, unless the process has more rights than its user.
fn apply_environment() {
    if os::is_secure() {
        return;
    }
    os::each_variable(|name| {
        if !name.starts_with(b"TERRACE_") {
            return;
        }
        if let Some(known) = nearest(name, NAMES.iter().map(|(known, _)| *known)) {
            let name = core::str::from_utf8(name).unwrap_or("a variable");
            crate::report::line(format_args!("{name} is no setting; {known} is"));
        }
    });
    for (name, _) in NAMES {
        let mut key = [0; 32];
        key[..name.len()].copy_from_slice(name.as_bytes());
        key[name.len()] = b'=';
        let key = core::str::from_utf8(&key[..=name.len()]).unwrap_or("=");
        let Some(value) = os::variable(key) else { continue };
        let text = value.to_str().unwrap_or("");
        if let Err(bad) = Setting::parse(name, text).and_then(Setting::apply) {
            crate::report::line(format_args!("{name}={text}: {bad}"));
        }
    }
}

pub(crate) fn purge_delay() -> Option<u64> {
    Some(PURGE_DELAY.load(Relaxed)).filter(|&delay| delay != u32::MAX).map(u64::from)
}

pub(crate) fn background() -> Background {
    [Background::Auto, Background::Never, Background::Always][BACKGROUND.load(Relaxed) as usize % 3]
}

/// Whether `RTLD_DEEPBIND` stays as the program set it.
pub fn deepbind() -> bool {
    DEEPBIND.load(Relaxed)
}

/// Whether statistics are printed when the process ends.
pub fn stats_at_exit() -> bool {
    STATS.load(Relaxed)
}

/// Whether every structure is checked when the process ends.
pub fn check_at_exit() -> bool {
    CHECK.load(Relaxed)
}

/// Whether huge pages are requested or refused; `None`: the system decides.
pub(crate) fn huge_pages() -> Option<bool> {
    [None, Some(true), Some(false)][HUGE_PAGES.load(Relaxed) as usize % 3]
}

/// The NUMA policy and its nodes, unless it is the default.
pub(crate) fn numa_policy() -> Option<(i32, u64)> {
    let policy = NUMA_POLICY.load(Relaxed) as i32;
    (policy != 0).then(|| (policy, NUMA_NODES.load(Relaxed)))
}

pub(crate) fn cache_bytes() -> usize {
    CACHE.load(Relaxed)
}

pub(crate) fn limit() -> usize {
    LIMIT.load(Relaxed)
}

/// A number with a unit of time.
fn duration(text: &str) -> Option<Option<u32>> {
    if text == "never" {
        return Some(None);
    }
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1000),
        (None, None) => (text, 1),
    };
    let number: u32 = number.parse().ok()?;
    number.checked_mul(unit).filter(|&delay| delay < u32::MAX).map(Some)
}

/// A number of bytes, with `K`, `M`, `G` or `T` behind it.
fn bytes(text: &str) -> Option<usize> {
    let shift = match text.as_bytes().last()? {
        b'K' | b'k' => 10,
        b'M' | b'm' => 20,
        b'G' | b'g' => 30,
        b'T' | b't' => 40,
        _ => 0,
    };
    let number: usize = text[..text.len() - usize::from(shift > 0)].parse().ok()?;
    number.checked_mul(1 << shift)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

fn huge(text: &str) -> Option<HugePages> {
    match text {
        "default" => Some(HugePages::Default),
        "always" => Some(HugePages::Always),
        "never" => Some(HugePages::Never),
        _ => None,
    }
}

fn numa(text: &str) -> Option<Numa> {
    match text {
        "default" => Some(Numa::Default),
        "local" => Some(Numa::Local),
        "interleave" => Some(Numa::Interleave),
        _ => {
            let mut nodes = 0u64;
            for node in text.strip_prefix("bind:")?.split(',') {
                nodes |= 1u64.checked_shl(node.parse().ok()?)?;
            }
            Some(Numa::Bind(nodes))
        }
    }
}
