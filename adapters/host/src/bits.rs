//! One bit for each slice or page: free, dirty, remapped.
//!
//! Promises upward: O(slices / 64); a word whose bits are already right is not written, so other processors keep its
//! cache line.
//! Asks from below: the bitmaps of [`Tables`].

use crate::class::{PAGE, SLICE};
use crate::tables::Tables;
use core::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Sets (if `set`) or clears the bits of `count` slices from `slice` on.
pub fn mark(bits: &[AtomicU64], slice: u32, count: usize, set: bool) {
    let (mut at, end) = (slice as usize, slice as usize + count);
    while at < end {
        let next = end.min((at / 64 + 1) * 64);
        let mask = (u64::MAX >> (64 - (next - at))) << (at % 64);
        if let Some(word) = bits.get(at / 64) {
            // Reads first: a word that is already right is not written, so other processors keep its cache line.
            match (set, word.load(Relaxed) & mask) {
                (true, now) if now != mask => _ = word.fetch_or(mask, Relaxed),
                (false, now) if now != 0 => _ = word.fetch_and(!mask, Relaxed),
                _ => {}
            }
        }
        at = next;
    }
}

/// Marks the pages of the first `bytes` bytes from the start of `slice` as dirty.
pub fn mark_dirty(tables: &Tables, slice: u32, bytes: usize) {
    for (at, pages) in tables.dirty[slice as usize..].iter().take(bytes.div_ceil(SLICE)).enumerate() {
        let mask = pages_below(bytes - at * SLICE);
        if pages.load(Relaxed) & mask != mask {
            pages.fetch_or(mask, Relaxed);
        }
    }
}

/// Marks the pages of bytes `from..to` as clean: they hold zeros.
///
/// Both are multiples of a page, counted from the start of `slice`.
pub fn mark_clean(tables: &Tables, slice: u32, from: usize, to: usize) {
    for at in from / SLICE..to.div_ceil(SLICE) {
        let start = at * SLICE;
        let kept = pages_below(from.saturating_sub(start)) | !pages_below(to - start);
        tables.pages(slice + at as u32).fetch_and(kept, Relaxed);
    }
}

/// Bytes of clean pages, which hold zeros, among the first `bytes` bytes from the start of `slice`.
pub fn clean_bytes(tables: &Tables, slice: u32, bytes: usize) -> usize {
    let dirty = tables.dirty[slice as usize..].iter().take(bytes.div_ceil(SLICE)).enumerate();
    let count =
        |(at, pages): (usize, &AtomicU16)| (pages_below(bytes - at * SLICE) & !pages.load(Relaxed)).count_ones();
    dirty.map(count).sum::<u32>() as usize * PAGE
}

/// Bytes of the dirty pages of one slice.
pub fn dirty_bytes(tables: &Tables, slice: u32) -> usize {
    tables.pages(slice).load(Relaxed).count_ones() as usize * PAGE
}

/// The bits of the pages that the first `bytes` bytes of a slice touch.
pub fn pages_below(bytes: usize) -> u16 {
    let pages = bytes.min(SLICE).div_ceil(PAGE) as u32;
    (u32::MAX >> (32 - pages.max(1))) as u16 & if pages == 0 { 0 } else { u16::MAX }
}

/// Clears the remapped bits of slices `first..end`; returns whether any was set.
pub fn clear_remapped(tables: &Tables, first: u32, end: u32) -> bool {
    let mut count = 0;
    for word in first / 64..=(end - 1) / 64 {
        let Some(bits) = tables.remapped.get(word as usize) else { continue };
        let (low, high) = (first.max(word * 64), end.min(word * 64 + 64));
        let mask = (u64::MAX >> (64 - (high - low))) << (low % 64);
        if bits.load(Relaxed) & mask != 0 {
            count += (bits.fetch_and(!mask, Relaxed) & mask).count_ones() as usize;
        }
    }
    if count > 0 {
        REMAPPED.fetch_sub(count, Relaxed);
    }
    count > 0
}

/// Blocks that `mremap` moved and that since lie in a mapping of their own: Linux allows a process 65530 mappings in
/// all.
static REMAPPED: AtomicUsize = AtomicUsize::new(0);
const MOST_REMAPPED: usize = 8192;

/// Whether `mremap` may move another block.
pub fn may_remap() -> bool {
    REMAPPED.load(Relaxed) < MOST_REMAPPED
}

/// Makes [`may_remap`] false for good, because this kernel cannot move pages.
pub fn stop_remapping() {
    REMAPPED.store(usize::MAX / 2, Relaxed);
}

/// Records that `mremap` moved a block from slice `from`, its old first slice, to slice `to`.
pub fn mark_remapped(tables: &Tables, from: u32, to: u32) {
    let bit = |slice: u32| (tables.remapped.get(slice as usize / 64), 1u64 << (slice % 64));
    if let (Some(bits), mask) = bit(to) {
        REMAPPED.fetch_add(usize::from(bits.fetch_or(mask, Relaxed) & mask == 0), Relaxed);
    }
    if let (Some(bits), mask) = bit(from) {
        REMAPPED.fetch_sub(usize::from(bits.fetch_and(!mask, Relaxed) & mask != 0), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;
    use crate::tables::tables;

    /// A program that moves and frees blocks for ever may always move another.
    #[test]
    fn slices_that_are_mapped_anew_count_as_moved_no_more() {
        let _alone = crate::check::ALONE.lock();
        // Stays, so that no other test gets its slices.
        let block = api::allocate(2 * SLICE, 1);
        let tables = tables().expect("a block was allocated");
        let slice = tables.slice_of(block.addr()).expect("a block of ours");
        let before = REMAPPED.load(Relaxed);
        mark_remapped(tables, slice + 1, slice);
        mark_remapped(tables, slice + 1, slice);
        assert_eq!(REMAPPED.load(Relaxed), before + 1);
        assert!(clear_remapped(tables, slice, slice + 2) && !clear_remapped(tables, slice, slice + 2));
        assert_eq!(REMAPPED.load(Relaxed), before);
    }
}
