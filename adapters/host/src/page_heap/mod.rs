//! The page heap: allocates slices of the address range for spans, large blocks and caches, by the core's range
//! allocator.
//!
//! Promises upward: [`allocate`] takes the smallest gap that fits, of equal gaps the lowest, or maps more memory;
//! [`free`] merges neighbouring gaps; free slices stay dirty until [`purge`] is called for them. O(log gaps), one lock.
//! Asks from below: [`Range`] for split, merge and search; [`os`] for mappings; [`Tables`] for the bits of slices.
//!
//! Invariants, while no thread holds the lock:
//! - the `free_backed` bit of a slice is set only while it is free; a free slice without the bit has no memory under it
//! - everything from the start of the range to `mapped` is mapped, but for the range's holes

use crate::bits::{self, clear_remapped, mark, mark_dirty};
use crate::class::{self, PAGE, SLICE};
use crate::lock::Lock;
use crate::process::page_bytes;
use crate::tables::{Tables, tables};
use crate::{os, settings, usage};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicUsize};
use terrace_core::range::ExtentKind;
use terrace_core::{Allocator, BestFit, Branch, Owner, Range, Request, Slot};

mod check;
mod limit;
pub mod slice_cache;

pub use check::{check, check_usage};
pub use limit::enforce_limit;

/// Best fit: taking the smallest gap, of equal gaps the lowest, keeps blocks in use close together.
type Slices = Range<&'static mut [Slot], BestFit<&'static mut [Branch]>>;

/// The range allocator, and how much of the range is mapped.
#[derive(Debug)]
pub struct PageHeap {
    range: Slices,
    /// Distance in bytes from the range's start to the end of the last mapping; includes addresses skipped for a
    /// foreign mapping.
    mapped: usize,
}

/// The page heap; `None` before the allocator's start.
static PAGE_HEAP: Lock<Option<PageHeap>> = Lock::new(None);

/// Number of purges, and of bytes that they purged; changed and read without a lock.
static PURGES: AtomicUsize = AtomicUsize::new(0);
static PURGED: AtomicUsize = AtomicUsize::new(0);
/// Number of times the system refused a setting for a mapping (huge pages, NUMA policies).
static FALLBACKS: AtomicUsize = AtomicUsize::new(0);

/// Bytes by which the mapped part of the range grows at least: 64 slices, as long as two huge pages.
const STEP: usize = 4 << 20;
/// Bytes at the start of the range for which huge pages are refused unless the settings request them: on systems that
/// give huge pages to every mapping, a small process would otherwise hold megabytes that it never uses.
const SMALL: usize = 16 << 20;
/// Bytes to skip when a foreign mapping lies in the way.
const DETOUR: usize = 256 << 20;

/// The page heap's lock, which a fork takes.
pub fn lock() -> &'static Lock<Option<PageHeap>> {
    &PAGE_HEAP
}

/// The page heap's counters: bytes mapped, number of purges, bytes purged, number of settings refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub backed: usize,
    pub purges: usize,
    pub purged: usize,
    pub fallbacks: usize,
}

/// Reads the page heap's counters.
pub fn counts() -> Counts {
    let backed = PAGE_HEAP.lock().as_ref().map_or(0, |heap| heap.range.backed() as usize);
    Counts { backed, purges: PURGES.load(Relaxed), purged: PURGED.load(Relaxed), fallbacks: FALLBACKS.load(Relaxed) }
}

/// Chooses the address range and makes its tables; does nothing when that was done before.
///
/// `false`: the system has no address space or no memory for the tables.
pub fn init() -> bool {
    let mut heap = PAGE_HEAP.lock();
    if heap.is_some() {
        return true;
    }
    let Some((tables, slots, branches)) = Tables::start() else { return false };
    let range = Range::new(slots, SLICE as u64, BestFit::new(branches));
    let Ok(range) = range else { return false };
    let mut range = range.based(tables.base() as u64);
    let space = range.add_space(tables.base() as u64, tables.bytes() as u64);
    *heap = space.is_ok().then_some(PageHeap { range, mapped: 0 });
    heap.is_some()
}

