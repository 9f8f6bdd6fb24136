//! Settings: what can be chosen, from the environment or by a call, and what is chosen now.
//!
//! Promises upward: a value is checked before it is taken; a bad one changes nothing, and the error says what would do.
//! In the environment a bad value costs one line on standard error.
//! Asks from below: [`os::variable`]; names, ranges and defaults from the core's table (README.md shows them).

use crate::{class, os, purge_clock};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use terrace_core::settings::{self, Allowed, Surface, Value};
pub use terrace_core::settings::{BadSetting, DebugSwitches};

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
    /// The inherited descriptor of a page of live counters, which `terrace top` sets; 0: none (Linux).
    Live(u32),
    /// Turns on [`Stats`](Self::Stats), [`Check`](Self::Check), and the list of what is live at the end.
    ///
    /// Each if it says so. The list needs the feature `track`.
    Debug(DebugSwitches),
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

/// Milliseconds; `u32::MAX`: for ever.
static PURGE_DELAY: AtomicU32 = AtomicU32::new(match settings::PURGE_DELAY.default.delay() {
    Some(delay) => delay,
    None => u32::MAX,
});
/// Which of [`Background::ALL`].
static BACKGROUND: AtomicU32 = AtomicU32::new(settings::BACKGROUND.default.word() as u32);
static DEEPBIND: AtomicBool = AtomicBool::new(settings::DEEPBIND.default.word() == 1);
static STATS: AtomicBool = AtomicBool::new(settings::STATS.default.word() == 1);
static CHECK: AtomicBool = AtomicBool::new(settings::CHECK.default.word() == 1);
/// Whether what is live at the end is listed; and whether with call stacks.
static LEAKS: AtomicBool = AtomicBool::new(false);
static SITES: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicU32 = AtomicU32::new(settings::LIVE.default.number() as u32);
/// Which of [`HugePages::ALL`].
static HUGE_PAGES: AtomicU32 = AtomicU32::new(settings::HUGE_PAGES.default.word() as u32);
/// The number of `linux/mempolicy.h`; 0 default.
static NUMA_POLICY: AtomicU32 = AtomicU32::new(0);
static NUMA_NODES: AtomicU64 = AtomicU64::new(0);
static CACHE: AtomicUsize = AtomicUsize::new(settings::CACHE.default.number() as usize);
static LIMIT: AtomicUsize = AtomicUsize::new(settings::LIMIT.default.number() as usize);

// A thread caches blocks of all size classes, and of no more bytes.
const _: () =
    assert!(matches!(settings::CACHE.allowed, Allowed::Bytes(bounds) if bounds.most == class::LARGEST as u64));

/// The error for an unknown name.
const UNKNOWN: BadSetting = BadSetting { name: "a setting", allowed: Allowed::Variable(Surface::Host) };

impl Background {
    /// All, in the order of the setting's words and of [`BACKGROUND`].
    const ALL: [Self; 3] = [Self::Auto, Self::Never, Self::Always];
}

impl HugePages {
    /// All, in the order of the setting's words and of [`HUGE_PAGES`].
    const ALL: [Self; 3] = [Self::Default, Self::Always, Self::Never];
}

