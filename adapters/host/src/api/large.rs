//! Large blocks: whole slices of the page heap. A block grows in place where free slices follow it; otherwise `mremap`
//! moves its pages.
//!
//! Promises upward: [`allocate`], [`free_any`] and [`resize`] do the whole call in O(log gaps); a zeroed block also
//! costs the clearing of its dirty pages.
//! Asks from below: [`page_heap`]; the dirty bits of pages; [`heaps`] for blocks of first-class heaps; [`signal`]
//! inside handlers; [`purge`].

use super::poll;
use crate::bits;
use crate::class::{self, PAGE, SLICE};
use crate::page_heap::slice_cache::{self, CACHED};
use crate::report::fatal;
use crate::tables::{Tables, tables};
use crate::{backlog, emergency, heaps, init, live, os, page_heap, process, purge, signal, thread, track, usage};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::Relaxed;

/// Smallest block that `mremap` moves: 64 pages. Copying fewer costs less than the page faults that `mremap` and `mmap`
/// cause.
const LEAST_REMAP: usize = 256 << 10;

/// Allocates `bytes` bytes at a multiple of `align`.
///
/// Null without memory, or if `align` is no power of two.
#[cold]
#[inline(never)]
pub extern "C" fn allocate(bytes: usize, align: usize, zeroed: bool) -> *mut u8 {
    #[cfg(feature = "track")]
    match track::calls() {
        track::Calls::Untracked => {}
        track::Calls::Counted | track::Calls::Recorded => return super::tracked::allocate_large(bytes, align, zeroed),
        track::Calls::WithStack => return super::tracked::allocate_large_with_stack(bytes, align, zeroed),
    }
    allocate_now(bytes, align, zeroed)
}

/// As [`allocate`]; the tracker is not told.
#[inline(never)]
pub extern "C" fn allocate_now(bytes: usize, align: usize, zeroed: bool) -> *mut u8 {
    if !align.is_power_of_two() {
        return os::out_of_memory();
    }
    if let Some(block) = signal::allocate(bytes, align) {
        if zeroed && !block.is_null() {
            // SAFETY: the block holds at least `bytes` bytes.
            unsafe { block.write_bytes(0, bytes) };
        }
        return block;
    }
    let _busy = thread::enter_slow_path();
    poll();
    let slice = allocate_or_purge(bytes, align, zeroed);
    live::poll();
    match slice {
        Some(slice) => tables().map_or(null_mut(), |tables| tables.address(slice).as_ptr()),
        None => os::out_of_memory(),
    }
}

/// Allocates the slices of a block; if that fails, purges free memory and tries again.
pub fn allocate_or_purge(bytes: usize, align: usize, zeroed: bool) -> Option<u32> {
    if !is_possible(bytes, align) || !init::ready() {
        return None;
    }
    let attempt = || allocate_slices(bytes, align, zeroed);
    attempt().or_else(|| purge::retry(bytes, attempt))
}

/// Whether a block of `bytes` bytes at a multiple of `align` can exist.
///
/// `isize`, the difference of two pointers, must be able to express the size.
fn is_possible(bytes: usize, align: usize) -> bool {
    bytes <= isize::MAX as usize - SLICE && align <= isize::MAX as usize / 2
}

/// Allocates the slices of a block, for which [`is_possible`] must be true. `None` without memory.
fn allocate_slices(bytes: usize, align: usize, zeroed: bool) -> Option<u32> {
    let count = bytes.div_ceil(SLICE).max(1);
    let slice = page_heap::allocate(count, align, bytes)?;
    let tables = tables()?;
    let span = tables.span(slice);
    span.next.store(bytes.div_ceil(PAGE) as u32, Relaxed);
    backlog::adjust_purgeable(-(span.requested_bytes() as isize));
    if zeroed {
        page_heap::zero(tables, slice, 0, bytes);
    }
    Some(slice)
}

/// Frees null, a large block, a block of a first-class heap, or a block of the emergency pool.
#[cold]
#[inline(never)]
pub extern "C" fn free_any(block: *mut u8) {
    if block.is_null() || signal::free(block) || emergency::free(block) {
        return;
    }
    let _busy = thread::enter_slow_path();
    let is_large = free(block);
    purge::note_free();
    poll();
    live::poll();
    if is_large {
        purge::watch_backlog();
    }
}

