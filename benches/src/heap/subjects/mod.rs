//! Every heap behind one face.
//!
//! Promises upward: each heap is used as its documentation says; a call through the face costs what the call costs.
//! Asks from below: the heaps.

#![allow(unsafe_code, reason = "blocks are taken back by pointers")]

mod ours;
mod peers;
#[cfg(test)]
mod tests;

use clap::ValueEnum;
use std::alloc::Layout;
use std::ptr::NonNull;

use terrace_core::heap::{Bounded, Fast, Narrow, Packed, RegionHeap, Small, Wide};

/// What a heap gives.
pub trait Block: Copy {
    /// Where it is.
    fn address(self) -> usize;
}

impl Block for NonNull<u8> {
    fn address(self) -> usize {
        self.addr().get()
    }
}

/// A heap over one stretch of memory.
pub trait Subject: Sized {
    /// What it gives.
    type Block: Block;

    /// A heap over the memory; `None`: it cannot have so much.
    ///
    /// # Safety
    /// The memory is readable and writable, a multiple of 64 KiB in place, and nobody else's as long as the heap is used.
    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self>;

    /// A block, or `None`.
    fn allocate(&mut self, layout: Layout) -> Option<Self::Block>;

    /// Takes a block back.
    ///
    /// # Safety
    /// A live block of this heap and of this layout.
    unsafe fn free(&mut self, block: Self::Block, layout: Layout);

    /// Makes a block larger, where it is or elsewhere.
    ///
    /// # Safety
    /// As for [`Subject::free`]; `size` is at least the layout's.
    unsafe fn grow(&mut self, block: Self::Block, layout: Layout, size: usize) -> Option<Self::Block> {
        let larger = Layout::from_size_align(size, layout.align()).ok()?;
        let new = self.allocate(larger)?;
        // SAFETY: the caller's promise.
        unsafe { self.free(block, layout) };
        Some(new)
    }
}

/// Names of the heaps, in the order in which they are shown and take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Hash, ValueEnum)]
pub enum Name {
    /// terrace: throughput, granules of 16 bytes.
    FastWide,
    /// terrace: throughput, granules of 8 bytes.
    FastPacked,
    /// terrace: throughput, 16-bit records, up to 512 KiB.
    FastNarrow,
    /// terrace: worst case and fill, granules of 8 bytes.
    BoundedPacked,
    /// terrace: worst case and fill, granules of 16 bytes.
    BoundedWide,
    /// terrace: least code, granules of 8 bytes.
    SmallPacked,
    /// rlsf.
    Rlsf,
    /// talc.
    Talc,
    /// embedded-alloc, TLSF.
    EmbeddedTlsf,
    /// embedded-alloc, linked list.
    EmbeddedLlff,
    /// linked_list_allocator.
    LinkedList,
    /// buddy_system_allocator.
    Buddy,
    /// dlmalloc.
    Dlmalloc,
    /// offset-allocator.
    Offset,
}

/// Something to do with a heap of any type.
pub trait Task {
    /// What comes of it.
    type Output;
    /// Does it.
    fn run<S: Subject>(self) -> Self::Output;
}

impl Name {
    /// Does something with the heap of this name.
    pub fn with<T: Task>(self, task: T) -> T::Output {
        match self {
            Self::FastPacked => task.run::<RegionHeap<Fast<Packed>>>(),
            Self::FastWide => task.run::<RegionHeap<Fast<Wide>>>(),
            Self::FastNarrow => task.run::<RegionHeap<Fast<Narrow>>>(),
            Self::SmallPacked => task.run::<RegionHeap<Small<Packed>>>(),
            Self::BoundedPacked => task.run::<RegionHeap<Bounded<Packed>>>(),
            Self::BoundedWide => task.run::<RegionHeap<Bounded<Wide>>>(),
            Self::Rlsf => task.run::<peers::Rlsf>(),
            Self::Talc => task.run::<peers::Talc>(),
            Self::EmbeddedTlsf => task.run::<embedded_alloc::TlsfHeap>(),
            Self::EmbeddedLlff => task.run::<embedded_alloc::LlffHeap>(),
            Self::LinkedList => task.run::<peers::LinkedList>(),
            Self::Buddy => task.run::<peers::Buddy>(),
            Self::Dlmalloc => task.run::<peers::Dlmalloc>(),
            Self::Offset => task.run::<peers::Offset>(),
        }
    }

    /// As it is called in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::FastPacked => "terrace Fast<Packed>",
            Self::FastWide => "terrace Fast<Wide>",
            Self::FastNarrow => "terrace Fast<Narrow>",
            Self::SmallPacked => "terrace Small<Packed>",
            Self::BoundedPacked => "terrace Bounded<Packed>",
            Self::BoundedWide => "terrace Bounded<Wide>",
            Self::Rlsf => "rlsf",
            Self::Talc => "talc",
            Self::EmbeddedTlsf => "embedded-alloc TLSF",
            Self::EmbeddedLlff => "embedded-alloc LLFF",
            Self::LinkedList => "linked_list_allocator",
            Self::Buddy => "buddy_system_allocator",
            Self::Dlmalloc => "dlmalloc",
            Self::Offset => "offset-allocator",
        }
    }

    /// Whether it is one of ours.
    pub fn is_ours(self) -> bool {
        self <= Self::SmallPacked
    }

    /// What it was given.
    pub fn given(self) -> &'static str {
        match self {
            Self::FastPacked => "one region; granules of 8 bytes",
            Self::BoundedPacked | Self::SmallPacked => "one region; granules of 8 bytes; the default on 64 bits",
            Self::FastWide => "one region; granules of 16 bytes; the default on 64 bits",
            Self::BoundedWide => "one region; granules of 16 bytes",
            Self::FastNarrow => "one region; granules of 8 bytes; at most 512 KiB, so no list here fits",
            Self::Rlsf => "Tlsf<u32, u32, 20, 32>",
            Self::Talc => "base::Talc with the Manual source and the default bins",
            Self::EmbeddedTlsf | Self::EmbeddedLlff => {
                "its Heap, critical section of the host included: a lock of the standard library, which firmware has not"
            }
            Self::LinkedList => "Heap",
            Self::Buddy => "Heap<32>, without its lock",
            Self::Dlmalloc => "Dlmalloc over a source that gives the memory once",
            Self::Offset => {
                "units of 16 bytes; records beside the memory, not counted in it; alignment by asking for more"
            }
        }
    }
}