impl Setting {
    /// Parses a setting: its name as in the environment, its value as a person writes it.
    ///
    /// # Errors
    /// A value that the name does not take, or an unknown name.
    ///
    /// # Example
    /// ```
    /// use terrace_host::Setting;
    /// assert_eq!(Setting::parse("TERRACE_LIMIT", "2G"), Ok(Setting::Limit(2 << 30)));
    /// let bad = Setting::parse("TERRACE_CACHE", "1M").unwrap_err();
    /// assert_eq!(bad.to_string(), "TERRACE_CACHE takes whole bytes from 0 to 32KiB");
    /// ```
    pub fn parse(name: &str, value: &str) -> Result<Self, BadSetting> {
        let spec = settings::of(Surface::Host).find(|spec| spec.variable == Some(name)).ok_or(UNKNOWN)?;
        Ok(match (spec.name, spec.parse(value)?) {
            ("purge_delay", Value::Delay(delay)) => Self::PurgeDelay(delay),
            ("background", Value::Word(at)) => Self::Background(Background::ALL[at]),
            ("huge_pages", Value::Word(at)) => Self::HugePages(HugePages::ALL[at]),
            ("numa", Value::Word(at)) => Self::Numa([Numa::Default, Numa::Local, Numa::Interleave][at]),
            ("numa", Value::Nodes(nodes)) => Self::Numa(Numa::Bind(nodes)),
            ("cache", Value::Number(bytes)) => Self::Cache(bytes as usize),
            ("limit", Value::Number(bytes)) => Self::Limit(usize::try_from(bytes).unwrap_or(usize::MAX)),
            ("deepbind", Value::Word(at)) => Self::Deepbind(at == 1),
            ("stats", Value::Word(at)) => Self::Stats(at == 1),
            ("check", Value::Word(at)) => Self::Check(at == 1),
            ("debug", debug @ Value::Words(_)) => Self::Debug(debug.switches()),
            ("live", Value::Number(file)) => Self::Live(u32::try_from(file).unwrap_or(0)),
            _ => return Err(UNKNOWN),
        })
    }

    /// Applies the setting to the process.
    ///
    /// # Errors
    /// A number out of bounds.
    pub fn apply(self) -> Result<(), BadSetting> {
        match self {
            Self::Cache(bytes) => _ = settings::CACHE.accept(Value::Number(bytes as u64))?,
            Self::Limit(bytes) => _ = settings::LIMIT.accept(Value::Number(bytes as u64))?,
            Self::Live(file) => _ = settings::LIVE.accept(Value::Number(file.into()))?,
            _ => {}
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
            Self::Debug(DebugSwitches { check, stats, leaks, sites }) => {
                CHECK.fetch_or(check, Relaxed);
                STATS.fetch_or(stats, Relaxed);
                LEAKS.fetch_or(leaks || sites, Relaxed);
                SITES.fetch_or(sites, Relaxed);
            }
            Self::Live(file) => LIVE.store(file, Relaxed),
        }
        Ok(())
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
        if let Some(known) = settings::misspelt(Surface::Host, name) {
            let name = core::str::from_utf8(name).unwrap_or("a variable");
            crate::report::line(format_args!("{name} is no setting; {known} is"));
        }
    });
    for name in settings::variables(Surface::Host) {
        let mut key = [0; 32];
        key[..name.len()].copy_from_slice(name.as_bytes());
        key[name.len()] = b'=';
        let key = core::str::from_utf8(&key[..=name.len()]).unwrap_or("=");
        let Some(value) = os::variable(key) else { continue };
        let text = value.to_str().unwrap_or("");
        if let Err(bad) = Setting::parse(name, text).and_then(Setting::apply) {
            crate::report::line(format_args!("{name}={text}: {bad}; it stays as it was"));
        }
    }
}

pub(crate) fn purge_delay() -> Option<u64> {
    Some(PURGE_DELAY.load(Relaxed)).filter(|&delay| delay != u32::MAX).map(u64::from)
}

pub(crate) fn background() -> Background {
    Background::ALL[BACKGROUND.load(Relaxed) as usize % Background::ALL.len()]
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

/// Whether the tracker is to list what is live when the process ends; and whether with call stacks.
#[inline]
pub(crate) fn leaks_wanted() -> Option<bool> {
    LEAKS.load(Relaxed).then(|| SITES.load(Relaxed))
}

/// The descriptor of the page of live counters; 0: none.
#[inline]
pub(crate) fn live() -> u32 {
    LIVE.load(Relaxed)
}

/// Turns live counters off: the descriptor has no page, or its page no free row.
pub(crate) fn stop_live() {
    LIVE.store(0, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_bind_to_a_preloaded_terrace_unless_the_setting_says_otherwise() {
        assert!(!deepbind());
        for on in [true, false] {
            Setting::Deepbind(on).apply().expect("a setting");
            assert_eq!(deepbind(), on);
        }
    }
}
