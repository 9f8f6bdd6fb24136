//! What a program tells its heap: memory, hooks, the preference.
//!
//! Promises upward: memory that the heap refuses is the caller's again, unchanged.
//! Asks from below: [`LockedHeap`], memory of statics.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use terrace_core::heap::HeapConfig;

use crate::capabilities::MemoryCaps;
use crate::error::{BadFree, InitError, RefusedMemory};
use crate::free_queue::DeferQueue;
use crate::lock::Lock;
use crate::locked_heap::LockedHeap;
use crate::tasks::TaskAccounts;

impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts> LockedHeap<L, C, REGIONS, Q, T> {
    /// Adds a region to the heap, without capabilities.
    ///
    /// [`StaticMemory::take`](crate::StaticMemory::take) returns memory for one.
    ///
    /// # Errors
    /// [`InitError`]: the region is null, too small, too large, overlaps another, or the heap has `REGIONS` regions
    /// already.
    ///
    /// # Safety
    /// From now on the bytes must be readable and writable, and only this heap and the users of its blocks may access them;
    /// after an error they are the caller's again.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::FirmwareHeap;
    /// static HEAP: FirmwareHeap = FirmwareHeap::empty();
    ///
    /// // On a board: an address that the linker script or the data sheet names.
    /// let memory: &'static mut [u64] = vec![0; 512].leak();
    /// // SAFETY: the bytes are the program's for ever, and nothing else uses them.
    /// unsafe { HEAP.init(memory.as_mut_ptr().cast(), 4096) }?;
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub unsafe fn init(&self, start: *mut u8, bytes: usize) -> Result<(), InitError> {
        // SAFETY: the caller's promise.
        unsafe { self.add_region(start, bytes, MemoryCaps::ANY) }
    }

    /// Adds a region with capabilities to the heap.
    ///
    /// A heap takes regions in the order in which they are added; a request goes to the first that suits it and has room.
    ///
    /// # Errors
    /// As [`LockedHeap::init`].
    ///
    /// # Safety
    /// As for [`LockedHeap::init`].
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{MemoryCaps, Bounded, FirmwareHeap};
    /// static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    ///
    /// let psram: &'static mut [u64] = vec![0; 512].leak();
    /// // SAFETY: the bytes are the program's for ever, and nothing else uses them.
    /// unsafe { HEAP.add_region(psram.as_mut_ptr().cast(), 4096, MemoryCaps::EXTERNAL) }?;
    /// assert_eq!(HEAP.usage_of(MemoryCaps::EXTERNAL).total, 4096);
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub unsafe fn add_region(&self, start: *mut u8, bytes: usize, has: MemoryCaps) -> Result<(), InitError> {
        let start = NonNull::new(start).ok_or(InitError::Null)?;
        // SAFETY: the caller promises that the bytes are this heap's from now on.
        Ok(self.locked(|state| unsafe { state.regions.add(start, bytes, has) })?)
    }

    /// Adds a region to the heap, without capabilities.
    ///
    /// [`StaticMemory::take`](crate::StaticMemory::take) returns memory for one.
    ///
    /// # Errors
    /// As [`LockedHeap::init`], with the memory, which may be offered again.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{FirmwareHeap, StaticMemory};
    /// static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// static MEMORY: StaticMemory<4096> = StaticMemory::new();
    /// HEAP.add_memory(MEMORY.take().expect("the first time"))?;
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn add_memory(&self, memory: &'static mut [MaybeUninit<u8>]) -> Result<(), RefusedMemory> {
        self.add_memory_with(memory, MemoryCaps::ANY)
    }

    /// Adds a region with capabilities to the heap.
    ///
    /// # Errors
    /// As [`LockedHeap::add_memory`].
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{MemoryCaps, FirmwareHeap, StaticMemory};
    /// static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// static MEMORY: StaticMemory<4096> = StaticMemory::new();
    /// HEAP.add_memory_with(MEMORY.take().expect("the first time"), MemoryCaps::INTERNAL | MemoryCaps::DMA)?;
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn add_memory_with(
        &self,
        memory: &'static mut [MaybeUninit<u8>],
        has: MemoryCaps,
    ) -> Result<(), RefusedMemory> {
        // SAFETY: `memory` is an exclusive `'static` reference, so nothing else can ever reach the bytes; it goes back only
        // if the heap refused them.
        let added = unsafe { self.add_region(memory.as_mut_ptr().cast(), memory.len(), has) };
        // A closure that captured `memory` would be another use of the reference, after which the heap's pointer is no longer valid.
        match added {
            Ok(()) => Ok(()),
            Err(error) => Err(RefusedMemory { error, memory }),
        }
    }

    /// Sets what requests want that do not say so themselves.
    ///
    /// Those of the global allocator, and of [`LockedHeap::allocate`]. A list as in [`LockedHeap::allocate_in`]. Until it is set, any region suits. With one region it has no effect.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{MemoryCaps, Bounded, FirmwareHeap, heap_arena};
    /// static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096, MemoryCaps::INTERNAL)?;
    /// heap_arena!(HEAP, 65536, MemoryCaps::EXTERNAL)?;
    ///
    /// // Keeps the small memory for those that ask for it, as long as there is other.
    /// HEAP.set_preference(&[MemoryCaps::EXTERNAL, MemoryCaps::INTERNAL]);
    /// let block = HEAP.allocate(core::alloc::Layout::new::<u64>()).expect("room");
    /// assert_eq!(HEAP.usage_of(MemoryCaps::INTERNAL).live, 0);
    /// # let _ = block;
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn set_preference(&self, want: &'static [MemoryCaps]) {
        self.locked(|state| state.preference = Some(want));
    }

    /// Sets the hook that runs when a request fails: without the lock, with the request's layout.
    ///
    /// The hook may free blocks or add a region, and returns true to have the request tried again, which happens if
    /// memory use fell or a region was added. If the request then fails again, the hook runs again. While the hook
    /// runs, other requests that fail (the hook's own among them) do not call it.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{Bounded, FirmwareHeap, heap_arena};
    /// static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 1024)?;
    /// HEAP.on_out_of_memory(|_layout| heap_arena!(HEAP, 8192).is_ok());
    /// assert!(HEAP.allocate(core::alloc::Layout::new::<[u8; 4000]>()).is_some());
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn on_out_of_memory(&self, hook: fn(Layout) -> bool) {
        self.locked(|state| state.out_of_memory = Some(hook));
    }

    /// Sets the hook that runs when the heap refuses a free or a resize. It runs without the lock.
    ///
    /// The heap refuses a double free, a foreign pointer, and a wrong layout, as far as it recognises them.
    /// `C` decides what is recognised: [`Checked`](crate::Checked) all of them (sizes by granules), until the memory is allocated again; other
    /// heaps only foreign pointers, and only with several regions or a [`TaskTable`](crate::TaskTable).
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{Checked, Bounded, FirmwareHeap, heap_arena};
    /// static HEAP: FirmwareHeap<Checked<Bounded>> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096)?;
    /// HEAP.on_bad_free(|error| println!("{error}"));
    /// let layout = core::alloc::Layout::new::<u64>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live, and used no more.
    /// unsafe { HEAP.free(block, layout) };
    /// // SAFETY: a mistake, which a checked heap refuses: prints `double free: ...`.
    /// unsafe { HEAP.free(block, layout) };
    /// assert_eq!(HEAP.counters().refused, 1);
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn on_bad_free(&self, hook: fn(BadFree)) {
        self.locked(|state| state.bad_free = Some(hook));
    }
}
