//! The transfer cache: batches of free blocks that go from one thread's cache to another's, by class, without a lock.
//!
//! Promises upward: a thread that only allocates gets the blocks of one that only frees, at the cost of two copies.
//! Asks from below: the core's [`Exchange`]. A single thread puts nothing here, so that spans know sooner that they are empty.

use crate::class::{BATCH, COUNT};
use crate::process;
use crate::spans::GLOBAL_SPANS;
use crate::tables::tables;
use terrace_core::sync::{AtomicU32, AtomicUsize};
use terrace_core::{Exchange, Violation};

/// Batches of a class at most: a cache line has 16 states, and eight are more than two cores leave behind.
const PLACES: usize = 8;

static STATES: [[AtomicU32; PLACES]; COUNT] = [const { [const { AtomicU32::new(0) }; PLACES] }; COUNT];
static ITEMS: [[AtomicUsize; PLACES * BATCH]; COUNT] =
    [const { [const { AtomicUsize::new(0) }; PLACES * BATCH] }; COUNT];

fn exchange(class: usize) -> Exchange<'static> {
    Exchange::new(&STATES[class % COUNT], &ITEMS[class % COUNT])
}

/// Takes a batch of a class, as far as `out` has room; `None` without one.
pub fn take(class: usize, out: &mut [*mut u8]) -> Option<usize> {
    let tables = tables()?;
    let mut addresses = [0; BATCH];
    let room = out.len().min(BATCH);
    let count = exchange(class).take(&mut addresses[..room])?;
    out.iter_mut().zip(&addresses[..count]).for_each(|(block, &address)| *block = tables.block_at(address));
    Some(count)
}

/// Puts a batch here. `false` when there is no room, or no other thread.
pub fn put(class: usize, blocks: &[*mut u8]) -> bool {
    if process::is_single_threaded() || blocks.len() > BATCH {
        return false;
    }
    let mut addresses = [0; BATCH];
    addresses.iter_mut().zip(blocks).for_each(|(address, block)| *address = block.addr());
    exchange(class).give(&addresses[..blocks.len()])
}

/// Flushes batches into their spans, as long as work is `left`, in blocks.
pub fn flush(left: &mut usize) {
    let Some(tables) = tables() else { return };
    for class in 1..COUNT {
        let mut addresses = [0; BATCH];
        while *left > 0 {
            let Some(count) = exchange(class).take(&mut addresses) else { break };
            let blocks = addresses.map(|address| tables.block_at(address));
            GLOBAL_SPANS.free(class, &blocks[..count]);
            *left = left.saturating_sub(count);
        }
    }
}

/// Flushes and closes every class: before a fork.
pub fn close() {
    let tables = tables();
    for class in 1..COUNT {
        let give = |address| _ = tables.map(|tables| GLOBAL_SPANS.free(class, &[tables.block_at(address)]));
        exchange(class).close(give);
    }
}

/// Opens every class after a fork.
pub fn open() {
    (1..COUNT).for_each(|class| exchange(class).open());
}

/// Blocks of a class in the transfer cache.
pub fn count(class: usize) -> usize {
    exchange(class).held()
}

/// Checks the batches of every class.
///
/// # Errors
/// The class, and what is wrong with a batch.
pub fn check() -> Result<(), Violation> {
    (1..COUNT).try_for_each(|class| exchange(class).check())
}