/// Allocates `count` slices at a multiple of `align` bytes; claims their first `bytes` bytes as used.
///
/// Takes a cached run of exactly `count` slices if there is one. Returns the first slice, whose record names the block.
/// `None` without memory, or if the limit refuses the claim.
pub fn allocate(count: usize, align: usize, bytes: usize) -> Option<u32> {
    let tables = tables()?;
    let bytes = bytes.next_multiple_of(PAGE);
    if !usage::claim(bytes) {
        return None;
    }
    let Some(slice) = slice_cache::take(tables, count, align).or_else(|| take_slices(tables, count, align)) else {
        usage::release(bytes);
        return None;
    };
    tables.span(slice).prev.store((bytes / PAGE) as u32, Relaxed);
    usage::add_dirty(bits::clean_bytes(tables, slice, bytes));
    enforce_limit(tables, Some((slice, count, bytes)));
    Some(slice)
}

/// Allocates one slice for a span, and claims its dirty pages as in use.
pub fn allocate_span() -> Option<u32> {
    let tables = tables()?;
    if !usage::has_room(SLICE) {
        return None;
    }
    let slice = take_slices(tables, 1, SLICE)?;
    usage::claim_checked(bits::dirty_bytes(tables, slice));
    Some(slice)
}

/// Takes `count` slices out of the range.
///
/// The caller must claim the bytes that it uses of them (see [`usage`]).
pub fn take_slices(tables: &Tables, count: usize, align: usize) -> Option<u32> {
    let bytes = count.checked_mul(SLICE)?;
    let mut guard = PAGE_HEAP.lock();
    let heap = guard.as_mut()?;
    let request = Request::new(bytes as u64).align(align.max(SLICE) as u64);
    let mut block = heap.range.allocate(request);
    if block.is_err() && heap.grow(tables, bytes, align) {
        block = heap.range.allocate(request);
    }
    let block = block.ok()?;
    let slice = tables.slice_of(block.address as usize)?;
    mark(tables.free_backed, slice, count, false);
    let span = tables.span(slice);
    span.set_block(Some(block));
    span.class.store(class::NONE as u8, Relaxed);
    span.heap.store(0, Relaxed);
    span.next.store(0, Relaxed);
    span.prev.store(0, Relaxed);
    Some(slice)
}

/// Frees the slices of a block, given its first slice.
///
/// The first `dirty` bytes were in use: releases them and marks their pages dirty; the pages above keep their state.
/// For a span, whose dirty pages are marked already, the caller must release the bytes in use and pass 0.
pub fn free(slice: u32, dirty: usize) {
    let Some(tables) = tables() else { return };
    let span = tables.span(slice);
    let Some(block) = span.block() else { return };
    let count = block.bytes as usize / SLICE;
    mark_dirty(tables, slice, dirty.min(count * SLICE));
    usage::release(dirty);
    let mut guard = PAGE_HEAP.lock();
    let Some(heap) = guard.as_mut() else { return };
    if heap.range.free(block, Owner(0)).is_err() {
        return;
    }
    span.set_block(None);
    mark(tables.free_backed, slice, count, true);
    mark(tables.young, slice, count, true);
}

/// Resizes a block in place to `count` slices.
///
/// Marks the pages of the first `dirty` bytes dirty, which may have been written to. `false`: no room behind the block,
/// whose size stays unchanged. The caller must claim or release the bytes in use.
pub fn resize(slice: u32, count: usize, dirty: usize) -> bool {
    let Some(tables) = tables() else { return false };
    let span = tables.span(slice);
    let Some(block) = span.block() else { return false };
    let before = block.bytes as usize / SLICE;
    mark_dirty(tables, slice, dirty.min(before * SLICE));
    let mut guard = PAGE_HEAP.lock();
    let Some(heap) = guard.as_mut() else { return false };
    let wanted = count * SLICE;
    let mut resized = heap.range.resize(block, wanted as u64);
    let at_end = tables.base() + heap.mapped == (block.address + block.bytes) as usize;
    if resized.is_err() && at_end && count > before && heap.grow(tables, wanted - before * SLICE, SLICE) {
        resized = heap.range.resize(block, wanted as u64);
    }
    let Ok(now) = resized else { return false };
    span.set_block(Some(now));
    let (low, high) = (before.min(count), before.max(count));
    let fewer = count < before;
    mark(tables.free_backed, slice + low as u32, high - low, fewer);
    if fewer {
        mark(tables.young, slice + low as u32, high - low, true);
    }
    true
}

