//! What other viewers read: Perfetto and chrome://tracing, speedscope, pprof.
//!
//! Promises upward: files that these open as they are; O(events) in time, and as large as the trace.
//! Asks from below: a trace in memory.

mod perfetto;
mod pprof;
mod speedscope;

pub use perfetto::perfetto;
pub use pprof::pprof;
pub use speedscope::speedscope;

use super::trace::Trace;
use std::collections::HashMap;
use terrace_replay::{Operation, OperationKind};

/// Blocks and bytes of one tag and call site.
#[derive(Clone, Copy, Default)]
pub struct StackSum {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub live_blocks: u64,
    pub live_bytes: u64,
}

/// What was allocated up to an event, and what is live then, by tag and call site.
fn sums(trace: &Trace, events: usize) -> HashMap<(u32, u32), StackSum> {
    let mut sums: HashMap<(u32, u32), StackSum> = HashMap::new();
    let mut blocks = vec![None::<((u32, u32), u64)>; trace.slots];
    for event in &trace.events[..events] {
        let Operation { slot, kind, bytes, .. } = event.operation;
        let slot = &mut blocks[slot as usize];
        if let Some((stack, old)) = slot.take() {
            let sum = sums.entry(stack).or_default();
            sum.live_blocks -= 1;
            sum.live_bytes -= old;
            if kind == OperationKind::Reallocate {
                sum.allocated_bytes += bytes.saturating_sub(old);
                sum.live_blocks += 1;
                sum.live_bytes += bytes;
                *slot = Some((stack, bytes));
            }
        }
        if kind == OperationKind::Allocate {
            let stack = (event.tag, event.site);
            let sum = sums.entry(stack).or_default();
            sum.allocations += 1;
            sum.allocated_bytes += bytes;
            sum.live_blocks += 1;
            sum.live_bytes += bytes;
            *slot = Some((stack, bytes));
        }
    }
    sums
}

/// The frames of a tag and a call site, outermost first: the tag, then the call site's lines, whose first is the innermost.
fn frames(trace: &Trace, (tag, site): (u32, u32)) -> Vec<String> {
    let tag = match trace.text(tag) {
        "" => "(no tag)".to_owned(),
        tag => tag.to_owned(),
    };
    let site = trace.text(site).lines().rev().map(str::to_owned);
    std::iter::once(tag).chain(site.filter(|line| !line.trim().is_empty())).collect()
}
