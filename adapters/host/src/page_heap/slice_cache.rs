//! A cache of the slices of large blocks that were freed last.
//!
//! Promises upward: [`take`] and [`put`] in a tenth of what the page heap costs, without its lock. A tick of the purge clock
//! flushes all.
//! Asks from below: the core's [`Exchange`].

use super::free;
use crate::class::SLICE;
use crate::tables::{Span, Tables};
use crate::{bits, usage};
use core::sync::atomic::Ordering::Relaxed;
use terrace_core::Exchange;
use terrace_core::sync::{AtomicU32, AtomicUsize as Word};

/// Numbers of slices, up to 1 MiB, of which freed blocks are cached: two of each number.
const CACHED_SLICES: usize = 16;
const EACH: usize = 2;
static STATES: [[AtomicU32; EACH]; CACHED_SLICES] = [const { [const { AtomicU32::new(0) }; EACH] }; CACHED_SLICES];
static SLICES: [[Word; EACH]; CACHED_SLICES] = [const { [const { Word::new(0) }; EACH] }; CACHED_SLICES];

fn exchange(count: usize) -> Option<Exchange<'static>> {
    let at = count.checked_sub(1)?;
    Some(Exchange::new(STATES.get(at)?, SLICES.get(at)?))
}

/// Caches the slices of a freed block. `false`: they must go to the page heap, the block is too large.
pub fn put(tables: &Tables, slice: u32, span: &Span) -> bool {
    let count = span.block().map_or(0, |name| name.bytes as usize / SLICE);
    let Some(exchange) = exchange(count) else { return false };
    bits::mark_dirty(tables, slice, span.requested_bytes());
    // No block any more: a second free is found out.
    span.heap.store(CACHED, Relaxed);
    usage::release(span.requested_bytes());
    if !exchange.give(&[slice as usize]) {
        free(slice, 0);
    }
    true
}

/// Takes exactly so many cached slices. The caller must claim what is used of them.
pub fn take(tables: &Tables, count: usize, align: usize) -> Option<u32> {
    let slice = if align <= SLICE { pop(count)? } else { return None };
    let span = tables.span(slice);
    span.heap.store(0, Relaxed);
    span.next.store(0, Relaxed);
    Some(slice)
}

/// The first slice of a cached run of so many.
fn pop(count: usize) -> Option<u32> {
    let mut slice = [0];
    exchange(count)?.take(&mut slice)?;
    Some(slice[0] as u32)
}

/// Frees all cached slices into the page heap.
pub fn flush() {
    for count in 1..=CACHED_SLICES {
        while let Some(slice) = pop(count) {
            free(slice, 0);
        }
    }
}

/// Flushes and closes the cache: before a fork (see [`Exchange::close`]).
pub fn close() {
    (1..=CACHED_SLICES).filter_map(exchange).for_each(|exchange| exchange.close(|slice| free(slice as u32, 0)));
}

/// Opens the cache after a fork.
pub fn open() {
    (1..=CACHED_SLICES).filter_map(exchange).for_each(|exchange| exchange.open());
}

/// In a record's `heap`: the slices are cached here, and are no block.
pub const CACHED: u16 = u16::MAX;
