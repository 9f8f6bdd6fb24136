//! Which tier a directory's disk is: decided from what was read and measured, and nothing else.
//!
//! Promises upward: a pure function; the same facts give the same class; every class says by what it was decided and
//! why, in words. In this order: the user's word, the transport's name, the measured ratio of random to sequential
//! reads, the gain from asking for many at once. `rotational` decides nothing: virtual disks and USB bridges say 1 for
//! flash. Where nothing else is known it makes a guess, which is called one.

use super::kind::TierKind;
use super::transport::{Drive, Transport};
use serde::Serialize;

/// Random 4K reads a second over sequential ones, one at a time. Below this a disk turns: a jump costs it half a turn,
/// 4 ms at 7200 turns a minute (250 a second), and the next block lies in its cache, 0.1 ms (10000 a second): 0.025,
/// and 0.05 within a small file. Flash stands at 0.3 to 1.1.
const TURNS: f64 = 0.1;

/// From this on it is flash for sure; between the two, depth decides.
const FLASH: f64 = 0.3;

/// Random 4K reads a second, sixteen at a time over one at a time. An arm that may choose its order gains up to a
/// factor of 2; flash has channels: 4 to 16.
const CHANNELS: f64 = 3.0;

/// No disk answers within this, in nanoseconds: the fastest take 8 us with the system's part. What does is a cache.
const CACHE_NS: u64 = 5_000;

/// What a file system stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingStore {
    /// Disks, which are named.
    Disks,
    /// The machine's memory.
    Memory,
    /// Another machine.
    Network,
    /// Something that the system does not name.
    Unknown,
}

/// How reads behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadProfile {
    /// Random 4K reads a second over sequential ones, one at a time.
    pub random_over_sequential: f64,
    /// Random 4K reads a second, sixteen at a time over one at a time.
    pub depth_scaling: f64,
    /// Half of the random 4K reads took at most this.
    pub latency_ns: u64,
}

/// All that is known of a directory's disk.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// What the user says it is.
    pub declared: Option<TierKind>,
    /// Name of the file system.
    pub file_system: String,
    /// What it stands on.
    pub backing: BackingStore,
    /// Whether nothing can be written.
    pub read_only: bool,
    /// The disks; several below a stack (RAID, logical volumes).
    pub drives: Vec<Drive>,
    /// How it behaves, where it was measured.
    pub profile: Option<ReadProfile>,
}

/// By what it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// The user said so.
    #[serde(rename = "word")]
    Declared,
    /// The name of the transport.
    Transport,
    /// What was measured.
    Measurement,
    /// `rotational`, or nothing at all: measure to be sure.
    Guess,
    /// It is no tier.
    Refusal,
}

impl DecidedBy {
    /// For people.
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

/// Why something is no tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsuitable {
    /// It is the machine's memory, which is a tier already.
    Memory,
    /// It is another machine's.
    Network,
    /// Nothing can be written.
    ReadOnly,
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskClass {
    /// Which tier; `None` exactly where it is refused.
    pub tier: Option<TierKind>,
    /// Why it is none.
    pub refused: Option<Unsuitable>,
    /// By what.
    #[serde(rename = "decided_by")]
    pub by: DecidedBy,
    /// In words; never empty.
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

/// Decides.
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

/// The user's word wins, and what speaks against it is told.
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
        (_, Some(drive)) => Some(DiskClass::refused(
            Unsuitable::Memory,
            format!("{} lies in memory, which is a tier already", drive.name),
        )),
        _ => None,
    }
}

/// What names alone say: the slowest of the disks, if each has a name that decides.
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

/// What measurements say; nothing where a cache answered.
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

/// What `rotational` says against a decision.
fn contradiction(drive: &Drive, tier: TierKind) -> Option<String> {
    let turns = tier == TierKind::Hdd;
    let says = u8::from(drive.rotational.filter(|&says| says != turns)?);
    Some(format!("{} says rotational={says}, which is not so", drive.name))
}

/// What is left where nothing was measured. The slower where nothing is known: it costs speed, the other way costs
/// patience.
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
