//! Purges free memory while the process holds more than its limit or control group allows.
//!
//! Promises upward: after [`enforce_limit`] the process holds no more than is allowed, unless purging all free slices
//! does not suffice.
//! Asks from below: the page heap's lock and [`purge_slices`]; [`usage::excess`].

use super::{PAGE_HEAP, purge_slices, purge_tail, slice_cache};
use crate::class::SLICE;
use crate::tables::{Tables, mapped};
use crate::usage;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Purges free memory while the process holds more than is allowed.
///
/// If more than half of the allowed bytes are held, also purges the dirty pages behind the bytes in use of `block`,
/// which must just have been allocated (first slice, number of slices, bytes in use): they cannot be purged later,
/// until the block is freed.
pub fn enforce_limit(tables: &Tables, block: Option<(u32, usize, usize)>) {
    if !usage::is_half() {
        return;
    }
    if let Some((slice, count, bytes)) = block {
        purge_tail(tables, slice, count, bytes);
    }
    if usage::excess() > 0 {
        purge_excess(tables);
        if usage::excess() > 0 {
            slice_cache::flush();
            purge_excess(tables);
        }
    }
}

/// Index of the word of `free_backed` at which the next search for free memory begins.
static CURSOR: AtomicUsize = AtomicUsize::new(0);

/// Purges free slices until 256 KiB less than the allowed bytes are held: the reserve spares the next calls this work.
fn purge_excess(tables: &Tables) {
    const MORE: usize = 256 << 10;
    let _guard = PAGE_HEAP.lock();
    let words = (mapped() / SLICE).div_ceil(64).max(1);
    let first = CURSOR.load(Relaxed);
    let wanted = usage::held().saturating_sub(usage::excess() + MORE);
    for word in (0..words).map(|at| (first + at) % words) {
        let mut bits = tables.free_backed.get(word).map_or(0, |bits| bits.load(Relaxed));
        while bits != 0 {
            if usage::held() <= wanted {
                CURSOR.store(word, Relaxed);
                return;
            }
            // Purges one run of free slices in the word at a time, at most 4 MiB.
            let low = bits.trailing_zeros();
            let end = low + (bits >> low).trailing_ones();
            purge_slices(tables, (word * 64) as u32 + low, (word * 64) as u32 + end);
            bits &= u64::MAX.checked_shl(end).unwrap_or(0);
        }
    }
}
