//! What a heap tells about itself: statistics, counters, capabilities, tasks.
//!
//! Promises upward: nothing changes the heap.
//! Asks from below: [`LockedHeap`].

use core::ptr::NonNull;

use terrace_core::Violation;
use terrace_core::heap::{HeapConfig, HeapUsage};

use crate::capabilities::MemoryCaps;
use crate::free_queue::DeferQueue;
use crate::lock::Lock;
use crate::locked_heap::LockedHeap;
use crate::stats::{HeapCounters, HeapStats};
use crate::tasks::{CurrentTask, TaskAccounts, TaskTable, TaskUsage};

impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts> LockedHeap<L, C, REGIONS, Q, T> {
    /// Statistics of the heap.
    ///
    /// Walks the free blocks under the lock, O(free blocks): for a console, not for a control loop.
    ///
    /// [`LockedHeap::counters`] is O(1).
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, HeapStats, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let stats = HEAP.stats();
    /// assert_eq!(stats.total, stats.tables + stats.live + stats.free);
    /// println!("{stats}");
    /// println!("{}\n{}", HeapStats::CSV_HEADER, stats.csv());
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn stats(&self) -> HeapStats {
        self.locked(|state| HeapStats::new(state.regions.usage(MemoryCaps::ANY), state.counters))
    }

    /// The bytes by use of all regions with these capabilities. O(free blocks) under the lock.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{MemoryCaps, Bounded, FirmwareHeap, heap_arena};
    /// static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096, MemoryCaps::INTERNAL | MemoryCaps::DMA)?;
    /// heap_arena!(HEAP, 65536, MemoryCaps::EXTERNAL)?;
    /// let dma = HEAP.usage_of(MemoryCaps::DMA);
    /// assert_eq!((dma.total, dma.largest_free), (4096, dma.free));
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn usage_of(&self, has: MemoryCaps) -> HeapUsage {
        self.locked(|state| state.regions.usage(has))
    }

    /// The counters since the heap was created. O(1).
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let block = HEAP.allocate(core::alloc::Layout::new::<[u8; 20]>()).expect("room");
    /// let counters = HEAP.counters();
    /// assert_eq!((counters.requested, counters.allocations), (20, 1));
    /// assert!(counters.peak_live >= 24, "whole granules");
    /// # let _ = block;
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn counters(&self) -> HeapCounters {
        self.locked(|state| state.counters)
    }

    /// Whether an address lies in one of the regions.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let block = HEAP.allocate(core::alloc::Layout::new::<u64>()).expect("room");
    /// assert!(HEAP.contains(block.as_ptr()) && !HEAP.contains((&raw const block).cast()));
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn contains(&self, address: *const u8) -> bool {
        NonNull::new(address.cast_mut()).is_some_and(|address| self.locked(|state| state.regions.contains(address)))
    }

    /// Checks every invariant of the heap, under the lock. O(granules): for tests.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// assert_eq!(HEAP.check(), Ok(()));
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn check(&self) -> Result<(), Violation> {
        self.locked(|state| state.regions.check())
    }
}

impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, K: CurrentTask, const N: usize>
    LockedHeap<L, C, REGIONS, Q, TaskTable<K, N>>
{
    /// What every task has, by number; the last row also counts tasks with larger numbers. O(`N`).
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{CurrentTask, Bounded, FirmwareHeap, NoQueue, TaskTable, TaskUsage, heap_arena};
    /// struct One;
    /// impl CurrentTask for One {
    ///     fn current_task() -> u8 {
    ///         1
    ///     }
    /// }
    /// static HEAP: FirmwareHeap<Bounded, 1, NoQueue, TaskTable<One, 2>> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096)?;
    /// let block = HEAP.allocate(core::alloc::Layout::new::<[u8; 20]>()).expect("room");
    /// println!("{}", TaskUsage::CSV_HEADER);
    /// HEAP.tasks().iter().for_each(|task| println!("{}", task.csv()));
    /// assert_eq!(HEAP.tasks().map(|task| task.live), [0, 20]);
    /// # let _ = block;
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn tasks(&self) -> [TaskUsage; N] {
        self.locked(|state| state.tasks.usage())
    }

    /// What one task has: the row that its requests are charged to. O(`N`).
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{CurrentTask, Bounded, FirmwareHeap, NoQueue, TaskTable, heap_arena};
    /// # struct One;
    /// # impl CurrentTask for One {
    /// #     fn current_task() -> u8 {
    /// #         1
    /// #     }
    /// # }
    /// # static HEAP: FirmwareHeap<Bounded, 1, NoQueue, TaskTable<One, 2>> = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let block = HEAP.allocate(core::alloc::Layout::new::<[u8; 20]>()).expect("room");
    /// assert_eq!((HEAP.task(1).live, HEAP.task(1).blocks, HEAP.task(0).peak), (20, 1, 0));
    /// # let _ = block;
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn task(&self, task: u8) -> TaskUsage {
        self.tasks().get(usize::from(task).min(N.saturating_sub(1))).copied().unwrap_or_default()
    }
}