/// Frees a large block or a block of a first-class heap; for any other address ends the process.
///
/// Returns `true` for a large block of the global heap.
fn free(block: *mut u8) -> bool {
    let Some(tables) = tables() else { fatal("a free of what was never allocated", block.addr()) };
    let slice = slice_of(tables, block);
    let span = tables.span(slice);
    if span.heap.load(Relaxed) != 0 {
        heaps::free(block, slice, span);
        return false;
    }
    track::freed(block, span.requested_bytes());
    backlog::adjust_purgeable(span.requested_bytes() as isize);
    if !slice_cache::put(tables, slice, span) {
        page_heap::free(slice, span.requested_bytes());
    }
    true
}

/// Returns the slice of a large block or of a first-class heap's block; for any other address ends the process.
fn slice_of(tables: &Tables, block: *mut u8) -> u32 {
    let slice = tables.slice_of(block.addr());
    slice.filter(|&slice| is_start(tables, slice, block)).unwrap_or_else(|| {
        fatal("a free or resize of what is no block: never allocated, or freed already", block.addr())
    })
}

/// Whether a large block, or a block of a first-class heap, may start at `block`: the class table has no entry for
/// either.
fn is_start(tables: &Tables, slice: u32, block: *mut u8) -> bool {
    let span = tables.span(slice);
    if span.heap.load(Relaxed) == CACHED {
        return false;
    }
    let in_span = usize::from(span.class.load(Relaxed)) != class::NONE && span.heap.load(Relaxed) != 0;
    span.block().is_some() && (in_span || tables.address(slice).as_ptr() == block)
}

/// Bytes that fit in a block: large, of a first-class heap, or of the emergency pool.
pub fn usable(block: *mut u8) -> usize {
    if let Some(bytes) = emergency::usable(block) {
        return bytes;
    }
    let Some(tables) = tables() else { fatal("a question about what was never allocated", block.addr()) };
    let span = tables.span(slice_of(tables, block));
    match usize::from(span.class.load(Relaxed)) {
        class::NONE => span.requested_bytes(),
        class => class::size(class),
    }
}

/// Copies from one large block to another.
///
/// Does not write a page of zeros over a page that already holds zeros, so that untouched pages of `to` take no memory.
///
/// # Safety
/// Both blocks must have at least `bytes` bytes, and no other thread may use them during the call.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let clean = |offset: usize| {
        let tables = tables()?;
        let slice = tables.slice_of(to.addr() + offset)?;
        Some(tables.pages(slice).load(Relaxed) >> ((to.addr() + offset) % SLICE / PAGE) & 1 == 0)
    };
    for offset in (0..bytes).step_by(PAGE) {
        let count = PAGE.min(bytes - offset);
        let source = from.wrapping_add(offset);
        if count == PAGE && clean(offset) == Some(true) {
            // SAFETY: a whole page of the old block, which starts at a slice; no thread writes to it during the copy.
            let page = unsafe { &*source.cast::<[[u64; 8]; PAGE / 64]>() };
            // Tests 64 bytes at a time: the compiler uses vector instructions, and the first line that is not zero ends
            // the loop.
            if page.iter().all(|line| line.iter().fold(0, |bits, word| bits | word) == 0) {
                continue;
            }
        }
        // SAFETY: both blocks hold `count` bytes from here on, and do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(source, to.wrapping_add(offset), count) };
    }
}

/// Resizes a large block in place or by moving its pages, and returns its address.
///
/// Keeps the contents up to the smaller size. Returns null and changes nothing if the caller must copy the block.
pub fn resize(block: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    if bytes <= class::LARGEST || !is_possible(bytes, align) || signal::is_in_handler() {
        return null_mut();
    }
    let _busy = thread::enter_slow_path();
    let Some(growth) = growth(block, bytes, align) else { return null_mut() };
    if !usage::claim(growth) && purge::retry(growth, || usage::claim(growth).then_some(())).is_none() {
        return null_mut();
    }
    let before = usable(block);
    let shrinks = bytes.next_multiple_of(PAGE) < before;
    // Before the old place can be another thread's. A block that stays as it is counts as allocated anew.
    let is_told = tables().is_some_and(|tables| tables.span(slice_of(tables, block)).heap.load(Relaxed) == 0);
    if is_told {
        track::freed(block, before);
    }
    let resized = resize_claimed(block, bytes, growth);
    match NonNull::new(resized) {
        _ if !is_told => {}
        Some(resized) => track::resized(resized.as_ptr(), usable(resized.as_ptr())),
        None => track::resized(block, before),
    }
    if !resized.is_null() && shrinks {
        purge::note_free();
    }
    live::poll();
    resized
}

