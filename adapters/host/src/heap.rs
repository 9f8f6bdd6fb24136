//! First-class heaps: blocks that can be given back one by one, or all at once.
//!
//! Promises upward: [`Heap`] allocates like the global heap but from spans of its own, so that dropping it returns every block
//! in O(spans); any thread may use it by reference; C's `free` takes its blocks too. Not for
//! signal handlers: its calls take locks.
//! Asks from below: [`Shelves`], [`large`]. It has no thread caches: a call takes a lock and a bit, about 100 instructions.

use crate::bits;
use crate::class::{self, PAGE, SLICE};
use crate::lock::Lock;
use crate::shelf::{Shelf, Shelves};
use crate::space::{Span, tables};
use crate::{ground, large, purge, slow, thread};
use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Heaps at a time.
const HEAPS: usize = 1024;
/// Bytes of a heap's own records, in pages.
const OWN: usize = size_of::<Shelves>().next_multiple_of(PAGE);

/// Held while a heap comes or goes, and by forks and purges, which visit all.
static REGISTRY: Lock<()> = Lock::new(());

/// The lock of the heaps' list, for a fork: before the heaps' own.
pub fn registry() -> &'static Lock<()> {
    &REGISTRY
}

/// The heaps by number, less one: 0 is everybody's. Changed under `REGISTRY`.
static ALL: [AtomicPtr<Shelves>; HEAPS] = [const { AtomicPtr::new(null_mut()) }; HEAPS];

/// A heap of its own.
///
/// # Example
/// ```
/// use std::alloc::Layout;
/// use terrace_host::Heap;
/// let heap = Heap::new().expect("memory for one more heap");
/// let layout = Layout::new::<[u64; 100]>();
/// let block = heap.allocate(layout).expect("memory");
/// heap.allocate(layout).expect("memory"); // never freed by itself
/// // SAFETY: allocated above with this layout, used by nobody.
/// unsafe { heap.deallocate(block, layout) };
/// drop(heap); // the other block goes here
/// ```
#[derive(Debug)]
pub struct Heap {
    shelves: &'static Shelves,
    /// Where the shelves lie.
    slice: u32,
    /// Its place in `ALL`.
    at: usize,
}

impl Heap {
    /// A heap without blocks. `None` without memory, or when 1024 heaps exist. Takes a slice of 64 KiB for its records, of
    /// which one page is touched.
    pub fn new() -> Option<Self> {
        crate::start::ready().then_some(())?;
        let _busy = thread::busy();
        let slice = ground::take(1, SLICE, OWN)?;
        let tables = tables()?;
        let memory = tables.address(slice).cast::<Shelves>();
        let _registry = REGISTRY.lock();
        let Some(at) = ALL.iter().position(|place| place.load(Relaxed).is_null()) else {
            ground::give(slice, OWN);
            return None;
        };
        // SAFETY: a slice of ours, larger than the shelves and aligned to more.
        unsafe { memory.write(Shelves::new(at as u16 + 1)) };
        bits::soil(tables, slice, size_of::<Shelves>());
        ALL[at].store(memory.as_ptr(), Release);
        // SAFETY: written above; lives until the heap is dropped, which ends every use through it.
        Some(Self { shelves: unsafe { memory.as_ref() }, slice, at })
    }

    /// A block for a layout; `None` when there is no memory. A layout of size 0 gets a block too.
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let _busy = thread::busy();
        purge::poll();
        let class = class::of_layout(layout);
        let mut found = null_mut();
        if class == class::NONE {
            let slice = large::take(layout.size(), layout.align(), false)?;
            let tables = tables()?;
            tables.span(slice).heap.store(self.number(), Relaxed);
            self.shelves.adopt(slice);
            found = tables.address(slice).as_ptr();
        } else {
            self.shelves.take(class, 1, |block| found = block);
            if found.is_null() {
                purge::retry(SLICE, || (self.shelves.take(class, 1, |block| found = block) > 0).then_some(()));
            }
        }
        if found.is_null() {
            slow::out_of_memory();
        }
        NonNull::new(found)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// [`allocate`](Self::allocate) of this heap gave the block for this layout, and nobody uses it any more.
    pub unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let _ = layout;
        large::free_any(block.as_ptr());
    }

    /// Blocks it has handed out, large ones included, and bytes of its slices.
    pub fn spans(&self) -> u32 {
        (0..class::COUNT).map(|class| self.shelves.count(class)).sum()
    }

    fn number(&self) -> u16 {
        self.at as u16 + 1
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let _busy = thread::busy();
        {
            let _registry = REGISTRY.lock();
            ALL[self.at].store(null_mut(), Release);
            self.shelves.drop_all();
            ground::give(self.slice, OWN);
        }
        purge::note();
        purge::poll();
    }
}

/// A block of some heap comes back.
pub fn free(block: *mut u8, slice: u32, span: &Span) {
    let number = usize::from(span.heap.load(Relaxed));
    let shelves = ALL.get(number.wrapping_sub(1)).map_or(null_mut(), |place| place.load(Acquire));
    // SAFETY: a span names its heap's number as long as the heap lives.
    let Some(shelves) = (unsafe { shelves.as_ref() }) else { return };
    match usize::from(span.class.load(Relaxed)) {
        class::NONE => shelves.release(slice),
        class => shelves.give(class, &[block]),
    }
    purge::note();
    purge::poll();
}

/// Purges the free pages of a span that belongs to a heap.
pub fn purge_span(slice: u32, span: &Span) {
    let _registry = REGISTRY.lock();
    let place = ALL.get(usize::from(span.heap.load(Relaxed)).wrapping_sub(1));
    let shelves = place.map_or(null_mut(), |place| place.load(Acquire));
    // SAFETY: null, or shelves that live as long as the registry is held.
    if let Some(shelves) = unsafe { shelves.as_ref() } {
        shelves.purge(slice);
    }
}

/// Calls `each` with the locks of every heap: for a fork.
pub fn each_lock(each: impl Fn(&'static Lock<Shelf>)) {
    for place in &ALL {
        let shelves = place.load(Acquire);
        // SAFETY: null, or a heap's shelves, which live as long as they stand here: the caller holds the registry.
        if let Some(shelves) = unsafe { shelves.as_ref() } {
            shelves.locks().iter().for_each(&each);
        }
    }
}
