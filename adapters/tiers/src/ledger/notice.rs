//! What the ledger decided that a trace reports beside its actions.
//!
//! Promises upward: without the feature `tracing` nothing is kept; with it at most [`MOST`] notices wait to be taken.
//! Asks from below: nothing. The manager takes notices under its lock and reports them without the lock.

use super::EvictionCause;
use super::types::BufferId;
use terrace_core::residence::Tier;

/// A decision that a trace reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "the fields are read by traces only"))]
pub(crate) enum Notice {
    /// A buffer leaves a tier: for the tier `to`, or as a redundant copy.
    Evicted { id: BufferId, from: Tier, to: Option<Tier>, bytes: u64, cause: EvictionCause },
    /// No room could be made for a prefetch, or its copy failed.
    PrefetchUnmet { id: BufferId },
    /// A copy into a tier failed: no other begins for `pause`, in the unit of ticks.
    Suspended { tier: Tier, pause: u64 },
}

/// The most notices that are kept: a ledger that no manager uses has no reader for them.
#[cfg(feature = "tracing")]
const MOST: usize = 1024;

/// Notices that were not reported yet.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    #[cfg(feature = "tracing")]
    waiting: Vec<Notice>,
}

impl Notices {
    /// Keeps a notice, if traces are compiled in.
    #[inline]
    pub(super) fn add(&mut self, notice: Notice) {
        #[cfg(feature = "tracing")]
        if self.waiting.len() < MOST {
            self.waiting.push(notice);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = notice;
    }

    /// Takes all notices.
    #[cfg(feature = "tracing")]
    pub(crate) fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.waiting)
    }
}