/// Bytes that a large block must claim before it can hold `bytes` bytes. `None`: it must be copied to a new block.
fn growth(block: *mut u8, bytes: usize, align: usize) -> Option<usize> {
    if emergency::usable(block).is_some() || align > SLICE || !align.is_power_of_two() {
        return None;
    }
    let tables = tables()?;
    let span = tables.span(slice_of(tables, block));
    let is_large = usize::from(span.class.load(Relaxed)) == class::NONE;
    is_large.then(|| bytes.next_multiple_of(PAGE).saturating_sub(span.requested_bytes()))
}

/// Resizes a large block in place, or by moving its pages.
///
/// The caller must have claimed the block's [`growth`]. Null: the claim was released, the block is unchanged and must
/// be copied.
fn resize_claimed(block: *mut u8, bytes: usize, growth: usize) -> *mut u8 {
    let Some(tables) = tables() else { return null_mut() };
    let slice = slice_of(tables, block);
    let span = tables.span(slice);
    let (before, after) = (span.requested_bytes(), bytes.next_multiple_of(PAGE));
    // The program may have written to the whole block, also to the pages that a smaller size cuts off.
    bits::mark_dirty(tables, slice, before);
    let resized = if resize_in_place(tables, slice, before, after) {
        block
    } else if span.heap.load(Relaxed) == 0 {
        remap(tables, slice, after)
    } else {
        null_mut()
    };
    if resized.is_null() {
        usage::release(growth);
    } else {
        backlog::adjust_purgeable(before as isize - after as isize);
    }
    resized
}

/// Resizes a block from `before` to `after` bytes in place, both multiples of a page. `false`: no room behind the
/// block.
fn resize_in_place(tables: &Tables, slice: u32, before: usize, after: usize) -> bool {
    let (span, count) = (tables.span(slice), after.div_ceil(SLICE));
    let has_them = span.block().is_some_and(|block| count == block.bytes as usize / SLICE);
    if !has_them && !page_heap::resize(slice, count, before) {
        return false;
    }
    span.next.store((after / PAGE) as u32, Relaxed);
    usage::release(before.saturating_sub(after));
    usage::add_dirty(bits::clean_bytes(tables, slice, after));
    page_heap::enforce_limit(tables, None);
    true
}

/// Takes `count` slices for a block that is growing, where half as many more are free behind them: the block will
/// probably grow again, into those that stay free. The caller must have claimed the bytes that the block uses.
fn take_growing(tables: &Tables, count: usize) -> Option<u32> {
    let Some(to) = page_heap::take_slices(tables, count + count / 2, SLICE) else {
        return page_heap::take_slices(tables, count, SLICE);
    };
    page_heap::resize(to, count, 0);
    Some(to)
}

/// Moves the pages of a block that must grow to `after` bytes, a multiple of a page. The caller must have claimed the
/// bytes that the block grows by; its old bytes stay claimed.
fn remap(tables: &Tables, slice: u32, after: usize) -> *mut u8 {
    let held = tables.span(slice).requested_bytes();
    if held < LEAST_REMAP || !bits::may_remap() {
        return null_mut();
    }
    let count = after.div_ceil(SLICE);
    let Some(to) = take_growing(tables, count) else { return null_mut() };
    let (source, target) = (tables.address(slice), tables.address(to));
    let moved = held.next_multiple_of(process::page_bytes());
    // SAFETY: both blocks are ours and have at least `moved` bytes; the new one has no contents yet.
    let os::Relocation::Moved { restored } = (unsafe { os::relocate(source, target, moved) }) else {
        // This kernel cannot move pages: no block is moved from now on. The new slices may be unmapped, so they are
        // never reused.
        bits::stop_remapping();
        return null_mut();
    };
    tables.span(to).next.store((after / PAGE) as u32, Relaxed);
    // Where the system's pages exceed 4 KiB, `mremap` also moves bytes behind the requested ones.
    usage::add_dirty(bits::clean_bytes(tables, to, usize::max(after, moved)));
    bits::mark_dirty(tables, to, moved);
    usage::sub_purged(moved - bits::clean_bytes(tables, slice, moved));
    bits::mark_remapped(tables, slice, to);
    // At the old address the moved pages now read as zeros; pages behind them are unchanged.
    for (at, pages) in tables.dirty[slice as usize..].iter().take(moved.div_ceil(SLICE)).enumerate() {
        pages.fetch_and(!bits::pages_below(moved - at * SLICE), Relaxed);
    }
    // `false`: another thread of the program mapped something over the old slices, which are then never used again.
    if restored {
        page_heap::free(slice, 0);
    } else {
        // Marks the slices as no block, so that a second free of the old address is detected.
        tables.span(slice).heap.store(CACHED, Relaxed);
    }
    page_heap::enforce_limit(tables, Some((to, count, after)));
    NonNull::as_ptr(target)
}
