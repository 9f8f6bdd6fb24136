//! The depot: batches of free blocks that one thread left and another may have, by class, without a lock.
//!
//! Promises upward: what a thread that only frees hands over, a thread that only allocates gets, at the cost of two copies.
//! Asks from below: the core's [`Exchange`]. A thread that is alone leaves nothing here: spans then know sooner that
//! they are empty.

use crate::class::{BATCH, COUNT};
use crate::process;
use crate::spans::GLOBAL_SPANS;
use crate::tables::tables;
use terrace_core::{Exchange, Violation};
use terrace_core::sync::{AtomicU32, AtomicUsize};

/// Batches of a class that wait at most: a cache line has 16 states, and eight are more than two cores leave behind.
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

/// Leaves a batch. `false` when there is no room, or nobody who could want it.
pub fn put(class: usize, blocks: &[*mut u8]) -> bool {
    if process::is_single_threaded() || blocks.len() > BATCH {
        return false;
    }
    let mut addresses = [0; BATCH];
    addresses.iter_mut().zip(blocks).for_each(|(address, block)| *address = block.addr());
    exchange(class).give(&addresses[..blocks.len()])
}

/// Gives what waits to the spans, as long as work is `left`, in blocks.
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

/// Takes every place out of use and gives what waits to the spans: before a fork.
pub fn close() {
    let tables = tables();
    for class in 1..COUNT {
        let give = |address| _ = tables.map(|tables| GLOBAL_SPANS.free(class, &[tables.block_at(address)]));
        exchange(class).close(give);
    }
}

/// Takes them into use again.
pub fn open() {
    (1..COUNT).for_each(|class| exchange(class).open());
}

/// Blocks of a class that wait.
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
