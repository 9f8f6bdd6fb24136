//! Which task has how much: one row of counters for each.
//!
//! Promises upward: O(1) a call, in a table of fixed size; a block is charged to the task that allocated it until it is
//! freed, by whichever task. Without accounting, no byte and no instruction.
//! Asks from below: [`CurrentTask`], which the program implements.
//!
//! The heap's blocks have no headers, so a byte behind the block's last byte names its task. Where the layout's size is no
//! multiple of the granule (8 or 16 bytes), that byte lies in the block's last granule and costs nothing; where it is, the
//! block becomes one granule longer.
//!
//! ```text
//! layout 20 bytes   | 8 | 8 | 4 T . . . |         3 granules with accounting, 3 without
//! layout 24 bytes   | 8 | 8 | 8 | T . . . . . . . |   4 granules with accounting, 3 without
//! ```
//!
//! Invariants: the rows' `live` add up to the counters' `requested`, and their `blocks` to the live blocks.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::stats::CsvLine;

/// Says which task is running. A parameter of [`TaskTable`].
///
/// # Example
/// A scheduler that stores the task's number when it switches; with several cores, one number for each core.
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use core::sync::atomic::{AtomicU8, Ordering};
/// use terrace_embedded::{CurrentTask, Bounded, FirmwareHeap, NoQueue, TaskTable, heap_arena};
///
/// static RUNNING: AtomicU8 = AtomicU8::new(0); // the context switch stores here
///
/// #[derive(Debug)]
/// struct Scheduler;
/// impl CurrentTask for Scheduler {
///     fn current_task() -> u8 {
///         RUNNING.load(Ordering::Relaxed)
///     }
/// }
///
/// static HEAP: FirmwareHeap<Bounded, 1, NoQueue, TaskTable<Scheduler, 4>> = FirmwareHeap::empty();
///
/// heap_arena!(HEAP, 4096)?;
/// RUNNING.store(2, Ordering::Relaxed);
/// let layout = core::alloc::Layout::new::<[u8; 100]>();
/// let block = HEAP.allocate(layout).expect("room");
/// RUNNING.store(3, Ordering::Relaxed);
/// assert_eq!(HEAP.task(2).live, 100);
/// // SAFETY: live, and used no more. Task 3 frees what task 2 has allocated.
/// unsafe { HEAP.free(block, layout) };
/// assert_eq!((HEAP.task(2).live, HEAP.task(2).peak, HEAP.task(3).peak), (0, 100, 0));
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
pub trait CurrentTask {
    /// The number of the running task. Called without the heap's lock, once for each request; it must not use the heap.
    ///
    /// Numbers beyond the table's rows share the last row.
    fn current_task() -> u8;
}

/// What one task has on the heap. Sizes are those of the layouts, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct TaskUsage {
    /// The task's number.
    pub task: u8,
    /// Bytes of the live blocks that the task allocated.
    pub live: usize,
    /// The highest value of `live`.
    pub peak: usize,
    /// Number of live blocks that the task allocated.
    pub blocks: usize,
}

impl TaskUsage {
    /// The names of the fields of [`TaskUsage::csv`], separated by commas.
    pub const CSV_HEADER: &'static str = "task,live,peak,blocks";

    /// The fields as one line of CSV, without the end of the line. Nothing is allocated.
    ///
    /// ```
    /// use terrace_embedded::TaskUsage;
    /// let usage = TaskUsage { task: 3, live: 100, peak: 250, blocks: 2 };
    /// assert_eq!(format!("{}\n{}", TaskUsage::CSV_HEADER, usage.csv()), "task,live,peak,blocks\n3,100,250,2");
    /// ```
    pub fn csv(&self) -> impl fmt::Display + use<> {
        CsvLine([usize::from(self.task), self.live, self.peak, self.blocks])
    }
}

/// Accounting of a heap by task: [`NoTasks`] or [`TaskTable`].
///
/// Sealed, because it runs while the heap's lock is held.
pub trait TaskAccounts: Send + sealed::SealedAccounts {
    /// Without a block.
    const EMPTY: Self;
    /// Bytes behind each block that name its task.
    const TRAILER: usize;
    /// What names a task.
    type Owner: Copy;

    /// The running task.
    fn current() -> Self::Owner;

    /// The task that a block is charged to; initialized if the block is live and has so many bytes.
    ///
    /// # Safety
    /// [`TaskAccounts::TRAILER`] bytes must be readable at `bytes` bytes from `block`.
    unsafe fn owner_of(block: NonNull<u8>, bytes: usize) -> MaybeUninit<Self::Owner>;

