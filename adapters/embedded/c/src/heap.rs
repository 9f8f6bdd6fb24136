//! The one heap of the library.
//!
//! Promises upward: the lock is held for one bounded operation at a time, but for the copy of a block that `realloc` moves.
//! Asks from below: a `HeaderHeap` for each region, and the program's lock.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use embedded::{HeaderHeap, HeapConfig, HeapCounters, Locked, LowWaterMark, MemoryCaps, Records as _, RegionSet};

use crate::lock::ProgramLock;
use crate::malloc::{Config, HEADER};

/// The most regions: for internal, closely coupled, retained and external RAM.
const REGIONS: usize = 4;

/// The hook for failed requests, called with the size and alignment requested; not 0: try again.
pub type OutOfMemoryHook = extern "C" fn(bytes: usize, align: usize) -> c_int;
/// The hook for refused frees and resizes, called with the pointer.
pub type BadFreeHook = extern "C" fn(block: *mut c_void);

/// What a request needs, and what else will do; equal: nothing else will. `None`: the heap's preference.
pub type Want = Option<[MemoryCaps; 2]>;

/// The state behind the lock.
#[derive(Debug)]
pub struct State {
    pub regions: RegionSet<HeaderHeap<Config>, REGIONS>,
    pub counters: HeapCounters,
    /// What a request needs that does not say so.
    pub preference: [MemoryCaps; 2],
    /// `None` also while the hook runs, so that it is not called again from inside.
    pub out_of_memory: Option<OutOfMemoryHook>,
    pub bad_free: Option<BadFreeHook>,
}

static HEAP: Locked<ProgramLock, State> = Locked::new(State {
    regions: RegionSet::EMPTY,
    counters: HeapCounters::ZERO,
    preference: [MemoryCaps::ANY; 2],
    out_of_memory: None,
    bad_free: None,
});

/// Runs `run` while holding the lock. It must call no hook of the program.
#[inline(always)]
pub fn locked<R>(run: impl FnOnce(&mut State) -> R) -> R {
    // SAFETY: the closures of this library call neither `locked` nor hooks.
    unsafe { HEAP.with(run) }
}

/// Makes an attempt; while it fails, runs the hook and makes another.
///
/// Stops when the hook returns 0, or when memory use did not fall while it ran.
/// `LockedHeap::allocate_slow` does the same, and completes deferred frees as well.
pub fn attempt_with_hook<R>(bytes: usize, align: usize, attempt: impl Fn(&mut State) -> Option<R>) -> Option<R> {
    let (mut found, mut low_water) = locked(|state| (attempt(state), state.low_water()));
    while found.is_none() {
        let hook = locked(|state| state.out_of_memory.take());
        let again = hook.is_some_and(|hook| hook(bytes, align) != 0);
        let tried;
        (tried, found) = locked(|state| {
            state.out_of_memory = state.out_of_memory.or(hook);
            let again = low_water.lowered(state.low_water()) && again;
            (again, if again { attempt(state) } else { None })
        });
        if !tried {
            locked(|state| state.counters.failures = state.counters.failures.wrapping_add(1));
            return None;
        }
    }
    found
}

/// Allocates a block; its alignment must be a power of two.
pub fn allocate(bytes: usize, align: usize, want: Want) -> Option<NonNull<u8>> {
    attempt_with_hook(bytes, align, |state| {
        let block = state.allocate(bytes, align, want)?;
        state.counters.allocated(bytes, held(bytes, align.max(HEADER)));
        Some(block)
    })
}

/// Frees a block; does nothing for null. Refuses a size other than the block's.
///
/// # Safety
/// `block` must be null, or a live block that is used no more.
pub unsafe fn free(block: *mut c_void, bytes: Option<usize>) {
    let Some(found) = NonNull::new(block.cast::<u8>()) else { return };
    let freed = locked(|state| {
        let (size, lead) = state.header(found)?;
        bytes.is_none_or(|bytes| bytes == size).then_some(())?;
        // SAFETY: the caller's promise.
        unsafe { state.heap_of(found)?.free(found) }.ok()?;
        state.counters.freed(size, held(size, lead));
        Some(())
    });
    if freed.is_none() {
        report_bad_free(found);
    }
}

