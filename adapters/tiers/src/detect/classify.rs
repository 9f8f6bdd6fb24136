//! Classifies a directory's disk as a tier, from detected and measured facts alone.
//!
//! Promises upward: a pure function; every class states what decided it and, in words, why. In this order: the kind
//! that the user declares, the transport, the measured ratio of random to sequential reads, the gain from queue depth.
//! `rotational` decides nothing alone: virtual disks and USB bridges report 1 for flash. Where nothing else is known
//! the class is marked as a guess.

use super::kind::TierKind;
use super::transport::{Drive, Transport};
use serde::Serialize;

/// Below this ratio of random to sequential 4K reads a second, both at queue depth 1, a disk rotates. On a rotating
/// disk a random read waits half a rotation, 4 ms at 7200 rotations a minute (250 reads a second); a sequential one
/// finds its block in the disk's cache, 0.1 ms (10000 a second). Its ratio is 0.025, or 0.05 within a small file; flash
/// has 0.3 to 1.1.
const TURNS: f64 = 0.1;

/// From this ratio of random to sequential reads on, a disk is certainly flash. Between `TURNS` and this ratio, the
/// gain from queue depth decides.
const FLASH: f64 = 0.3;

/// From this ratio of random 4K reads a second at queue depth 16 to those at depth 1 on, a disk is flash. A rotating
/// disk sorts its seeks and gains at most a factor of 2; flash has parallel channels and gains 4 to 16.
const CHANNELS: f64 = 3.0;

/// A read with a latency below this, in nanoseconds, was answered by a cache: the fastest disks take 8 us, system call
/// included.
const CACHE_NS: u64 = 5_000;

/// What a file system stores its bytes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingStore {
    /// Disks that the system names.
    Disks,
    /// The machine's memory.
    Memory,
    /// Another machine.
    Network,
    /// A drive of Windows, mounted in its subsystem for Linux: a server on the Windows side answers each request.
    WindowsDrive,
    /// Something that the system does not name.
    Unknown,
}

/// How fast a disk answers reads, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadProfile {
    /// Random 4K reads a second divided by sequential 4K reads a second, both at queue depth 1.
    pub random_over_sequential: f64,
    /// Random 4K reads a second at queue depth 16 divided by those at queue depth 1.
    pub depth_scaling: f64,
    /// Median latency of random 4K reads, in nanoseconds.
    pub latency_ns: u64,
}

/// The facts about a directory's disk from which its class is decided.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// The kind that the user declares.
    pub declared: Option<TierKind>,
    /// Type of the file system.
    pub file_system: String,
    /// What the file system stores its bytes on.
    pub backing: BackingStore,
    /// Whether the file system is mounted read-only.
    pub read_only: bool,
    /// The physical disks below the file system: several under RAID or logical volumes.
    pub drives: Vec<Drive>,
    /// How fast the disk answers reads; `None` if not measured.
    pub profile: Option<ReadProfile>,
}

/// What decided the class of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// The kind that the user declares.
    #[serde(rename = "word")]
    Declared,
    /// The transport.
    Transport,
    /// A measurement.
    Measurement,
    /// Only the disk's unreliable `rotational` flag, or nothing: measure the disk to be sure.
    Guess,
    /// The disk cannot be a tier.
    Refusal,
}

impl DecidedBy {
    /// Text for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Declared => "your word",
            Self::Transport => "transport",
            Self::Measurement => "measured",
            Self::Guess => "a guess",
            Self::Refusal => "refused",
        }
    }
}

/// Why a file system cannot be a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsuitable {
    /// Its bytes lie in the machine's memory, which is a tier already.
    Memory,
    /// It lies on another machine, or on the Windows side of WSL2.
    Network,
    /// It is mounted read-only.
    ReadOnly,
}

/// The class of a disk: its tier and what decided it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskClass {
    /// The tier that the disk can be; `None` if and only if `refused` is set.
    pub tier: Option<TierKind>,
    /// Why the disk cannot be a tier.
    pub refused: Option<Unsuitable>,
    /// What decided it.
    #[serde(rename = "decided_by")]
    pub by: DecidedBy,
    /// The reasons for the class, in words for users; never empty.
    pub reasons: Vec<String>,
}

impl DiskClass {
    fn tier(tier: TierKind, by: DecidedBy, reasons: Vec<String>) -> Self {
        Self { tier: Some(tier), refused: None, by, reasons }
    }

    fn refused(why: Unsuitable, reason: String) -> Self {
        Self { tier: None, refused: Some(why), by: DecidedBy::Refusal, reasons: vec![reason] }
    }
}

/// Classifies a disk.
pub fn classify(facts: &DiskFacts) -> DiskClass {
    if facts.read_only {
        return DiskClass::refused(Unsuitable::ReadOnly, "mounted read-only: nothing can be put there".into());
    }
    if let Some(word) = facts.declared.filter(|word| word.is_disk()) {
        return DiskClass::tier(word, DecidedBy::Declared, by_word(word, facts));
    }
    if let Some(refused) = refuse(facts) {
        return refused;
    }
    let profile =
        facts.profile.filter(|profile| profile.random_over_sequential.is_finite() && profile.depth_scaling.is_finite());
    if let Some((tier, mut reasons)) = by_transport(&facts.drives) {
        if profile.is_some_and(|profile| measured(profile).0 == Some(TierKind::Hdd)) {
            reasons.push("yet random reads are as slow as on a disk that turns: is it busy, or worn?".into());
        }
        return DiskClass::tier(tier, DecidedBy::Transport, reasons);
    }
    let mut reasons: Vec<String> = facts.drives.iter().map(undecided).collect();
    if let Some(profile) = profile {
        let (tier, reason) = measured(profile);
        reasons.push(reason);
        if let Some(tier) = tier {
            reasons.extend(facts.drives.iter().filter_map(|drive| contradiction(drive, tier)));
            return DiskClass::tier(tier, DecidedBy::Measurement, reasons);
        }
    }
    let (tier, reason) = guess(&facts.drives);
    reasons.push(reason);
    DiskClass::tier(tier, DecidedBy::Guess, reasons)
}

