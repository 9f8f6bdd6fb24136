//! The one heap of the library.
//!
//! Promises upward: the lock is held for one bounded operation at a time, but for the copy of a block that `realloc` moves.
//! Asks from below: `HeaderHeap` and the program's lock.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use embedded::{Fast, HeaderHeap, HeapCounters, Locked, LowWaterMark};

use crate::lock::ProgramLock;

#[cfg(feature = "checked")]
type Config = embedded::Checked<Fast>;
#[cfg(not(feature = "checked"))]
type Config = Fast;

/// The most regions: for internal, closely coupled, retained and external RAM.
const REGIONS: usize = 4;

/// Bytes of the header in front of a block: two words. Also the least alignment of a block.
pub const HEADER: usize = 2 * size_of::<usize>();

/// The hook for failed requests, called with the size and alignment requested; not 0: try again.
pub type OutOfMemoryHook = extern "C" fn(bytes: usize, align: usize) -> c_int;
/// The hook for refused frees and resizes, called with the pointer.
pub type BadFreeHook = extern "C" fn(block: *mut c_void);

/// The state behind the lock.
#[derive(Debug)]
pub struct State {
    pub heap: HeaderHeap<Config, REGIONS>,
    pub counters: HeapCounters,
    /// Regions added so far. A new one may let a request succeed that failed before.
    pub regions: usize,
    /// `None` also while the hook runs, so that it is not called again from inside.
    pub out_of_memory: Option<OutOfMemoryHook>,
    pub bad_free: Option<BadFreeHook>,
}

static HEAP: Locked<ProgramLock, State> = Locked::new(State {
    heap: HeaderHeap::empty(),
    counters: HeapCounters::ZERO,
    regions: 0,
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

/// Frees a block; does nothing for null. Refuses a size other than the block's.
///
/// # Safety
/// `block` must be null, or a live block that is used no more.
pub unsafe fn free(block: *mut c_void, bytes: Option<usize>) {
    let Some(found) = NonNull::new(block.cast::<u8>()) else { return };
    let freed = locked(|state| {
        // SAFETY: `could_be_block` checked that the header lies in the heap's memory.
        let size = state.could_be_block(found).then(|| unsafe { state.heap.size_of(found) })?;
        bytes.is_none_or(|bytes| bytes == size).then_some(())?;
        // SAFETY: the caller's promise.
        unsafe { state.heap.free(found) }.ok()?;
        state.counters.freed(size);
        Some(())
    });
    if freed.is_none() {
        report_bad_free(found);
    }
}

/// Resizes a block, in place or by moving it. `None`: no room, or refused; the block is unchanged.
///
/// # Safety
/// `block` must be live. If a block is returned, only that may be used afterwards.
pub unsafe fn resize(block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
    let resized = attempt_with_hook(bytes, HEADER, |state| {
        if !state.could_be_block(block) {
            return Some(None);
        }
        // SAFETY: as in `free`.
        let size = unsafe { state.heap.size_of(block) };
        // SAFETY: the caller's promise.
        match unsafe { state.heap.reallocate(block, bytes) } {
            Ok(new) => {
                state.counters.resized(size, new.map_or(size, |_| bytes));
                new.map(Some)
            }
            Err(_) => Some(None),
        }
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

impl State {
    /// Whether a pointer may be a block: it is aligned as every block, and it and its header lie in a region.
    ///
    /// A block of no bytes may begin where its region ends.
    fn could_be_block(&self, block: NonNull<u8>) -> bool {
        let header = NonNull::new(block.as_ptr().wrapping_sub(HEADER));
        block.addr().get().is_multiple_of(HEADER)
            && header.is_some_and(|header| self.heap.contains(header))
            // SAFETY: the header lies in the heap's memory, as checked above.
            && (self.heap.contains(block) || unsafe { self.heap.size_of(block) } == 0)
    }

    /// The memory use now, to compare with after a hook ran.
    fn low_water(&self) -> LowWaterMark {
        LowWaterMark::new(&self.counters, self.regions)
    }
}
