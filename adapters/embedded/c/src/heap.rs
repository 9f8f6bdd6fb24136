//! The one heap of the library.
//!
//! Promises upward: what is asked while the lock is held is short, but for the copy of a block that `realloc` moves.
//! Asks from below: `HeaderHeap` and the program's lock.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use embedded::{Fast, HeaderHeap, HeapCounters, Locked, LowWaterMark};

use crate::lock::ProgramLock;

#[cfg(feature = "checked")]
type Config = embedded::Checked<Fast>;
#[cfg(not(feature = "checked"))]
type Config = Fast;

/// Regions that there is room for: internal RAM, a closely coupled one, a retained one, an external one.
const REGIONS: usize = 4;

/// What stands in front of a block: two words. Also the alignment that each has.
pub const HEADER: usize = 2 * size_of::<usize>();

/// Called with the bytes and the alignment asked for.
pub type OutOfMemoryHook = extern "C" fn(bytes: usize, align: usize) -> c_int;
/// Called with the pointer that was refused.
pub type BadFreeHook = extern "C" fn(block: *mut c_void);

/// What the lock keeps.
#[derive(Debug)]
pub struct State {
    pub heap: HeaderHeap<Config, REGIONS>,
    pub counters: HeapCounters,
    /// Regions in use: with the frees counted, what may have made a failed request possible.
    pub regions: usize,
    /// Gone while it runs.
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

/// Runs something under the lock that calls nothing of the program's.
#[inline(always)]
pub fn locked<R>(run: impl FnOnce(&mut State) -> R) -> R {
    // SAFETY: the closures of this library call neither it nor hooks.
    unsafe { HEAP.with(run) }
}

/// Tries, asks the hook for room, and tries again as long as something came back. `LockedHeap::allocate_slow` is the same
/// with a queue, which has to be emptied before and between.
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

/// Frees a block; null is none. A size that is not the block's is refused.
///
/// # Safety
/// Null, or a live block that is not used any more.
pub unsafe fn free(block: *mut c_void, bytes: Option<usize>) {
    let Some(found) = NonNull::new(block.cast::<u8>()) else { return };
    let freed = locked(|state| {
        // SAFETY: `size_of` needs the header that stands in front of every block.
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

/// Makes a block larger or smaller.
///
/// # Safety
/// A live block; when one comes back, only that is used afterwards.
pub unsafe fn resize(block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
    let resized = attempt_with_hook(bytes, HEADER, |state| {
        if !state.could_be_block(block) {
            return Some(None);
        }
        // SAFETY: as in `free`.
        let size = unsafe { state.heap.size_of(block) };
        // SAFETY: the caller's promise; what is refused or failed leaves the block as it was.
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
    /// Whether this can be a block: it and its header lie in a region, at an alignment that all blocks have. One of no bytes
    /// may begin where the region ends.
    fn could_be_block(&self, block: NonNull<u8>) -> bool {
        let header = NonNull::new(block.as_ptr().wrapping_sub(HEADER));
        block.addr().get().is_multiple_of(HEADER)
            && header.is_some_and(|header| self.heap.contains(header))
            // SAFETY: where the header would be is the heap's memory.
            && (self.heap.contains(block) || unsafe { self.heap.size_of(block) } == 0)
    }

    /// What may have made a failed request possible.
    fn low_water(&self) -> LowWaterMark {
        LowWaterMark::new(&self.counters, self.regions)
    }
}