/// Returns the reasons for a kind that the user declared; if detection would have decided otherwise, they say so.
fn by_word(word: TierKind, facts: &DiskFacts) -> Vec<String> {
    let otherwise = classify(&DiskFacts { declared: None, ..facts.clone() });
    let mut reasons = vec![format!("you said {word}")];
    if otherwise.tier != Some(word) {
        let name = otherwise.tier.map_or("refused", TierKind::name);
        reasons.push(format!("without your word: {name}, {}", otherwise.reasons.join("; ")));
    }
    reasons
}

fn refuse(facts: &DiskFacts) -> Option<DiskClass> {
    let name = &facts.file_system;
    let drive = facts.drives.iter().find(|drive| drive.transport == Transport::Memory);
    match (facts.backing, drive) {
        (BackingStore::Memory, _) => {
            Some(DiskClass::refused(Unsuitable::Memory, format!("{name} lies in memory, which is a tier already")))
        }
        (BackingStore::Network, _) => Some(DiskClass::refused(
            Unsuitable::Network,
            format!("{name} is another machine's: its writes may be lost or late without an error"),
        )),
        (BackingStore::WindowsDrive, _) => Some(DiskClass::refused(
            Unsuitable::Network,
            format!(
                "{name} is a drive of Windows, whose server answers each request: take a directory on Linux's own disk"
            ),
        )),
        (_, Some(drive)) => Some(DiskClass::refused(
            Unsuitable::Memory,
            format!("{} lies in memory, which is a tier already", drive.name),
        )),
        _ => None,
    }
}

/// Classifies by transport alone: the slowest kind among the disks. `None` unless the transport of every disk
/// determines its kind.
fn by_transport(drives: &[Drive]) -> Option<(TierKind, Vec<String>)> {
    let kinds: Option<Vec<TierKind>> = drives.iter().map(|drive| drive.transport.tier_kind()).collect();
    let tier = kinds?.into_iter().max()?;
    let mut reasons: Vec<String> =
        drives.iter().map(|drive| format!("{} is {}", drive.name, drive.transport.description())).collect();
    reasons.extend(drives.iter().filter_map(|drive| contradiction(drive, tier)));
    Some((tier, reasons))
}

fn undecided(drive: &Drive) -> String {
    format!("{} is {}, which may be flash or may turn", drive.name, drive.transport.description())
}

/// Classifies by measurement and returns the reason; the kind is `None` if a cache answered the reads.
fn measured(profile: ReadProfile) -> (Option<TierKind>, String) {
    let ReadProfile { random_over_sequential: ratio, depth_scaling: depth, latency_ns } = profile;
    if latency_ns < CACHE_NS {
        return (None, format!("a cache answered ({latency_ns} ns a read): the measurement says nothing of the disk"));
    }
    let reads = format!("random reads are {ratio:.2} times as fast as sequential ones");
    if ratio < TURNS {
        (Some(TierKind::Hdd), format!("{reads}: it turns"))
    } else if ratio >= FLASH {
        (Some(TierKind::Ssd), format!("{reads}: flash"))
    } else if depth >= CHANNELS {
        (Some(TierKind::Ssd), format!("{reads}, and sixteen at once {depth:.1} times as fast as one: flash"))
    } else {
        (Some(TierKind::Hdd), format!("{reads}, and sixteen at once only {depth:.1} times as fast as one: it turns"))
    }
}

/// If the disk's `rotational` flag contradicts the decided tier, returns a sentence that says so.
fn contradiction(drive: &Drive, tier: TierKind) -> Option<String> {
    let turns = tier == TierKind::Hdd;
    let says = u8::from(drive.rotational.filter(|&says| says != turns)?);
    Some(format!("{} says rotational={says}, which is not so", drive.name))
}

/// Guesses the kind where neither transport nor measurement decided it. In doubt it is the slower kind: a guess that is
/// too slow wastes speed, one that is too fast makes users wait.
fn guess(drives: &[Drive]) -> (TierKind, String) {
    let turns = |drive: &Drive| drive.rotational.unwrap_or(true) && drive.transport != Transport::Virtual;
    match drives.iter().find(|drive| turns(drive)) {
        _ if drives.is_empty() => (TierKind::Hdd, "the system names no disk: taken for the slowest".into()),
        Some(drive) => {
            let says = drive.rotational.map_or("says nothing".into(), |says| format!("says {}", u8::from(says)));
            (TierKind::Hdd, format!("rotational of {} {says}, and nothing else is known", drive.name))
        }
        None if drives.iter().any(|drive| drive.transport == Transport::Virtual) => {
            (TierKind::Ssd, "most virtual disks are flash, and their rotational says nothing".into())
        }
        None => (TierKind::Ssd, "rotational says 0, and nothing else is known".into()),
    }
}
