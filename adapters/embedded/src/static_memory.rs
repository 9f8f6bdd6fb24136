//! Memory for a heap, as a static.
//!
//! Promises upward: the bytes of a static are handed out once, or again after a heap refused them. They lie in `.bss`
//! unless an attribute places them, and take no flash.
//! Asks from below: one atomic swap.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use portable_atomic::{AtomicBool, Ordering};

use crate::error::{InitError, RefusedMemory};

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
    ///
    /// ```
    /// static MEMORY: terrace_embedded::StaticMemory<1024> = terrace_embedded::StaticMemory::new();
    /// ```
    pub const fn new() -> Self {
        Self { bytes: StaticBytes::new(), claim: StaticClaim::new() }
    }

    /// Takes the bytes; `None` from the second call on.
    ///
    /// ```
    /// use terrace_embedded::StaticMemory;
    /// static MEMORY: StaticMemory<1024> = StaticMemory::new();
    /// assert_eq!(MEMORY.take().map(|bytes| bytes.len()), Some(1024));
    /// assert!(MEMORY.take().is_none());
    /// ```
    #[expect(clippy::mut_from_ref, reason = "`claim` succeeds once in the life of a static")]
    pub fn take(&'static self) -> Option<&'static mut [MaybeUninit<u8>]> {
        // SAFETY: `claim` succeeds once, so this is the only call.
        self.claim.claim().then(|| unsafe { self.bytes.take() })
    }

    /// Offers the bytes to a heap. If it refuses them, they can be offered again.
    ///
    /// Elsewhere, or to the same heap.
    ///
    /// # Errors
    /// [`InitError::Taken`]: they were handed out before. Otherwise what `add` returns.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{MemoryCaps, FirmwareHeap, InitError, StaticMemory, heap_arena};
    /// static FULL: FirmwareHeap = FirmwareHeap::empty();
    /// static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// static MEMORY: StaticMemory<8192> = StaticMemory::new();
    ///
    /// heap_arena!(FULL, 1024)?; // one region is all that it takes
    /// assert!(MEMORY.offer(|memory| FULL.add_memory(memory)).is_err());
    /// MEMORY.offer(|memory| HEAP.add_memory_with(memory, MemoryCaps::DMA))?;
    /// assert_eq!(MEMORY.offer(|memory| HEAP.add_memory(memory)), Err(InitError::Taken));
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn offer(
        &'static self,
        add: impl FnOnce(&'static mut [MaybeUninit<u8>]) -> Result<(), RefusedMemory>,
    ) -> Result<(), InitError> {
        // SAFETY: both are fields of this static, and private.
        unsafe { offer(&self.bytes, &self.claim, add) }
    }
}

/// Hands the bytes of a static to `add`, if they were not handed out before.
///
/// They can be again once `add` returned them.
///
/// Internal: [`heap_arena!`](crate::heap_arena) names it in the user's program.
///
/// # Errors
/// As [`StaticMemory::offer`].
///
/// # Safety
/// Only calls with this `claim` may take these bytes.
#[doc(hidden)]
pub unsafe fn offer<const BYTES: usize>(
    bytes: &'static StaticBytes<BYTES>,
    claim: &'static StaticClaim,
    add: impl FnOnce(&'static mut [MaybeUninit<u8>]) -> Result<(), RefusedMemory>,
) -> Result<(), InitError> {
    if !claim.claim() {
        return Err(InitError::Taken);
    }
    // SAFETY: `claim` succeeded, so no reference to the bytes is left: there was none, or the last one came back.
    let memory = unsafe { bytes.take() };
    let start = memory.as_ptr();
    add(memory).map_err(|RefusedMemory { error, memory }| {
        // A refusal of other memory says nothing about these bytes, which then stay claimed.
        if memory.as_ptr() == start && memory.len() == BYTES {
            claim.release();
        }
        error
    })
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

// SAFETY: a shared reference reaches the bytes through `take` alone, whose callers have one reference at a time.
unsafe impl<const BYTES: usize> Sync for StaticBytes<BYTES> {}

impl<const BYTES: usize> StaticBytes<BYTES> {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([MaybeUninit::uninit(); BYTES]))
    }

    /// Takes the bytes.
    ///
    /// # Safety
    /// The reference that the last call returned must be gone.
    #[doc(hidden)]
    #[expect(clippy::mut_from_ref, reason = "the caller has one reference at a time")]
    pub unsafe fn take(&'static self) -> &'static mut [MaybeUninit<u8>] {
        // SAFETY: the caller has no other reference; a static lives for ever.
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

    /// Claims the bytes: true for the first caller, or the first since they came back; else false.
    #[doc(hidden)]
    pub fn claim(&self) -> bool {
        // Acquire: what a heap did to bytes that it refused, which is nothing, lies before.
        !self.0.swap(true, Ordering::Acquire)
    }

    /// Lets the next caller claim the bytes, which came back.
    fn release(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<const BYTES: usize> Default for StaticMemory<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// Declares a static of the given number of bytes and adds it to a heap.
///
/// The region has the capabilities that are named after the size, or none. Attributes after the size or the capabilities apply to the static. They may place it in a section that start-up code
/// neither clears nor loads (`NOLOAD` in a linker script): the flag that the bytes were handed out lies elsewhere. For memory
/// outside of all sections pass its address to the heap: `HEAP.init(address, bytes)`.
///
/// Returns a `Result<(), InitError>`: [`InitError::Taken`](crate::InitError::Taken) when the same line runs again after it
/// succeeded. After a refusal it may run again.
///
/// # Example
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use terrace_embedded::{MemoryCaps, Bounded, FirmwareHeap, heap_arena};
/// static HEAP: FirmwareHeap<Bounded, 3> = FirmwareHeap::empty();
///
/// heap_arena!(HEAP, 32 * 1024)?;
/// heap_arena!(HEAP, 8 * 1024, MemoryCaps::DMA)?;
/// heap_arena!(HEAP, 64 * 1024, MemoryCaps::EXTERNAL, #[unsafe(link_section = ".slow_ram")])?;
/// assert_eq!(HEAP.stats().total, 104 * 1024);
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
#[macro_export]
macro_rules! heap_arena {
    // First, since `#` may also begin an expression.
    ($heap:expr, $bytes:expr, $(#[$where:meta])+) => {{
        $(#[$where])+
        static __TERRACE_BYTES: $crate::StaticBytes<{ $bytes }> = $crate::StaticBytes::new();
        static __TERRACE_CLAIM: $crate::StaticClaim = $crate::StaticClaim::new();
        let add = |memory| $heap.add_memory_with(memory, $crate::MemoryCaps::ANY);
        // SAFETY: only this line can name the two statics.
        unsafe { $crate::offer(&__TERRACE_BYTES, &__TERRACE_CLAIM, add) }
    }};
    ($heap:expr, $bytes:expr, $capabilities:expr, $(#[$where:meta])+) => {{
        $(#[$where])+
        static __TERRACE_BYTES: $crate::StaticBytes<{ $bytes }> = $crate::StaticBytes::new();
        static __TERRACE_CLAIM: $crate::StaticClaim = $crate::StaticClaim::new();
        let add = |memory| $heap.add_memory_with(memory, $capabilities);
        // SAFETY: only this line can name the two statics.
        unsafe { $crate::offer(&__TERRACE_BYTES, &__TERRACE_CLAIM, add) }
    }};
    ($heap:expr, $bytes:expr $(, $capabilities:expr)? $(,)?) => {{
        static __TERRACE_MEMORY: $crate::StaticMemory<{ $bytes }> = $crate::StaticMemory::new();
        __TERRACE_MEMORY.offer(|memory| $heap.add_memory_with(memory, $crate::MemoryCaps::ANY $(| $capabilities)?))
    }};
}
