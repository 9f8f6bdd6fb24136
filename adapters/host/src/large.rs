//! Large blocks: whole slices from the ground, grown in place where there is room, moved by page tables where there is none.
//!
//! Promises upward: [`allocate`], [`resize`] and [`free_any`] in O(log gaps) and, for zeroed blocks, the pages that are known
//! to hold something. Asks from below: [`ground`]; the bits of pages.

use crate::bits;
use crate::class::{self, PAGE, SLICE};
use crate::report::fatal;
use crate::tables::{Span, Tables, tables};
use crate::{emergency, page_heap, heap, os, purge, signal, slow_path, init, thread, usage};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use terrace_core::Exchange;
use terrace_core::sync::{AtomicU32, AtomicUsize as Word};

/// Least size that is moved by page tables: 64 pages. Copying fewer costs less than the two system calls' worth of faults.
const LEAST_REMAP: usize = 256 << 10;

/// A block of `bytes` bytes at a multiple of `align`. Null when there is no memory, or `align` is no power of two.
#[cold]
#[inline(never)]
pub extern "C" fn allocate(bytes: usize, align: usize, zeroed: bool) -> *mut u8 {
    if !align.is_power_of_two() {
        return slow_path::out_of_memory();
    }
    if let Some(block) = signal::allocate(bytes, align) {
        if zeroed && !block.is_null() {
            // SAFETY: a block of at least so many bytes.
            unsafe { block.write_bytes(0, bytes) };
        }
        return block;
    }
    let _busy = thread::enter_slow_path();
    purge::poll();
    match allocate_slices(bytes, align, zeroed) {
        Some(slice) => tables().map_or(core::ptr::null_mut(), |tables| tables.address(slice).as_ptr()),
        None => slow_path::out_of_memory(),
    }
}

/// The slices of a block.
pub fn allocate_slices(bytes: usize, align: usize, zeroed: bool) -> Option<u32> {
    // What no pointer difference can span is no object.
    if bytes > isize::MAX as usize - SLICE || align > isize::MAX as usize / 2 || !init::ready() {
        return None;
    }
    let count = bytes.div_ceil(SLICE).max(1);
    let slice = take_cached(count, align, bytes)
        .or_else(|| page_heap::allocate(count, align, bytes))
        .or_else(|| purge::retry(bytes, || page_heap::allocate(count, align, bytes)))?;
    let tables = tables()?;
    let span = tables.span(slice);
    span.class.store(class::NONE as u8, Relaxed);
    span.heap.store(0, Relaxed);
    span.next.store(bytes.div_ceil(PAGE) as u32, Relaxed);
    purge::adjust_purgeable(-(requested_bytes(span) as isize));
    if zeroed {
        zero(tables, slice, 0, bytes);
    }
    Some(slice)
}

/// Clears what may hold something of the bytes from `from` to before `to` of a large block.
pub fn zero(tables: &Tables, slice: u32, from: usize, to: usize) {
    let mut page = from / PAGE;
    while page * PAGE < to {
        let dirty = tables.pages(slice + (page / 16) as u32).load(Relaxed);
        if dirty >> (page % 16) & 1 != 0 {
            let start = from.max(page * PAGE);
            let bytes = to.min((page + 1) * PAGE) - start;
            // SAFETY: inside the block, which is not handed out yet.
            let at = unsafe { tables.address(slice).add(start) };
            // SAFETY: see above.
            unsafe { at.write_bytes(0, bytes) };
        }
        page += 1;
    }
}

/// Copies from one large block to another. Pages of zeros are not written where zeros are: a block that was hardly touched
/// stays so.
///
/// # Safety
/// Both hold at least `bytes` bytes, and neither is used by anybody else.
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
            // SAFETY: a page of the old block, which starts at a slice and which nobody writes to meanwhile.
            let page = unsafe { &*source.cast::<[[u64; 8]; PAGE / 64]>() };
            // A line at a time: vectors, and an early end.
            if page.iter().all(|line| line.iter().fold(0, |bits, word| bits | word) == 0) {
                continue;
            }
        }
        // SAFETY: so many bytes of both blocks, which do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(source, to.wrapping_add(offset), count) };
    }
}

/// Bytes that were asked for, in whole pages.
fn requested_bytes(span: &Span) -> usize {
    span.next.load(Relaxed) as usize * PAGE
}

