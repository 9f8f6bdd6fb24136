//! The emergency pool: a few blocks for signal handlers that interrupted a slow path, and so must take no lock and
//! touch no cache.
//!
//! Promises upward: [`allocate`] and [`free`] wait for no other thread (the core's lock-free [`Pool`]), so that a
//! signal handler may allocate while its thread is in a slow path. Blocks up to 32 KiB come from 2 MiB of addresses; a
//! larger block, or one of a size whose pools are used up, is mapped on its own, at most 256 at a time.
//! Asks from below: slices of the page heap, taken once; [`os::map`].

use crate::class::{PAGE, SLICE};
use crate::report::fatal;
use crate::tables::tables;
use crate::{os, page_heap};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terrace_core::Violation;
use terrace_core::pool::Pool;
use terrace_core::sync::AtomicUsize;

/// Number of block sizes: 32768 bytes, 16384, ... 64. The largest come first, so every block lies at a multiple of its
/// size.
const SIZES: usize = 10;
/// Number of blocks of each size.
const BLOCKS: u32 = 32;
/// log2 of the largest block size.
const LARGEST: usize = 15;
/// Bytes of all blocks: 32 * (32768 + 16384 + ... + 64) = 32 * (65536 - 64).
const BYTES: usize = BLOCKS as usize * ((2 << LARGEST) - 64);

static WORDS: [[AtomicUsize; Pool::words(BLOCKS)]; SIZES] =
    [const { [const { AtomicUsize::new(0) }; Pool::words(BLOCKS)] }; SIZES];
/// The first address of the pool's blocks; null before [`init`].
static MEMORY: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The pool of one block size, by its index (0: the largest), and the offset of its first block in the pool's memory.
fn pool(size: usize) -> Option<(Pool<'static>, usize)> {
    // The blocks of larger sizes lie in front and take 32 * (65536 - 2 * block size) bytes.
    let start = BLOCKS as usize * ((2 << LARGEST) - (2 << (LARGEST - size)));
    Some((Pool::new(WORDS.get(size)?, BLOCKS).ok()?, start))
}

/// Allocates the pool's 32 slices, once; touches none of their pages.
pub fn init() {
    if let (Some(slice), Some(tables)) = (page_heap::allocate(BYTES.div_ceil(SLICE), SLICE, 0), tables()) {
        MEMORY.store(tables.address(slice).as_ptr(), Release);
    }
}

fn memory() -> Option<NonNull<u8>> {
    NonNull::new(MEMORY.load(Acquire))
}

/// Blocks mapped on their own: address and bytes. Address 0: the entry is free; 1: a thread is mapping or unmapping its
/// block.
static MAPPINGS: [(AtomicUsize, AtomicUsize); 256] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 256];

/// Allocates a block at a multiple of `align`; null if the pool and the mappings are used up.
///
/// A mapped block lies at a multiple of a page only; for a larger `align` the result is null.
pub fn allocate(bytes: usize, align: usize) -> *mut u8 {
    let needed = bytes.max(align).max(64);
    let Some(memory) = memory().filter(|_| needed <= 1 << LARGEST) else { return map(bytes, align) };
    // Tries the smallest size that fits first, then each larger one.
    let fitting = LARGEST - needed.next_power_of_two().trailing_zeros() as usize;
    let found = (0..=fitting).rev().find_map(|size| {
        let (pool, start) = pool(size)?;
        pool.acquire().map(|block| start + block as usize * (1 << (LARGEST - size)))
    });
    found.map_or_else(|| map(bytes, align), |offset| memory.as_ptr().wrapping_add(offset))
}

/// Maps memory for one block, at a multiple of a page.
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

/// Whether a block was ever mapped on its own. Few programs need one; others skip the search at each free of a large
/// block.
static USED: AtomicBool = AtomicBool::new(false);

/// The entry of a block that was mapped on its own.
fn mapping(block: *mut u8) -> Option<&'static (AtomicUsize, AtomicUsize)> {
    if !USED.load(Relaxed) {
        return None;
    }
    MAPPINGS.iter().find(|(address, _)| address.load(Acquire) == block.addr())
}

/// The index of a block's size, and the index of the block in the pool of that size.
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

/// Bytes that fit in a block of the pool or a block mapped on its own; `None`: `block` is neither.
pub fn usable(block: *mut u8) -> Option<usize> {
    match locate(block) {
        Some((size, _)) => Some(1 << (LARGEST - size)),
        None => mapping(block).map(|(_, length)| length.load(Relaxed)),
    }
}

/// Frees a block of the pool or a block mapped on its own; `false`: `block` is neither.
pub fn free(block: *mut u8) -> bool {
    if let Some((size, index)) = locate(block) {
        if pool(size).is_some_and(|(pool, _)| pool.release(index).is_err()) {
            fatal("a block was freed twice", block.addr());
        }
        return true;
    }
    let (Some((address, length)), Some(at)) = (mapping(block), NonNull::new(block)) else { return false };
    let length = length.load(Relaxed);
    // Of two threads that free the block, the one whose exchange succeeds unmaps it.
    if address.compare_exchange(block.addr(), 1, Acquire, Relaxed).is_ok() {
        // SAFETY: `map` mapped these bytes, and the program has freed them.
        unsafe { os::unmap(at, length) };
        address.store(0, Release);
    }
    true
}

/// Checks the pool of every size.
///
/// # Errors
/// A pool has a bit set that belongs to no block.
pub fn check() -> Result<(), Violation> {
    (0..SIZES).filter_map(pool).try_for_each(|(pool, _)| pool.check())
}
