//! Published heaps for firmware, and dlmalloc.
//!
//! Promises upward: each is used as its documentation says, without a lock where it has a face without one.
//! Asks from below: the crates.

#![allow(unsafe_code, reason = "memory is given, and blocks are taken back, by pointers")]

use super::{Block, Subject};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};

/// rlsf, with the lists that its documentation proposes for 32 bits.
pub struct Rlsf(rlsf::Tlsf<'static, u32, u32, 20, 32>);

impl Subject for Rlsf {
    type Block = NonNull<u8>;

    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let mut heap = rlsf::Tlsf::new();
        let memory = NonNull::new(slice_from_raw_parts_mut(start.as_ptr(), bytes))?;
        // SAFETY: the caller's promise.
        unsafe { heap.insert_free_block_ptr(memory) }?;
        Some(Self(heap))
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.allocate(layout)
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.deallocate(block, layout.align()) }
    }

    unsafe fn grow(&mut self, block: NonNull<u8>, layout: Layout, size: usize) -> Option<NonNull<u8>> {
        let larger = Layout::from_size_align(size, layout.align()).ok()?;
        // SAFETY: the caller's promise.
        unsafe { self.0.reallocate(block, larger) }
    }
}

/// talc, the part below its locks.
pub struct Talc(talc::base::Talc<talc::source::Manual, talc::base::binning::DefaultBinning>);

impl Subject for Talc {
    type Block = NonNull<u8>;

    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let mut heap = talc::base::Talc::new(talc::source::Manual);
        // SAFETY: the caller's promise.
        unsafe { heap.claim(start.as_ptr(), bytes) }?;
        Some(Self(heap))
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: no size is 0.
        unsafe { self.0.allocate(layout) }
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.deallocate(block.as_ptr(), layout) }
    }

    unsafe fn grow(&mut self, block: NonNull<u8>, layout: Layout, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        if unsafe { self.0.try_grow_in_place(block.as_ptr(), layout, size) } {
            return Some(block);
        }
        let new = self.allocate(Layout::from_size_align(size, layout.align()).ok()?)?;
        // SAFETY: the caller's promise.
        unsafe { self.free(block, layout) };
        Some(new)
    }
}

/// A heap of embedded-alloc: what its heaps have beside the global allocator's face.
pub trait Embedded: GlobalAlloc + Sized {
    /// A heap over the memory.
    ///
    /// # Safety
    /// As for [`Subject::over`].
    unsafe fn of(start: usize, bytes: usize) -> Self;
}

macro_rules! embedded {
    ($($heap:ident)*) => {$(
        impl Embedded for embedded_alloc::$heap {
            unsafe fn of(start: usize, bytes: usize) -> Self {
                let heap = Self::empty();
                // SAFETY: the caller's promise; called once, not of size 0.
                unsafe { heap.init(start, bytes) };
                heap
            }
        }
    )*};
}

// With two-level bins, and with one list.
embedded!(TlsfHeap LlffHeap);

impl<H: Embedded> Subject for H {
    type Block = NonNull<u8>;

    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        // SAFETY: the caller's promise.
        Some(unsafe { H::of(start.as_ptr().expose_provenance(), bytes) })
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: no size is 0.
        NonNull::new(unsafe { self.alloc(layout) })
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.dealloc(block.as_ptr(), layout) }
    }
}

/// linked_list_allocator: first fit in one list by address.
pub struct LinkedList(linked_list_allocator::Heap);

impl Subject for LinkedList {
    type Block = NonNull<u8>;

    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        // SAFETY: the caller's promise.
        Some(Self(unsafe { linked_list_allocator::Heap::new(start.as_ptr(), bytes) }))
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.allocate_first_fit(layout).ok()
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.deallocate(block, layout) }
    }
}

/// buddy_system_allocator: powers of two.
pub struct Buddy(buddy_system_allocator::Heap<32>);

impl Subject for Buddy {
    type Block = NonNull<u8>;

    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let mut heap = buddy_system_allocator::Heap::new();
        // SAFETY: the caller's promise.
        unsafe { heap.init(start.as_ptr().expose_provenance(), bytes) };
        Some(Self(heap))
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.alloc(layout).ok()
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(block, layout) }
    }
}

/// dlmalloc, in Rust.
pub struct Dlmalloc(dlmalloc::Dlmalloc<Once>);

/// A source that gives its memory once.
struct Once {
    memory: Cell<(*mut u8, usize)>,
}

// SAFETY: a heap is used by one thread, and its memory by nobody else.
unsafe impl Send for Once {}

// SAFETY: gives one stretch, once, and takes nothing back.
unsafe impl dlmalloc::Allocator for Once {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let (start, bytes) = self.memory.get();
        if size > bytes {
            return (null_mut(), 0, 0);
        }
        self.memory.set((null_mut(), 0));
        (start, bytes, 0)
    }
    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }
    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }
    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }
    fn can_release_part(&self, _: u32) -> bool {
        false
    }
    fn allocates_zeros(&self) -> bool {
        false
    }
    fn page_size(&self) -> usize {
        4096
    }
}

impl Subject for Dlmalloc {
    type Block = NonNull<u8>;

    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let memory = Cell::new((start.as_ptr(), bytes));
        Some(Self(dlmalloc::Dlmalloc::new_with_allocator(Once { memory })))
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: no size is 0.
        NonNull::new(unsafe { self.0.malloc(layout.size(), layout.align()) })
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(block.as_ptr(), layout.size(), layout.align()) }
    }

    unsafe fn grow(&mut self, block: NonNull<u8>, layout: Layout, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { self.0.realloc(block.as_ptr(), layout.size(), layout.align(), size) })
    }
}

/// offset-allocator: records beside the memory.
pub struct Offset {
    heap: offset_allocator::Allocator<u32>,
}

/// Bytes of its unit.
const UNIT: usize = 16;

impl Block for offset_allocator::Allocation<u32> {
    fn address(self) -> usize {
        self.offset as usize * UNIT
    }
}

impl Subject for Offset {
    type Block = offset_allocator::Allocation<u32>;

    unsafe fn over(_: NonNull<u8>, bytes: usize) -> Option<Self> {
        let units = bytes / UNIT;
        // Blocks of one unit are the smallest: it never lacks a record.
        let heap = offset_allocator::Allocator::with_max_allocs(units as u32, units as u32 + 1);
        Some(Self { heap })
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<Self::Block> {
        let more = layout.align().saturating_sub(UNIT);
        self.heap.allocate((layout.size() + more).div_ceil(UNIT) as u32)
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: Self::Block, _: Layout) {
        self.heap.free(block);
    }
}