/// The slice of a large block, or of a block of a heap; everything else ends the process.
fn slice_of(tables: &Tables, block: *mut u8) -> u32 {
    let slice = tables.slice_of(block.addr());
    slice.filter(|&slice| is_start(tables, slice, block)).unwrap_or_else(|| {
        fatal("a free or resize of what is no block: never allocated, or freed already", block.addr())
    })
}

/// Whether a block that the classes table does not know starts at an address.
fn is_start(tables: &Tables, slice: u32, block: *mut u8) -> bool {
    let span = tables.span(slice);
    if span.heap.load(Relaxed) == CACHED {
        return false;
    }
    let in_span = usize::from(span.class.load(Relaxed)) != class::NONE && span.heap.load(Relaxed) != 0;
    span.block().is_some() && (in_span || tables.address(slice).as_ptr() == block)
}

/// Takes any block back: null, large ones, those of heaps, and those from the reserve for signal handlers.
#[cold]
#[inline(never)]
pub extern "C" fn free_any(block: *mut u8) {
    if block.is_null() || signal::free(block) || emergency::free(block) {
        return;
    }
    let _busy = thread::enter_slow_path();
    let Some(tables) = tables() else { fatal("a free of what was never allocated", block.addr()) };
    let slice = slice_of(tables, block);
    let span = tables.span(slice);
    if span.heap.load(Relaxed) != 0 {
        return heap::free(block, slice, span);
    }
    purge::adjust_purgeable(requested_bytes(span) as isize);
    if !put_cached(tables, slice, span) {
        page_heap::free(slice, requested_bytes(span));
    }
    purge::note_free();
    purge::poll();
    purge::watch_backlog();
}

/// Blocks of up to 16 slices, 1 MiB, that were freed last: two of each number of slices wait for the next request of that
/// many, which costs a tenth of what the ground does. A tick empties it.
const CACHED_SLICES: usize = 16;
const EACH: usize = 2;
static STATES: [[AtomicU32; EACH]; CACHED_SLICES] = [const { [const { AtomicU32::new(0) }; EACH] }; CACHED_SLICES];
static SLICES: [[Word; EACH]; CACHED_SLICES] = [const { [const { Word::new(0) }; EACH] }; CACHED_SLICES];

fn exchange(count: usize) -> Option<Exchange<'static>> {
    let at = count.checked_sub(1)?;
    Some(Exchange::new(STATES.get(at)?, SLICES.get(at)?))
}

/// Puts a block aside; what its pages hold is what it asked for.
fn put_cached(tables: &Tables, slice: u32, span: &Span) -> bool {
    let count = span.block().map_or(0, |name| name.bytes as usize / SLICE);
    let Some(exchange) = exchange(count) else { return false };
    bits::mark_dirty(tables, slice, requested_bytes(span));
    // No block any more: a second free is found out.
    span.heap.store(CACHED, Relaxed);
    usage::release(requested_bytes(span));
    if !exchange.give(&[slice as usize]) {
        page_heap::free(slice, 0);
    }
    true
}

/// A block put aside of exactly so many slices, of which `bytes` will be used.
fn take_cached(count: usize, align: usize, bytes: usize) -> Option<u32> {
    let slice = if align <= SLICE { pop_cached(count)? } else { return None };
    let bytes = bytes.next_multiple_of(PAGE);
    if !usage::claim(bytes) {
        page_heap::free(slice, 0);
        return None;
    }
    let tables = tables()?;
    let fresh = bits::clean_bytes(tables, slice, bytes);
    usage::add_dirty(fresh);
    page_heap::enforce_limit(tables, Some((slice, count, bytes)));
    Some(slice)
}

/// The slices of a block put aside.
fn pop_cached(count: usize) -> Option<u32> {
    let mut slice = [0];
    exchange(count)?.take(&mut slice)?;
    Some(slice[0] as u32)
}

/// Gives what was put aside to the ground.
pub fn flush_cached() {
    for count in 1..=CACHED_SLICES {
        while let Some(slice) = pop_cached(count) {
            page_heap::free(slice, 0);
        }
    }
}

/// Before a fork: see [`Exchange::close`].
pub fn close() {
    (1..=CACHED_SLICES).filter_map(exchange).for_each(|exchange| exchange.close(|slice| page_heap::free(slice as u32, 0)));
}

/// After it.
pub fn open() {
    (1..=CACHED_SLICES).filter_map(exchange).for_each(|exchange| exchange.open());
}

/// The heap of blocks that wait here: none.
pub const CACHED: u16 = u16::MAX;