impl PageHeap {
    /// Maps more of the range, so that `bytes` bytes at a multiple of `align` fit. The larger the mapped part, the
    /// larger the step; if the system refuses a step, tries smaller ones, down to the smallest that suffices.
    fn grow(&mut self, tables: &Tables, bytes: usize, align: usize) -> bool {
        // The bytes needed if no free slice lies just before the new mapping.
        let needed = bytes.saturating_add(align.max(SLICE) - SLICE);
        let mut step = needed.max(STEP).max((self.mapped / 8).next_multiple_of(STEP)).next_multiple_of(STEP);
        let mut detours = 0;
        while self.mapped.saturating_add(needed) <= tables.bytes() {
            let room = tables.bytes() - self.mapped;
            step = step.clamp(needed, room);
            let address = tables.base() + self.mapped;
            if !tables.commit((self.mapped + step) / SLICE) {
                return false;
            }
            if let Some(at) = os::map_at(address, step) {
                // Exposes the mapping's provenance: pointers to blocks are made from addresses later.
                _ = at.expose_provenance();
                if self.mapped < SMALL && settings::huge_pages().is_none() {
                    // SAFETY: `map_at` mapped these pages above.
                    unsafe { os::advise_huge(at, step, false) };
                }
                apply_settings(at, step);
                return self.back(tables, step);
            }
            if step > needed {
                step = (step / 2).next_multiple_of(SLICE).max(needed);
            } else if detours < 8 && os::map_at(address + DETOUR, SLICE).is_some_and(unmap_probe) {
                // The addresses further on can be mapped, so a foreign mapping caused the refusal, not a limit: skips
                // it.
                self.mapped += DETOUR;
                detours += 1;
            } else {
                return false;
            }
        }
        false
    }

    /// Records that the next `bytes` bytes of the range are mapped, and hands them to the range allocator.
    fn back(&mut self, tables: &Tables, bytes: usize) -> bool {
        let start = (tables.base() + self.mapped) as u64;
        let hole =
            self.range.holes().find(|hole| hole.kind == ExtentKind::Hole && hole.start <= start && start < hole.end());
        let backed = hole.is_some_and(|hole| self.range.commit(&hole, start, bytes as u64).is_ok());
        if backed {
            self.mapped += bytes;
            tables.set_mapped(self.mapped);
        }
        backed
    }
}

/// Applies the settings for huge pages and NUMA to a new mapping.
fn apply_settings(at: core::ptr::NonNull<u8>, bytes: usize) {
    if let Some(wanted) = settings::huge_pages() {
        // SAFETY: the caller mapped these pages.
        let done = unsafe { os::advise_huge(at, bytes, wanted) };
        FALLBACKS.fetch_add(usize::from(!done), Relaxed);
    }
    if let Some((policy, nodes)) = settings::numa_policy() {
        // SAFETY: the caller mapped these pages.
        let done = unsafe { os::bind(at, bytes, policy, nodes) };
        FALLBACKS.fetch_add(usize::from(!done), Relaxed);
    }
}

/// Unmaps a slice that was mapped to find out whether an address is free. Returns `true`.
fn unmap_probe(at: core::ptr::NonNull<u8>) -> bool {
    // SAFETY: the caller mapped this slice, and nothing uses it.
    unsafe { os::unmap(at, SLICE) };
    true
}

/// Purges the dirty pages behind the first `bytes` bytes of a block that was just allocated.
fn purge_tail(tables: &Tables, slice: u32, count: usize, bytes: usize) {
    let start = bytes.next_multiple_of(page_bytes());
    let (all, kept) = (count * SLICE, bits::clean_bytes(tables, slice, start));
    let dirty = (all - start) - (bits::clean_bytes(tables, slice, all) - kept);
    if dirty == 0 {
        return;
    }
    // SAFETY: `start` lies inside the block.
    let at = unsafe { tables.address(slice).add(start) };
    // SAFETY: whole pages of a block that no caller has yet.
    if unsafe { os::purge(at, all - start) } {
        bits::mark_clean(tables, slice, start, all);
        usage::sub_purged(dirty);
        count_purged(dirty);
    }
}

