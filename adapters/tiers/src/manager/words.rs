//! How a buffer is asked for, and how it is listed.

use crate::ledger::Hint;
use terrace_core::residence::Tier;

/// How a buffer is allocated.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What it is called: then it can be made durable.
    pub name: Option<String>,
    /// For whom.
    pub tenant: u16,
    /// Where it should live.
    pub hint: Hint,
    /// Whether to wait for what others may free, first come, first served.
    pub wait: bool,
}

/// One buffer, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it is called.
    pub name: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// The best tier that has its newest bytes.
    pub tier: Tier,
    /// Whether its newest bytes survive a power cut.
    pub durable: bool,
    /// Whether a lease is held.
    pub leased: bool,
}