/// Bytes that a block holds, large or of a heap or of the reserve.
pub fn usable(block: *mut u8) -> usize {
    if let Some(bytes) = emergency::usable(block) {
        return bytes;
    }
    let Some(tables) = tables() else { fatal("a question about what was never allocated", block.addr()) };
    let span = tables.span(slice_of(tables, block));
    match usize::from(span.class.load(Relaxed)) {
        class::NONE => requested_bytes(span),
        class => class::size(class),
    }
}

/// Makes a large block `bytes` long where it lies, or by moving its pages: its new address, with the old contents up to the
/// smaller size. Null, and nothing changed: it must be copied.
pub fn resize(block: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    let Some(tables) = tables().filter(|_| bytes > class::LARGEST && bytes <= isize::MAX as usize - SLICE) else {
        return core::ptr::null_mut();
    };
    if emergency::usable(block).is_some() || align > SLICE || !align.is_power_of_two() || signal::is_in_handler() {
        return core::ptr::null_mut();
    }
    let _busy = thread::enter_slow_path();
    let slice = slice_of(tables, block);
    let span = tables.span(slice);
    if usize::from(span.class.load(Relaxed)) != class::NONE {
        return core::ptr::null_mut();
    }
    let (before, after) = (requested_bytes(span), bytes.next_multiple_of(PAGE));
    let more = after.saturating_sub(before);
    if !usage::claim(more) && purge::retry(more, || usage::claim(more).then_some(())).is_none() {
        return core::ptr::null_mut();
    }
    // All that it holds may have been written to, also what it will hold no longer.
    bits::mark_dirty(tables, slice, before);
    let resized = if resize_in_place(tables, slice, before, after) {
        block
    } else if span.heap.load(Relaxed) == 0 {
        remap(tables, slice, after)
    } else {
        core::ptr::null_mut()
    };
    if resized.is_null() {
        usage::release(more);
        return resized;
    }
    purge::adjust_purgeable(before as isize - after as isize);
    if after < before {
        purge::note_free();
    }
    resized
}

/// Makes a block of `before` bytes one of `after`, both whole pages, where it lies. `false`: there is no room behind it.
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

/// Slices for a block that grows, and will again: half as many more lie free behind them, as long as no other block needs
/// them. The caller has claimed what the block uses.
fn take_growing(tables: &Tables, count: usize) -> Option<u32> {
    let Some(to) = page_heap::take_slices(tables, count + count / 2, SLICE) else { return page_heap::take_slices(tables, count, SLICE) };
    page_heap::resize(to, count, 0);
    Some(to)
}

/// Moves the pages of a block that must grow to `after` bytes, whole pages, to where there is room. Of the new bytes the caller
/// has claimed those that the block grows by: the others move along.
fn remap(tables: &Tables, slice: u32, after: usize) -> *mut u8 {
    let held = requested_bytes(tables.span(slice));
    if held < LEAST_REMAP || !bits::may_remap() {
        return core::ptr::null_mut();
    }
    let count = after.div_ceil(SLICE);
    let Some(to) = take_growing(tables, count) else { return core::ptr::null_mut() };
    let (source, target) = (tables.address(slice), tables.address(to));
    let moved = held.next_multiple_of(init::page_bytes());
    // SAFETY: both are blocks of ours, at least so long; nobody needs what the new one holds.
    let os::Relocation::Moved { restored } = (unsafe { os::relocate(source, target, moved) }) else {
        // The new slices stay out for ever, and nothing is moved from now on: this kernel cannot.
        bits::stop_remapping();
        return core::ptr::null_mut();
    };
    tables.span(to).next.store((after / PAGE) as u32, Relaxed);
    // Pages larger than ours take some along that were not asked for.
    usage::add_dirty(bits::clean_bytes(tables, to, usize::max(after, moved)));
    bits::mark_dirty(tables, to, moved);
    usage::sub_purged(moved - bits::clean_bytes(tables, slice, moved));
    bits::mark_remapped(tables, slice, to);
    // What was moved is zero there again; pages behind it are as they were.
    for (at, pages) in tables.dirty[slice as usize..].iter().take(moved.div_ceil(SLICE)).enumerate() {
        pages.fetch_and(!bits::pages_below(moved - at * SLICE), Relaxed);
    }
    // Slices that somebody else has mapped are his: they stay out for ever.
    if restored {
        page_heap::free(slice, 0);
    } else {
        // No block any more, for whoever frees it once more.
        tables.span(slice).heap.store(CACHED, Relaxed);
    }
    page_heap::enforce_limit(tables, Some((to, count, after)));
    NonNull::as_ptr(target)
}
