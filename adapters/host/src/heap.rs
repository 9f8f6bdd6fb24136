//! First-class heaps: a program frees their blocks one by one, or all at once.
//!
//! Promises upward: [`Heap`] allocates like the global heap, but from spans of its own, so that dropping it frees every
//! block in O(spans); threads may share a reference to it; C's `free` frees its blocks too. Signal handlers must not
//! use it: its calls take locks. Asks from below: [`Spans`], large blocks. A heap has no thread caches: a call locks a
//! class and changes a bit, about 100 instructions.

use crate::class::{self, PAGE, SLICE};
use crate::spans::Spans;
use crate::tables::tables;
use crate::{api, bits, heaps, init, os, page_heap, purge, thread};
use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::Relaxed;

/// Bytes of the record of a heap's spans, in whole pages.
const OWN: usize = size_of::<Spans>().next_multiple_of(PAGE);

/// A first-class heap: dropping it frees all of its blocks.
///
/// # Example
/// ```
/// use std::alloc::Layout;
/// use terrace_host::Heap;
/// let heap = Heap::new().expect("memory for one more heap");
/// let layout = Layout::new::<[u64; 100]>();
/// let block = heap.allocate(layout).expect("memory");
/// heap.allocate(layout).expect("memory"); // never freed by itself
/// // SAFETY: allocated above with this layout, and used no more.
/// unsafe { heap.deallocate(block, layout) };
/// drop(heap); // the other block goes here
/// ```
#[derive(Debug)]
pub struct Heap {
    spans: &'static Spans,
    /// The slice that holds the heap's [`Spans`].
    slice: u32,
    /// The heap's number in the registry ([`heaps`]).
    number: u16,
}

impl Heap {
    /// Makes a heap without blocks; `None` without memory, or while 1024 heaps exist.
    ///
    /// Takes a slice of 64 KiB for the record of its spans, and touches one page of it.
    pub fn new() -> Option<Self> {
        init::ready().then_some(())?;
        let _busy = thread::enter_slow_path();
        let slice = page_heap::allocate(1, SLICE, OWN)?;
        let tables = tables()?;
        let memory = tables.address(slice).cast::<Spans>();
        // SAFETY: the slice was allocated above; it is larger than a `Spans` and aligned to more.
        let start = |number| unsafe { memory.write(Spans::new(number)) };
        let Some(number) = heaps::register(memory, start) else {
            page_heap::free(slice, OWN);
            return None;
        };
        bits::mark_dirty(tables, slice, size_of::<Spans>());
        // SAFETY: written above, and valid until this heap is dropped, after which nothing uses the reference.
        Some(Self { spans: unsafe { memory.as_ref() }, slice, number })
    }

    /// Allocates a block for a layout, which may have size 0; `None` without memory.
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let _busy = thread::enter_slow_path();
        api::poll();
        let class = class::of_layout(layout);
        let mut found = null_mut();
        if class == class::NONE {
            let slice = api::allocate_or_purge(layout.size(), layout.align(), false)?;
            let tables = tables()?;
            tables.span(slice).heap.store(self.number, Relaxed);
            self.spans.add_large(slice);
            found = tables.address(slice).as_ptr();
        } else {
            self.spans.allocate(class, 1, |block| found = block);
            if found.is_null() {
                purge::retry(SLICE, || (self.spans.allocate(class, 1, |block| found = block) > 0).then_some(()));
            }
        }
        if found.is_null() {
            os::out_of_memory();
        }
        NonNull::new(found)
    }

    /// Frees a block of this heap.
    ///
    /// # Safety
    /// [`allocate`](Self::allocate) of this heap must have returned the block for this layout, and the caller must not
    /// use it any more.
    pub unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let _ = layout;
        api::free_any(block.as_ptr());
    }

    /// Counts the heap's spans and large blocks.
    pub fn spans(&self) -> u32 {
        (0..class::COUNT).map(|class| self.spans.count(class)).sum()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let _busy = thread::enter_slow_path();
        heaps::unregister(self.number, || {
            self.spans.free_all();
            page_heap::free(self.slice, OWN);
        });
        purge::note_free();
        api::poll();
    }
}
