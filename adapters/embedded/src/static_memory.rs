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
/// use terrace_embedded::{StaticMemory, FirmwareHeap};
/// static HEAP: FirmwareHeap = FirmwareHeap::empty();
/// static ARENA: StaticMemory<8192> = StaticMemory::new();
///
/// let memory = ARENA.take().expect("nobody took it before");
/// assert_eq!(memory.len(), 8192);
/// HEAP.add_memory(memory)?;
/// assert!(ARENA.take().is_none());
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
#[derive(Debug)]
pub struct StaticMemory<const BYTES: usize> {
    bytes: StaticBytes<BYTES>,
    taken: StaticClaim,
}

impl<const BYTES: usize> StaticMemory<BYTES> {
    /// An arena that nobody took.
    pub const fn new() -> Self {
        Self { bytes: StaticBytes::new(), taken: StaticClaim::new() }
    }

    /// The bytes; `None` from the second time on.
    #[expect(clippy::mut_from_ref, reason = "once in the life of an arena, as the swap sees to")]
    pub fn take(&'static self) -> Option<&'static mut [MaybeUninit<u8>]> {
        // SAFETY: once, as `claim` sees to.
        self.taken.claim().then(|| unsafe { self.bytes.take() })
    }
}

/// The bytes alone, for a section that nothing clears. Not to be named: [`heap_arena!`](crate::heap_arena) does.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C, align(16))] // The largest granule: none is lost at the start.
pub struct StaticBytes<const BYTES: usize>(UnsafeCell<[MaybeUninit<u8>; BYTES]>);

// SAFETY: the bytes are reached by whoever may call `take`, which is one.
unsafe impl<const BYTES: usize> Sync for StaticBytes<BYTES> {}

impl<const BYTES: usize> StaticBytes<BYTES> {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([MaybeUninit::uninit(); BYTES]))
    }

    /// # Safety
    /// Once in the life of a program.
    #[doc(hidden)]
    #[expect(clippy::mut_from_ref, reason = "once in the life of an arena, as the caller promises")]
    pub unsafe fn take(&'static self) -> &'static mut [MaybeUninit<u8>] {
        // SAFETY: the only reference, as the caller promises; the bytes live for ever.
        unsafe { &mut *self.0.get() }
    }
}

/// Whether bytes were given away: in `.bss`, wherever they lie.
#[doc(hidden)]
#[derive(Debug)]
pub struct StaticClaim(AtomicBool);

impl StaticClaim {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// True the first time.
    #[doc(hidden)]
    pub fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

impl<const BYTES: usize> Default for StaticMemory<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// Places so many bytes as a static and gives them to a heap. Attributes behind the size say where. The section may be one
/// that nothing clears or loads at start-up (`NOLOAD` in a linker script): whether the bytes were given away is noted
/// elsewhere. Memory that no section lies in is given by its address: `HEAP.init(address, bytes)`.
///
/// Gives a `Result<(), InitError>`; [`InitError::Taken`](crate::InitError::Taken) when the same line runs a second time.
///
/// # Example
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use terrace_embedded::{FirmwareHeap, heap_arena};
/// # use terrace_embedded::Fast;
/// static HEAP: FirmwareHeap<Fast, 2> = FirmwareHeap::empty();
///
/// heap_arena!(HEAP, 32 * 1024)?;
/// heap_arena!(HEAP, 64 * 1024, #[unsafe(link_section = ".slow_ram")])?;
/// assert_eq!(HEAP.stats().total, 96 * 1024);
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
#[macro_export]
macro_rules! heap_arena {
    ($heap:expr, $bytes:expr $(,)?) => {{
        static __TERRACE_MEMORY: $crate::StaticMemory<{ $bytes }> = $crate::StaticMemory::new();
        match __TERRACE_MEMORY.take() {
            Some(memory) => $heap.add_memory(memory),
            None => Err($crate::InitError::Taken),
        }
    }};
    ($heap:expr, $bytes:expr, $(#[$where:meta])+) => {{
        $(#[$where])+
        static __TERRACE_BYTES: $crate::StaticBytes<{ $bytes }> = $crate::StaticBytes::new();
        static __TERRACE_TAKEN: $crate::StaticClaim = $crate::StaticClaim::new();
        if __TERRACE_TAKEN.claim() {
            // SAFETY: nobody else can name the static, and this is the first time.
            $heap.add_memory(unsafe { __TERRACE_BYTES.take() })
        } else {
            Err($crate::InitError::Taken)
        }
    }};
}
