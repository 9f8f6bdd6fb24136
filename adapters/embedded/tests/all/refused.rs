//! Memory that a heap refuses is not lost: it can be offered again.

use std::mem::MaybeUninit;
use std::ptr;

use terrace_embedded::{
    Bounded, FirmwareHeap, InitError, MemoryCaps, RefusedMemory, RegionError, StaticMemory, heap_arena,
};

#[test]
fn memory_comes_back_with_the_reason_and_serves_another_heap() {
    let full: FirmwareHeap = FirmwareHeap::empty();
    heap_arena!(full, 1024).expect("the first region");
    static MEMORY: StaticMemory<8192> = StaticMemory::new();
    let memory = MEMORY.take().expect("the first time");
    let (start, total) = (memory.as_ptr(), full.stats().total);
    let refused = full.add_memory(memory).expect_err("a second region");
    assert_eq!(refused.error, InitError::Region(RegionError::TooMany));
    assert_eq!(format!("{refused:?}"), "RefusedMemory { error: Region(TooMany), bytes: 8192 }");
    assert_eq!(refused.to_string(), refused.error.to_string());
    assert_eq!((full.stats().total, refused.memory.as_ptr(), refused.memory.len()), (total, start, 8192));
    let other: FirmwareHeap = FirmwareHeap::empty();
    other.add_memory(refused.memory).expect("another heap");
    assert_eq!(other.stats().total, 8192);
    other.check().expect("every invariant holds");
}

#[test]
fn every_reason_leaves_a_static_to_be_offered_again() {
    static TINY: StaticMemory<16> = StaticMemory::new();
    static MEMORY: StaticMemory<4096> = StaticMemory::new();
    let heap: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    // A heap without room for any region: too many.
    let none: FirmwareHeap<Bounded, 0> = FirmwareHeap::empty();
    for _ in 0..2 {
        let refused = MEMORY.offer(|memory| none.add_memory(memory));
        assert_eq!(refused, Err(InitError::Region(RegionError::TooMany)));
        let refused = TINY.offer(|memory| heap.add_memory(memory));
        assert_eq!(refused, Err(InitError::Region(RegionError::TooSmall)));
    }
    assert_eq!(TINY.take().map(|bytes| bytes.len()), Some(16), "for whatever else");
    assert_eq!(TINY.offer(|memory| heap.add_memory(memory)), Err(InitError::Taken));
    assert_eq!(MEMORY.offer(|memory| heap.add_memory_with(memory, MemoryCaps::DMA)), Ok(()));
    assert_eq!(MEMORY.offer(|memory| heap.add_memory(memory)), Err(InitError::Taken));
    assert!(MEMORY.take().is_none());
    assert_eq!(heap.usage_of(MemoryCaps::DMA).total, 4096);
}

#[test]
fn an_overlapping_region_changes_neither_heap_nor_bytes() {
    let heap: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    let memory = Box::leak(vec![0xABu8; 4096].into_boxed_slice());
    let start = memory.as_mut_ptr();
    // SAFETY: leaked bytes, of which the heap gets those from 8 to 2056.
    unsafe { heap.init(start.wrapping_add(8), 2048) }.expect("a region");
    for (from, bytes) in [(0, 9), (0, 4096), (2055, 1000), (100, 100)] {
        // SAFETY: refused: it overlaps the region.
        let refused = unsafe { heap.init(start.wrapping_add(from), bytes) };
        assert_eq!(refused, Err(InitError::Region(RegionError::Overlaps)), "{from}");
    }
    // SAFETY: outside of the region, the caller's after the refusals.
    assert!((2056..4096).all(|at| unsafe { start.wrapping_add(at).read() } == 0xAB));
    // SAFETY: leaked bytes behind the region, which nothing uses.
    unsafe { heap.init(start.wrapping_add(2056), 2040) }.expect("right behind it");
    heap.check().expect("every invariant holds");
}

#[test]
fn other_memory_that_comes_back_frees_no_claim() {
    static MEMORY: StaticMemory<1024> = StaticMemory::new();
    let swapped = MEMORY.offer(|_kept| {
        let memory: &'static mut [MaybeUninit<u8>] = Box::leak(Box::new_uninit_slice(1024));
        Err(RefusedMemory { error: InitError::Null, memory })
    });
    assert_eq!(swapped, Err(InitError::Null));
    assert!(MEMORY.take().is_none(), "the closure has the bytes still");
}

#[test]
fn a_line_that_was_refused_may_run_again() {
    let full: FirmwareHeap = FirmwareHeap::empty();
    heap_arena!(full, 1024).expect("the first region");
    let heap: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    let plain = |refuse| match refuse {
        true => &full as &dyn AnyHeap,
        false => &heap,
    };
    let give = |refuse: bool| {
        let to = plain(refuse);
        heap_arena!(to, 2048, MemoryCaps::EXTERNAL)
    };
    let placed = |refuse: bool| {
        let to = plain(refuse);
        heap_arena!(to, 2048, #[unsafe(link_section = ".slow_ram")])
    };
    for line in [&give as &dyn Fn(bool) -> Result<(), InitError>, &placed] {
        assert_eq!(line(true), Err(InitError::Region(RegionError::TooMany)));
        assert_eq!((line(false), line(false)), (Ok(()), Err(InitError::Taken)));
    }
    assert_eq!((heap.usage_of(MemoryCaps::EXTERNAL).total, heap.stats().total), (2048, 4096));
    assert!(!heap.contains(ptr::null()));
}

/// A heap of any number of regions.
trait AnyHeap {
    fn add_memory_with(&self, memory: &'static mut [MaybeUninit<u8>], has: MemoryCaps) -> Result<(), RefusedMemory>;
}

impl<const REGIONS: usize> AnyHeap for FirmwareHeap<Bounded, REGIONS> {
    fn add_memory_with(&self, memory: &'static mut [MaybeUninit<u8>], has: MemoryCaps) -> Result<(), RefusedMemory> {
        FirmwareHeap::add_memory_with(self, memory, has)
    }
}