/// Purges those slices of `first..first + count` that are free.
pub fn purge(tables: &Tables, first: u32, count: u32) {
    let _guard = PAGE_HEAP.lock();
    let is_idle = |slice: u32| {
        let bits = tables.free_backed.get(slice as usize / 64);
        bits.is_some_and(|bits| bits.load(Relaxed) >> (slice % 64) & 1 != 0)
    };
    let (mut at, end) = (first, first + count);
    while let Some(low) = (at..end).find(|&slice| is_idle(slice)) {
        at = (low..end).find(|&slice| !is_idle(slice)).unwrap_or(end);
        purge_slices(tables, low, at);
    }
}

/// Number of bytes purged since the process began.
pub fn purged_bytes() -> usize {
    PURGED.load(Relaxed)
}

/// Purges the slices `first..end`, which must be free. The caller must hold the page heap's lock.
fn purge_slices(tables: &Tables, first: u32, end: u32) {
    let bytes = (end - first) as usize * SLICE;
    let dirty = &tables.dirty[first as usize..end as usize];
    let pages: u32 = dirty.iter().map(|pages| pages.load(Relaxed).count_ones()).sum();
    let at = tables.address(first);
    let done = if clear_remapped(tables, first, end) {
        // SAFETY: the slices are free, and without the lock, which the caller holds, no thread can allocate them.
        let done = unsafe { os::replace(at, bytes) };
        apply_settings(at, bytes);
        done
    } else {
        // SAFETY: the slices are free, and without the lock, which the caller holds, no thread can allocate them.
        pages == 0 || unsafe { os::purge(at, bytes) }
    };
    if done {
        dirty.iter().for_each(|pages: &AtomicU16| pages.store(0, Relaxed));
        mark(tables.free_backed, first, (end - first) as usize, false);
        usage::sub_purged(pages as usize * PAGE);
        count_purged(pages as usize * PAGE);
    }
}

/// Counts one purge of `bytes` bytes, if there were any.
pub fn count_purged(bytes: usize) {
    if bytes > 0 {
        PURGES.fetch_add(1, Relaxed);
        PURGED.fetch_add(bytes, Relaxed);
    }
}

/// Zeroes the dirty pages among bytes `from..to` of a block; clean pages hold zeros already.
///
/// The block must just have been allocated.
pub fn zero(tables: &Tables, slice: u32, from: usize, to: usize) {
    let mut page = from / PAGE;
    while page * PAGE < to {
        let dirty = tables.pages(slice + (page / 16) as u32).load(Relaxed);
        if dirty >> (page % 16) & 1 != 0 {
            let start = from.max(page * PAGE);
            let bytes = to.min((page + 1) * PAGE) - start;
            // SAFETY: `start` lies inside the block, which no caller has yet.
            let at = unsafe { tables.address(slice).add(start) };
            // SAFETY: the bytes lie inside the block, which no caller has yet.
            unsafe { at.write_bytes(0, bytes) };
        }
        page += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    #[test]
    fn slices_that_were_allocated_before_they_were_purged_keep_their_bytes() {
        const BYTES: usize = 8 << 20;
        let _alone = crate::check::ALONE.lock();
        let first = api::allocate(BYTES, 1);
        assert!(!first.is_null());
        // SAFETY: a live block of so many bytes.
        unsafe { first.write_bytes(1, BYTES) };
        // SAFETY: live, and not used any more.
        unsafe { api::free(first) };
        let block = api::allocate(BYTES, 1);
        assert!(!block.is_null());
        // SAFETY: a live block of so many bytes.
        unsafe { block.write_bytes(7, BYTES) };
        let tables = tables().expect("a block was allocated");
        let slice = tables.slice_of(block.addr()).expect("a block of ours");
        assert!(bits::clean_bytes(tables, slice, BYTES) < BYTES, "the block before it left dirty pages");
        purge(tables, slice, (BYTES / SLICE) as u32);
        // SAFETY: as above; all bytes are written.
        let bytes = unsafe { core::slice::from_raw_parts(block, BYTES) };
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}
