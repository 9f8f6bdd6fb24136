//! Memory for a heap, as a static.
//!
//! Promises upward: the bytes of a static are handed out once. They lie in `.bss` unless an attribute places them, and
//! take no flash.
//! Asks from below: one atomic swap.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use portable_atomic::{AtomicBool, Ordering};

/// `BYTES` bytes, to be handed out once.
///
/// [`heap_arena!`](crate::heap_arena) declares one and adds it to a heap.
///
/// # Example
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use terrace_embedded::{FirmwareHeap, StaticMemory};
/// static HEAP: FirmwareHeap = FirmwareHeap::empty();
/// static MEMORY: StaticMemory<8192> = StaticMemory::new();
///
/// let memory = MEMORY.take().expect("the first time");
/// assert_eq!(memory.len(), 8192);
/// HEAP.add_memory(memory)?;
/// assert!(MEMORY.take().is_none());
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
#[derive(Debug)]
pub struct StaticMemory<const BYTES: usize> {
    bytes: StaticBytes<BYTES>,
    claim: StaticClaim,
}

impl<const BYTES: usize> StaticMemory<BYTES> {
    /// Memory that has not been taken.
    pub const fn new() -> Self {
        Self { bytes: StaticBytes::new(), claim: StaticClaim::new() }
    }

    /// Takes the bytes; `None` from the second call on.
    #[expect(clippy::mut_from_ref, reason = "`claim` succeeds once in the life of a static")]
    pub fn take(&'static self) -> Option<&'static mut [MaybeUninit<u8>]> {
        // SAFETY: `claim` succeeds once, so this is the only call.
        self.claim.claim().then(|| unsafe { self.bytes.take() })
    }
}

/// The bytes of a static without the flag that tells whether they were handed out.
///
/// The bytes may lie in a section that start-up code does not clear; the flag may not.
///
/// Internal: [`heap_arena!`](crate::heap_arena) names it in the user's program.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C, align(16))] // 16 is the largest granule: the first granule starts at the first byte.
pub struct StaticBytes<const BYTES: usize>(UnsafeCell<[MaybeUninit<u8>; BYTES]>);

// SAFETY: a shared reference reaches the bytes through `take` alone, which is called once.
unsafe impl<const BYTES: usize> Sync for StaticBytes<BYTES> {}

impl<const BYTES: usize> StaticBytes<BYTES> {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([MaybeUninit::uninit(); BYTES]))
    }

    /// Takes the bytes.
    ///
    /// # Safety
    /// Caller must call `take` only once in the life of the program.
    #[doc(hidden)]
    #[expect(clippy::mut_from_ref, reason = "the caller calls it once")]
    pub unsafe fn take(&'static self) -> &'static mut [MaybeUninit<u8>] {
        // SAFETY: the caller calls it once, so this is the only reference; a static lives for ever.
        unsafe { &mut *self.0.get() }
    }
}

/// Whether the bytes of a static were handed out; lies in `.bss`, whatever section the bytes lie in.
#[doc(hidden)]
#[derive(Debug)]
pub struct StaticClaim(AtomicBool);

impl StaticClaim {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Claims the bytes: true for the first caller, false for all others.
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

/// Declares a static of the given number of bytes and adds it to a heap.
///
/// Attributes after the size apply to the static. They may place it in a section that start-up code neither clears nor
/// loads (`NOLOAD` in a linker script): the flag that the bytes were handed out lies elsewhere. For memory outside of
/// all sections pass its address to the heap: `HEAP.init(address, bytes)`.
///
/// Returns a `Result<(), InitError>`: [`InitError::Taken`](crate::InitError::Taken) when the same line runs a second time.
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
        static __TERRACE_CLAIM: $crate::StaticClaim = $crate::StaticClaim::new();
        if __TERRACE_CLAIM.claim() {
            // SAFETY: only this line can name the static, and `claim` succeeds once.
            $heap.add_memory(unsafe { __TERRACE_BYTES.take() })
        } else {
            Err($crate::InitError::Taken)
        }
    }};
}
