//! The emergency pool: a few blocks for calls that must take no lock and touch no cache, because they interrupted one that
//! does.
//!
//! Promises upward: [`allocate`] and [`free`] wait for no other thread (the core's lock-free [`Pool`]), so that a signal
//! handler may allocate while its thread is in a slow path. Blocks up to 32 KiB come from 2 MiB of addresses; larger ones, and
//! those that the pool has none left for, are mappings of their own, 256 at a time.
//! Asks from below: slices of the page heap, once; [`os::map`].

use crate::class::{PAGE, SLICE};
use crate::report::fatal;
use crate::tables::tables;
use crate::{os, page_heap};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terrace_core::Violation;
use terrace_core::pool::Pool;
use terrace_core::sync::AtomicUsize;

/// Sizes: 64 bytes, 128, ... 32768, the largest first, so that each begins at a multiple of itself or of a page.
const SIZES: usize = 10;
/// Blocks of each size.
const BLOCKS: u32 = 32;
/// log2 of the largest.
const LARGEST: usize = 15;
/// Bytes of all blocks: 32 * (32768 + 16384 + ... + 64) = 32 * (65536 - 64).
const BYTES: usize = BLOCKS as usize * ((2 << LARGEST) - 64);

static WORDS: [[AtomicUsize; Pool::words(BLOCKS)]; SIZES] =
    [const { [const { AtomicUsize::new(0) }; Pool::words(BLOCKS)] }; SIZES];
/// The address of the blocks.
static MEMORY: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The pool of a size (0: the largest), and the offset of its blocks.
fn pool(size: usize) -> Option<(Pool<'static>, usize)> {
    // The sizes before it are 32 * (65536 - 2 * this size) bytes.
    let start = BLOCKS as usize * ((2 << LARGEST) - (2 << (LARGEST - size)));
    Some((Pool::new(WORDS.get(size)?, BLOCKS).ok()?, start))
}

/// Takes the pool's slices, once: 32, of which nothing is touched.
pub fn init() {
    if let (Some(slice), Some(tables)) = (page_heap::allocate(BYTES.div_ceil(SLICE), SLICE, 0), tables()) {
        MEMORY.store(tables.address(slice).as_ptr(), Release);
    }
}

fn memory() -> Option<NonNull<u8>> {
    NonNull::new(MEMORY.load(Acquire))
}

/// Mappings of their own: address, and bytes. An address of 1: being mapped or unmapped.
static MAPPINGS: [(AtomicUsize, AtomicUsize); 256] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 256];

/// Allocates a block at a multiple of `align`; null when there is none.
///
/// Blocks of the pools lie at multiples of their size.
pub fn allocate(bytes: usize, align: usize) -> *mut u8 {
    let needed = bytes.max(align).max(64);
    let Some(memory) = memory().filter(|_| needed <= 1 << LARGEST) else { return map(bytes, align) };
    // From the size that fits up to the largest.
    let fitting = LARGEST - needed.next_power_of_two().trailing_zeros() as usize;
    let found = (0..=fitting).rev().find_map(|size| {
        let (pool, start) = pool(size)?;
        pool.acquire().map(|block| start + block as usize * (1 << (LARGEST - size)))
    });
    found.map_or_else(|| map(bytes, align), |offset| memory.as_ptr().wrapping_add(offset))
}

/// Maps a block of its own, at a page.
fn map(bytes: usize, align: usize) -> *mut u8 {
    if align > PAGE {
        return null_mut();
    }
    let free = |(address, _): &&(AtomicUsize, AtomicUsize)| address.compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
    let Some(bytes) = bytes.checked_next_multiple_of(crate::class::SLICE) else { return null_mut() };
    let Some((address, length)) = MAPPINGS.iter().find(free) else { return null_mut() };
    USED.store(true, Relaxed);
    let mapped = os::map(bytes);
    length.store(bytes, Relaxed);
    address.store(mapped.map_or(0, |mapped| mapped.addr().get()), Release);
    mapped.map_or(null_mut(), NonNull::as_ptr)
}

/// Whether there ever was a mapping: hardly any program needs one, and every free of a large block asks.
static USED: AtomicBool = AtomicBool::new(false);

/// The mapping of a block.
fn mapping(block: *mut u8) -> Option<&'static (AtomicUsize, AtomicUsize)> {
    if !USED.load(Relaxed) {
        return None;
    }
    MAPPINGS.iter().find(|(address, _)| address.load(Acquire) == block.addr())
}

/// The size and the index of a block of the pool.
fn locate(block: *mut u8) -> Option<(usize, u32)> {
    let memory = memory()?;
    let offset = block.addr().wrapping_sub(memory.addr().get());
    let holds = |size: &usize| pool(*size).is_some_and(|(_, start)| offset >= start);
    let size = (0..SIZES).rev().find(holds).filter(|_| offset < BYTES)?;
    let (_, start) = pool(size)?;
    let inside = (offset - start) & ((1 << (LARGEST - size)) - 1);
    if inside != 0 {
        fatal("a free of an address inside a block", block.addr());
    }
    Some((size, ((offset - start) >> (LARGEST - size)) as u32))
}

/// Bytes of a block of the pool or a mapping; `None`: it is neither.
pub fn usable(block: *mut u8) -> Option<usize> {
    match locate(block) {
        Some((size, _)) => Some(1 << (LARGEST - size)),
        None => mapping(block).map(|(_, length)| length.load(Relaxed)),
    }
}

/// Frees a block of the pool or a mapping; `false`: it is neither.
pub fn free(block: *mut u8) -> bool {
    if let Some((size, index)) = locate(block) {
        if pool(size).is_some_and(|(pool, _)| pool.release(index).is_err()) {
            fatal("a block was freed twice", block.addr());
        }
        return true;
    }
    let (Some((address, length)), Some(at)) = (mapping(block), NonNull::new(block)) else { return false };
    let length = length.load(Relaxed);
    // The thread that clears the address unmaps the block.
    if address.compare_exchange(block.addr(), 1, Acquire, Relaxed).is_ok() {
        // SAFETY: mapped by `map`, and freed by its holder.
        unsafe { os::unmap(at, length) };
        address.store(0, Release);
    }
    true
}

/// Checks the pool of every size.
///
/// # Errors
/// A bit that no block has.
pub fn check() -> Result<(), Violation> {
    (0..SIZES).filter_map(pool).try_for_each(|(pool, _)| pool.check())
}