/// Resizes a block: in its region, or where `want` leads. `None`: no room, or refused; the block is unchanged.
///
/// # Safety
/// `block` must be live. If a block is returned, only that may be used afterwards.
pub unsafe fn resize(block: NonNull<u8>, bytes: usize, want: Want) -> Option<NonNull<u8>> {
    let resized = attempt_with_hook(bytes, HEADER, |state| {
        let Some((size, lead)) = state.header(block) else { return Some(None) };
        // SAFETY: the caller's promise.
        let Some(new) = (unsafe { state.resize(block, size, bytes, lead, want) }) else { return Some(None) };
        if new.is_some() {
            state.counters.resized([size, bytes], [size, bytes].map(|bytes| held(bytes, lead)));
        }
        new.map(Some)
    })?;
    if resized.is_none() {
        report_bad_free(block);
    }
    resized
}

/// Counts a refusal and runs the hook for it.
fn report_bad_free(block: NonNull<u8>) {
    let hook = locked(|state| {
        state.counters.refused = state.counters.refused.wrapping_add(1);
        state.bad_free
    });
    if let Some(hook) = hook {
        hook(block.as_ptr().cast());
    }
}

/// Bytes of the heap's block around a caller's, in whole granules.
fn held(bytes: usize, lead: usize) -> usize {
    (lead + bytes).next_multiple_of(1 << <Config as HeapConfig>::Records::GRANULE)
}

impl State {
    /// Allocates a block, uncounted, in a region that suits.
    fn allocate(&mut self, bytes: usize, align: usize, want: Want) -> Option<NonNull<u8>> {
        let [first, fallback] = want.unwrap_or(self.preference);
        let want = [first, fallback];
        let want = if first == fallback { &want[..1] } else { &want };
        self.regions.first_of(Some(want), |heap| heap.allocate(bytes, align))
    }

    /// Resizes a block, uncounted. `None`: refused. `Some(None)`: no room.
    ///
    /// # Safety
    /// `block` must be live, with this header. If a block is returned, only that may be used afterwards.
    unsafe fn resize(
        &mut self,
        block: NonNull<u8>,
        size: usize,
        bytes: usize,
        lead: usize,
        want: Want,
    ) -> Option<Option<NonNull<u8>>> {
        // SAFETY: the caller's promise.
        let here = unsafe { self.heap_of(block)?.reallocate(block, bytes) }.ok()?;
        if here.is_some() {
            return Some(here);
        }
        let Some(moved) = self.allocate(bytes, lead, want) else { return Some(None) };
        // SAFETY: two live blocks do not overlap, and the new one is larger: `reallocate` shrinks in place.
        unsafe { moved.copy_from_nonoverlapping(block, size) };
        // SAFETY: the caller's promise; the bytes were copied.
        unsafe { self.heap_of(block)?.free(block) }.ok()?;
        Some(Some(moved))
    }

    /// The region of a block, which is that of its header: a block of no bytes may begin where its region ends.
    fn heap_of(&mut self, block: NonNull<u8>) -> Option<&mut HeaderHeap<Config>> {
        self.regions.of(header_of(block)?).ok()
    }

    /// Size and lead of what may be a block: it is aligned as every block, and it and its header lie in a region.
    ///
    /// A block of no bytes may begin where its region ends.
    fn header(&mut self, block: NonNull<u8>) -> Option<(usize, usize)> {
        if !block.addr().get().is_multiple_of(HEADER) {
            return None;
        }
        let heap = self.heap_of(block)?;
        // A region may end inside what looks like a header.
        if !heap.contains(NonNull::new(block.as_ptr().wrapping_sub(1))?) {
            return None;
        }
        // SAFETY: the header lies in the heap's memory, as `heap_of` found.
        let size = unsafe { heap.size_of(block) };
        // `HeaderHeap` has the lead in the word before the block; the C test of a block that changes its region holds it to that.
        let lead = block.as_ptr().cast::<usize>().wrapping_sub(1);
        // SAFETY: the word is the second of the header, which lies in the heap's memory.
        let lead = unsafe { lead.read() };
        (heap.contains(block) || size == 0).then_some((size, lead))
    }

    /// The memory use now, to compare with after a hook ran.
    fn low_water(&self) -> LowWaterMark {
        LowWaterMark::new(&self.counters, self.regions.count())
    }
}

/// The address of a block's header.
fn header_of(block: NonNull<u8>) -> Option<NonNull<u8>> {
    NonNull::new(block.as_ptr().wrapping_sub(HEADER))
}