    /// Notes behind a block which task it is charged to.
    ///
    /// # Safety
    /// [`TaskAccounts::TRAILER`] bytes must be writable at `bytes` bytes from `block`.
    unsafe fn set_owner(block: NonNull<u8>, bytes: usize, owner: Self::Owner);

    /// Counts blocks and bytes that a task no longer has, and those that it has now.
    fn charge(&mut self, owner: Self::Owner, old: Option<usize>, new: Option<usize>);
}

mod sealed {
    pub trait SealedAccounts {}
    impl SealedAccounts for super::NoTasks {}
    impl<K, const N: usize> SealedAccounts for super::TaskTable<K, N> {}
}

/// No accounting: it takes no memory and no instructions.
#[derive(Clone, Copy, Debug)]
pub struct NoTasks;

impl TaskAccounts for NoTasks {
    const EMPTY: Self = Self;
    const TRAILER: usize = 0;
    type Owner = ();

    #[inline(always)]
    fn current() {}

    #[inline(always)]
    unsafe fn owner_of(_: NonNull<u8>, _: usize) -> MaybeUninit<()> {
        MaybeUninit::new(())
    }

    #[inline(always)]
    unsafe fn set_owner(_: NonNull<u8>, _: usize, (): ()) {}

    #[inline(always)]
    fn charge(&mut self, (): (), _: Option<usize>, _: Option<usize>) {}
}

/// A table of `N` tasks, numbered by `K`; `N` is at least 1. Three words a task.
///
/// The last type parameter of a heap. A block whose size is a multiple of the granule becomes one granule longer; others
/// cost no memory. The byte that names a block's task lies behind the block: a program that writes past the end of a block
/// moves its bytes to another row, or to the last one.
pub struct TaskTable<K, const N: usize> {
    rows: [TaskRow; N],
    tasks: PhantomData<fn() -> K>,
}

#[derive(Clone, Copy)]
struct TaskRow {
    live: usize,
    peak: usize,
    blocks: usize,
}

impl<K, const N: usize> TaskTable<K, N> {
    /// The number of rows, at least 1.
    const ROWS: usize = {
        assert!(0 < N && N <= 256, "a table has 1 to 256 rows: a task's number is one byte");
        N
    };

    /// What each task has.
    pub(crate) fn usage(&self) -> [TaskUsage; N] {
        let mut task = 0u8;
        self.rows.map(|TaskRow { live, peak, blocks }| {
            let usage = TaskUsage { task, live, peak, blocks };
            task = task.wrapping_add(1);
            usage
        })
    }
}

impl<K: CurrentTask, const N: usize> TaskAccounts for TaskTable<K, N> {
    const EMPTY: Self = Self { rows: [TaskRow { live: 0, peak: 0, blocks: 0 }; N], tasks: PhantomData };
    const TRAILER: usize = 1;
    type Owner = u8;

    #[inline(always)]
    fn current() -> u8 {
        K::current_task()
    }

    #[inline(always)]
    unsafe fn owner_of(block: NonNull<u8>, bytes: usize) -> MaybeUninit<u8> {
        // SAFETY: the caller promises a readable byte there.
        unsafe { block.as_ptr().wrapping_add(bytes).cast::<MaybeUninit<u8>>().read() }
    }

    #[inline(always)]
    unsafe fn set_owner(block: NonNull<u8>, bytes: usize, owner: u8) {
        // SAFETY: the caller promises a writable byte there.
        unsafe { block.as_ptr().wrapping_add(bytes).write(owner) };
    }

    #[inline(always)]
    fn charge(&mut self, owner: u8, old: Option<usize>, new: Option<usize>) {
        // The index is below the number of rows; an optimizer sees that, and no bounds check is left.
        let Some(row) = self.rows.get_mut(usize::from(owner).min(Self::ROWS - 1)) else { return };
        let one = |bytes: Option<usize>| usize::from(bytes.is_some());
        row.blocks = row.blocks.wrapping_add(one(new)).wrapping_sub(one(old));
        row.live = row.live.wrapping_add(new.unwrap_or(0)).wrapping_sub(old.unwrap_or(0));
        row.peak = row.peak.max(row.live);
    }
}

impl<K, const N: usize> fmt::Debug for TaskTable<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.usage()).finish()
    }
}
