//! Blocks with headers: freed and resized by their address alone, as C does.

use crate::world::ground;
use crate::world::shadow::Shadow;
use crate::world::{cut, header_kinds, told};
use std::alloc::Layout;
use terrace_core::heap::HeaderHeap;

/// Bytes of a header, and the least alignment.
const HEADER: usize = 2 * size_of::<usize>();

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("small")
}

/// A heap of 64 KiB of each kind that has headers.
fn each(story: impl Fn(&mut Shadow)) {
    for kind in told(header_kinds()) {
        let mut shadow = Shadow::with(kind, cut(64 << 10, 32 << 10));
        story(&mut shadow);
        shadow.judge();
        shadow.drain();
    }
}

#[test]
fn every_block_is_aligned_for_any_type_and_can_have_no_bytes() {
    each(|shadow| {
        for bytes in (0..200).step_by(cut(1, 23)).chain([1000, 4095, 4097]) {
            let block = shadow.allocate(layout(bytes, 1)).expect("room");
            assert_eq!(block.addr().get() % HEADER, 0);
        }
    });
}

#[test]
fn blocks_of_no_bytes_are_different_and_cost_a_header() {
    each(|shadow| {
        let before = shadow.heap.usage().live;
        let [a, b] = [0; 2].map(|_| shadow.allocate(layout(0, 1)).expect("room"));
        assert_ne!(a, b);
        assert_eq!(shadow.heap.usage().live - before, 2 * HEADER);
        let grown = shadow.reallocate(shadow.live(a), 1000).expect("room");
        let none = shadow.reallocate(shadow.live(grown), 0).expect("a shorter one always fits");
        assert_eq!(none, grown);
        assert_eq!(shadow.heap.usage().live - before, 2 * HEADER);
    });
}

#[test]
fn alignments_up_to_a_page() {
    each(|shadow| {
        for bits in 0..=12 {
            let [a, b] = [0, 50].map(|bytes| shadow.allocate(layout(bytes, 1 << bits)).expect("room"));
            // It keeps its alignment wherever it goes: what is beside it is in the way.
            let moved = shadow.reallocate(shadow.live(a), 700).expect("room");
            assert_eq!(moved.addr().get() % (1 << bits), 0);
            shadow.free(shadow.live(b));
            shadow.free(shadow.live(moved));
        }
    });
}

#[test]
fn a_block_grows_where_it_is_when_it_can() {
    each(|shadow| {
        let [a, b] = [100, 100].map(|bytes| shadow.allocate(layout(bytes, 1)).expect("room"));
        let larger = shadow.reallocate(shadow.live(b), 5000).expect("room");
        assert_eq!(larger, b, "nothing is behind it");
        let moved = shadow.reallocate(shadow.live(a), 5000).expect("room");
        assert_ne!(moved, a, "b is behind it");
        let smaller = shadow.reallocate(shadow.live(moved), 10).expect("shorter always");
        assert_eq!(smaller, moved);
    });
}

#[test]
fn absurd_sizes_and_alignments_are_refused() {
    for kind in told(header_kinds()) {
        let mut shadow = Shadow::with(kind, 8 << 10);
        let block = shadow.allocate(layout(100, 1)).expect("room");
        for bytes in
            [isize::MAX as usize - 15, isize::MAX as usize, usize::MAX - 15, usize::MAX - 16, usize::MAX, 8 << 10]
        {
            // SAFETY: it is live, and stays as it is.
            let said = unsafe { shadow.heap.reallocate(block, layout(100, 1), bytes) };
            assert_eq!(said, Ok(None), "{bytes}");
            shadow.judge();
        }
        shadow.drain();
    }
}

/// The face itself: alignments that no layout has.
#[test]
fn an_alignment_that_is_no_power_of_two_or_too_large_is_refused() {
    let ground = ground::Ground::new(0, 12 << 10);
    let mut heap: HeaderHeap = HeaderHeap::default();
    assert_eq!(heap.allocate(0, 1), None, "there is no memory yet");
    // SAFETY: the ground outlives the heap.
    unsafe { heap.add_region(ground.start(), ground.bytes()) }.expect("large enough");
    for align in [0, 3, 5, 12, 24, 48, 4097, 1 << 14, 1 << 40, isize::MAX as usize, 1 << (usize::BITS - 1), usize::MAX]
    {
        assert_eq!(heap.allocate(8, align), None, "{align}");
    }
    for bytes in [usize::MAX, usize::MAX - 8, isize::MAX as usize, isize::MAX as usize - 8, 12 << 10] {
        assert_eq!(heap.allocate(bytes, 1), None, "{bytes}");
    }
    assert_eq!((heap.check(), heap.usage().live, heap.usage().free_blocks), (Ok(()), 0, 1));
    let block = heap.allocate(8, 4096).expect("a page of lead and a granule");
    assert!(heap.contains(block));
    // SAFETY: it is live.
    assert_eq!(unsafe { heap.size_of(block) }, 8);
    // SAFETY: it is live, and not used any more.
    assert_eq!(unsafe { heap.free(block) }, Ok(()));
    assert_eq!((heap.check(), heap.usage().live, heap.usage().free_blocks), (Ok(()), 0, 1));
}
