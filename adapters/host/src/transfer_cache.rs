//! The transfer cache: batches of free blocks, by class, that one thread's cache spills and another's takes, without a
//! lock.
//!
//! Promises upward: a thread that only allocates gets the blocks of a thread that only frees, for two copies of each
//! pointer.
//! Asks from below: the core's [`Exchange`]. While one thread has a cache, batches go straight to their spans, which so
//! become empty sooner.

use crate::class::{BATCH, COUNT};
use crate::process;
use crate::spans::GLOBAL_SPANS;
use crate::tables::tables;
use terrace_core::sync::{AtomicU32, AtomicUsize};
use terrace_core::{Exchange, Violation};

/// The most batches of a class. A cache line has room for 16 states; two threads on two cores rarely leave more than
/// eight.
const PLACES: usize = 8;

static STATES: [[AtomicU32; PLACES]; COUNT] = [const { [const { AtomicU32::new(0) }; PLACES] }; COUNT];
static ITEMS: [[AtomicUsize; PLACES * BATCH]; COUNT] =
    [const { [const { AtomicUsize::new(0) }; PLACES * BATCH] }; COUNT];

fn exchange(class: usize) -> Exchange<'static> {
    Exchange::new(&STATES[class % COUNT], &ITEMS[class % COUNT])
}

/// Takes a batch of a class, as many of its blocks as `out` has room for; `None`: there is no batch.
pub fn take(class: usize, out: &mut [*mut u8]) -> Option<usize> {
    let tables = tables()?;
    let mut addresses = [0; BATCH];
    let room = out.len().min(BATCH);
    let count = exchange(class).take(&mut addresses[..room])?;
    out.iter_mut().zip(&addresses[..count]).for_each(|(block, &address)| *block = tables.block_at(address));
    Some(count)
}

/// Puts a batch of a class into the transfer cache.
///
/// `false`: no place is empty, the batch is too large, or only one thread has a cache.
pub fn put(class: usize, blocks: &[*mut u8]) -> bool {
    if process::is_single_threaded() || blocks.len() > BATCH {
        return false;
    }
    let mut addresses = [0; BATCH];
    addresses.iter_mut().zip(blocks).for_each(|(address, block)| *address = block.addr());
    exchange(class).give(&addresses[..blocks.len()])
}

/// Frees cached batches into their spans while `left`, the number of blocks allowed, is not 0.
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

/// Closes every class before a fork, and frees its batches into their spans.
pub fn close() {
    let tables = tables();
    for class in 1..COUNT {
        let give = |address| _ = tables.map(|tables| GLOBAL_SPANS.free(class, &[tables.block_at(address)]));
        exchange(class).close(give);
    }
}

/// Opens every class again after a fork.
pub fn open() {
    (1..COUNT).for_each(|class| exchange(class).open());
}

/// Number of blocks of a class in the transfer cache.
pub fn count(class: usize) -> usize {
    exchange(class).held()
}

/// Checks the batches of every class.
///
/// # Errors
/// The first invariant that a batch breaks.
pub fn check() -> Result<(), Violation> {
    (1..COUNT).try_for_each(|class| exchange(class).check())
}
