//! A cache of the slices of recently freed large blocks.
//!
//! Promises upward: [`take`] and [`put`] cost a tenth of a call of the page heap, and do not take its lock. A round of
//! purging flushes the cache.
//! Asks from below: the core's [`Exchange`].

use super::free;
use crate::class::SLICE;
use crate::tables::{Span, Tables};
use crate::{bits, usage};
use core::sync::atomic::Ordering::Relaxed;
use terrace_core::Exchange;
use terrace_core::sync::{AtomicU32, AtomicUsize as Word};

/// The largest block that is cached, in slices: 1 MiB. For each number of slices up to this, two blocks are cached.
const CACHED_SLICES: usize = 16;
const EACH: usize = 2;
static STATES: [[AtomicU32; EACH]; CACHED_SLICES] = [const { [const { AtomicU32::new(0) }; EACH] }; CACHED_SLICES];
static SLICES: [[Word; EACH]; CACHED_SLICES] = [const { [const { Word::new(0) }; EACH] }; CACHED_SLICES];

fn exchange(count: usize) -> Option<Exchange<'static>> {
    let at = count.checked_sub(1)?;
    Some(Exchange::new(STATES.get(at)?, SLICES.get(at)?))
}

/// Caches a freed block's slices, or frees them if the cache is full. `false`: the block is too large.
pub fn put(tables: &Tables, slice: u32, span: &Span) -> bool {
    let count = span.block().map_or(0, |name| name.bytes as usize / SLICE);
    let Some(exchange) = exchange(count) else { return false };
    bits::mark_dirty(tables, slice, span.requested_bytes());
    // Marks the slices as no block, so that a second free is detected.
    span.heap.store(CACHED, Relaxed);
    usage::release(span.requested_bytes());
    if !exchange.give(&[slice as usize]) {
        free(slice, 0);
    }
    true
}

/// Takes a cached run of exactly `count` slices. The caller must claim the bytes that it uses of them.
pub fn take(tables: &Tables, count: usize, align: usize) -> Option<u32> {
    let slice = if align <= SLICE { pop(count)? } else { return None };
    let span = tables.span(slice);
    span.heap.store(0, Relaxed);
    span.next.store(0, Relaxed);
    Some(slice)
}

/// Takes a cached run of `count` slices; returns its first slice.
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

/// Closes the cache before a fork, and frees its slices into the page heap (see [`Exchange::close`]).
pub fn close() {
    (1..=CACHED_SLICES).filter_map(exchange).for_each(|exchange| exchange.close(|slice| free(slice as u32, 0)));
}

/// Opens the cache again after a fork.
pub fn open() {
    (1..=CACHED_SLICES).filter_map(exchange).for_each(|exchange| exchange.open());
}

/// Value of a record's `heap` which says that the slices are cached and are no block.
pub const CACHED: u16 = u16::MAX;
