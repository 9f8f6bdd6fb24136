//! Traces of what the manager does: spans of copies between tiers, events of the ledger's decisions.
//!
//! Promises upward: a subscriber is never called under the manager's lock, and its panic in an event goes no further.
//! Asks from below: notices of the ledger.

use crate::ledger::{BufferId, Notice};
use terrace_core::residence::Tier;
use terrace_guard::catch_panic;
use tracing::{Level, Span, event, field, span};

/// The span of a copy between tiers; `outcome` is recorded at its end.
pub(super) fn copy_span(id: BufferId, from: Tier, to: Tier, bytes: u64) -> Span {
    span!(Level::DEBUG, "move", buffer = %id, from, to, bytes, outcome = field::Empty)
}

/// Reports notices. The caller must hold no lock.
pub(super) fn report(notices: Vec<Notice>) {
    for notice in notices {
        catch_panic(|| match notice {
            Notice::Evicted { id, from, to, bytes, cause } => {
                event!(Level::DEBUG, buffer = %id, from, to, bytes, cause = cause.name(), "evicted");
            }
            Notice::PrefetchUnmet { id } => event!(Level::INFO, buffer = %id, "prefetch not met"),
            Notice::Suspended { tier, pause } => event!(Level::WARN, tier, pause_ms = pause, "tier suspended"),
        });
    }
}
