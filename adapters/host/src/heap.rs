//! First-class heaps: blocks that can be given back one by one, or all at once.
//!
//! Promises upward: [`Heap`] allocates like the global heap but from spans of its own, so that dropping it returns every block
//! in O(spans); any thread may use it by reference; C's `free` takes its blocks too. Not for
//! signal handlers: its calls take locks.
//! Asks from below: [`Spans`], [`large`]. It has no thread caches: a call takes a lock and a bit, about 100 instructions.

use crate::bits;
use crate::class::{self, PAGE, SLICE};
use crate::lock::Lock;
use crate::spans::{SpanLists, Spans};
use crate::tables::{Span, tables};
use crate::{page_heap, large, purge, slow_path, thread};
use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Heaps at a time.
const HEAPS: usize = 1024;
/// Bytes of a heap's own records, in pages.
const OWN: usize = size_of::<Spans>().next_multiple_of(PAGE);

/// Held while a heap comes or goes, and by forks and purges, which visit all.
static REGISTRY: Lock<()> = Lock::new(());

/// The lock of the heaps' list, for a fork: before the heaps' own.
pub fn registry() -> &'static Lock<()> {
    &REGISTRY
}

/// The heaps by number, less one: 0 is everybody's. Changed under `REGISTRY`.
static ALL: [AtomicPtr<Spans>; HEAPS] = [const { AtomicPtr::new(null_mut()) }; HEAPS];

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
    spans: &'static Spans,
    /// Where the shelves lie.
    slice: u32,
    /// Its place in `ALL`.
    at: usize,
}

impl Heap {
    /// A heap without blocks. `None` without memory, or when 1024 heaps exist. Takes a slice of 64 KiB for its records, of
    /// which one page is touched.
    pub fn new() -> Option<Self> {
        crate::init::ready().then_some(())?;
        let _busy = thread::enter_slow_path();
        let slice = page_heap::allocate(1, SLICE, OWN)?;
        let tables = tables()?;
        let memory = tables.address(slice).cast::<Spans>();
        let _registry = REGISTRY.lock();
        let Some(at) = ALL.iter().position(|place| place.load(Relaxed).is_null()) else {
            page_heap::free(slice, OWN);
            return None;
        };
        // SAFETY: a slice of ours, larger than the shelves and aligned to more.
        unsafe { memory.write(Spans::new(at as u16 + 1)) };
        bits::mark_dirty(tables, slice, size_of::<Spans>());
        ALL[at].store(memory.as_ptr(), Release);
        // SAFETY: written above; lives until the heap is dropped, which ends every use through it.
        Some(Self { spans: unsafe { memory.as_ref() }, slice, at })
    }

    /// A block for a layout; `None` when there is no memory. A layout of size 0 gets a block too.
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let _busy = thread::enter_slow_path();
        purge::poll();
        let class = class::of_layout(layout);
        let mut found = null_mut();
        if class == class::NONE {
            let slice = large::allocate_slices(layout.size(), layout.align(), false)?;
            let tables = tables()?;
            tables.span(slice).heap.store(self.number(), Relaxed);
            self.spans.add_large(slice);
            found = tables.address(slice).as_ptr();
        } else {
            self.spans.allocate(class, 1, |block| found = block);
            if found.is_null() {
                purge::retry(SLICE, || (self.spans.allocate(class, 1, |block| found = block) > 0).then_some(()));
            }
        }
        if found.is_null() {
            slow_path::out_of_memory();
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
        (0..class::COUNT).map(|class| self.spans.count(class)).sum()
    }

    fn number(&self) -> u16 {
        self.at as u16 + 1
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let _busy = thread::enter_slow_path();
        {
            let _registry = REGISTRY.lock();
            ALL[self.at].store(null_mut(), Release);
            self.spans.free_all();
            page_heap::free(self.slice, OWN);
        }
        purge::note_free();
        purge::poll();
    }
}

/// A block of some heap comes back.
pub fn free(block: *mut u8, slice: u32, span: &Span) {
    let number = usize::from(span.heap.load(Relaxed));
    let spans = ALL.get(number.wrapping_sub(1)).map_or(null_mut(), |place| place.load(Acquire));
    // SAFETY: a span names its heap's number as long as the heap lives.
    let Some(spans) = (unsafe { spans.as_ref() }) else { return };
    match usize::from(span.class.load(Relaxed)) {
        class::NONE => spans.free_large(slice),
        class => spans.free(class, &[block]),
    }
    purge::note_free();
    purge::poll();
}

/// Purges the free pages of a span that belongs to a heap.
pub fn purge_span(slice: u32, span: &Span) {
    let _registry = REGISTRY.lock();
    let place = ALL.get(usize::from(span.heap.load(Relaxed)).wrapping_sub(1));
    let spans = place.map_or(null_mut(), |place| place.load(Acquire));
    // SAFETY: null, or shelves that live as long as the registry is held.
    if let Some(spans) = unsafe { spans.as_ref() } {
        spans.purge(slice);
    }
}

/// Calls `each` with the locks of every heap: for a fork.
pub fn each_lock(each: impl Fn(&'static Lock<SpanLists>)) {
    for place in &ALL {
        let spans = place.load(Acquire);
        // SAFETY: null, or a heap's shelves, which live as long as they stand here: the caller holds the registry.
        if let Some(spans) = unsafe { spans.as_ref() } {
            spans.locks().iter().for_each(&each);
        }
    }
}
