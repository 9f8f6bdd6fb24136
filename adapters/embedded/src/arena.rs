//! Memory for a heap, as a static.
//!
//! Promises upward: an arena is given away once; it lies in `.bss` unless told otherwise, and costs no flash.
//! Asks from below: one atomic swap.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use portable_atomic::{AtomicBool, Ordering};

/// `BYTES` bytes, to be given to a heap once. [`heap_arena!`](crate::heap_arena) makes one for you.
///
/// # Example
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use terrace_embedded::{Arena, Heap};
/// static HEAP: Heap = Heap::empty();
/// static ARENA: Arena<8192> = Arena::new();
///
/// let memory = ARENA.take().expect("nobody took it before");
/// assert_eq!(memory.len(), 8192);
/// HEAP.give(memory)?;
/// assert!(ARENA.take().is_none());
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
#[derive(Debug)]
#[repr(C, align(16))] // The largest granule: none is lost at the start.
pub struct Arena<const BYTES: usize> {
    bytes: UnsafeCell<[MaybeUninit<u8>; BYTES]>,
    taken: AtomicBool,
}

// SAFETY: the bytes are reached by whoever swapped `taken` first, and nobody else.
unsafe impl<const BYTES: usize> Sync for Arena<BYTES> {}

impl<const BYTES: usize> Arena<BYTES> {
    /// An arena that nobody took.
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new([MaybeUninit::uninit(); BYTES]), taken: AtomicBool::new(false) }
    }

    /// The bytes; `None` from the second time on.
    #[expect(clippy::mut_from_ref, reason = "once in the life of an arena, as the swap below sees to")]
    pub fn take(&'static self) -> Option<&'static mut [MaybeUninit<u8>]> {
        if self.taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: only the first swap comes here, and the arena lives for ever.
        let bytes = unsafe { &mut *self.bytes.get() };
        Some(bytes)
    }
}

impl<const BYTES: usize> Default for Arena<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// Places so many bytes as a static and gives them to a heap. Attributes behind the size say where: in a section that is
/// cleared or loaded at start-up, since whether it was given away is noted there too. For memory that is not, say where it
/// is: `HEAP.init(address, bytes)`.
///
/// Gives a `Result<(), InitError>`; [`InitError::Taken`](crate::InitError::Taken) when the same line runs a second time.
///
/// # Example
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use terrace_embedded::{Heap, heap_arena};
/// # use terrace_embedded::Fast;
/// static HEAP: Heap<Fast, 2> = Heap::empty();
///
/// heap_arena!(HEAP, 32 * 1024)?;
/// heap_arena!(HEAP, 64 * 1024, #[unsafe(link_section = ".slow_ram")])?;
/// assert_eq!(HEAP.stats().total, 96 * 1024);
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
#[macro_export]
macro_rules! heap_arena {
    ($heap:expr, $bytes:expr $(, #[$where:meta])*) => {{
        $(#[$where])*
        static __TERRACE_ARENA: $crate::Arena<{ $bytes }> = $crate::Arena::new();
        match __TERRACE_ARENA.take() {
            Some(memory) => $heap.give(memory),
            None => Err($crate::InitError::Taken),
        }
    }};
}
