//! What a heap refuses: wrong frees when it is checked, and addresses of no region when it has several. The answer is
//! the right error, and nothing has changed.

use crate::world::ground::Ground;
use crate::world::shadow::{Misuse, Shadow};
use crate::world::{Kind, checked_kinds, kinds, told};
use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_core::FreeError;
use terrace_core::heap::{Checked, Fast, RegionHeap, Small};

const CALLS: [Misuse; 3] = [Misuse::Free, Misuse::Resize, Misuse::Reallocate];

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 1).expect("small")
}

/// Three blocks of 10 granules in a checked heap of each kind; then `story`, which may do what it likes.
fn each(story: impl Fn(&mut Shadow, [NonNull<u8>; 3], Layout)) {
    for kind in told(checked_kinds()) {
        let mut shadow = Shadow::with(kind, 8 << 10);
        let layout = layout(10 * kind.granule);
        let blocks = [0; 3].map(|_| shadow.allocate(layout).expect("room"));
        story(&mut shadow, blocks, layout);
        shadow.judge();
        shadow.drain();
    }
}

fn stale(block: NonNull<u8>) -> Result<(), FreeError> {
    Err(FreeError::Stale { address: block.addr().get() as u64 })
}

fn wrong_layout(block: NonNull<u8>) -> Result<(), FreeError> {
    Err(FreeError::WrongLayout { address: block.addr().get() as u64 })
}

fn foreign(block: NonNull<u8>) -> Result<(), FreeError> {
    Err(FreeError::Foreign { address: block.addr().get() as u64 })
}

/// All three calls are refused with this error.
fn refused(shadow: &mut Shadow, block: NonNull<u8>, layout: Layout, error: Result<(), FreeError>) {
    assert_eq!(shadow.verdict(block, layout), error);
    for call in CALLS {
        shadow.misuse(block, layout, call);
        shadow.judge();
    }
}

fn off(block: NonNull<u8>, bytes: isize) -> NonNull<u8> {
    NonNull::new(block.as_ptr().wrapping_offset(bytes)).expect("near a block")
}

#[test]
fn these_tests_have_something_to_test() {
    for kind in kinds() {
        assert_eq!(kind.checked, kind.name.contains("Checked"), "{}", kind.name);
        assert_eq!(kind.defers, kind.name.contains("Fast") && !kind.checked, "{}", kind.name);
    }
    assert_eq!((kinds().len(), checked_kinds().len()), (45, 12));
}

#[test]
fn a_block_is_freed_once() {
    // Freed alone, as the first of two that merge, as the second, and beside the rest of memory.
    for order in [&[0][..], &[1, 0], &[0, 1], &[2], &[2, 1, 0], &[0, 2, 1]] {
        each(|shadow, blocks, layout| {
            for &i in order {
                let live = shadow.live(blocks[i]);
                shadow.free(live);
                order.iter().take_while(|&&done| done != i).chain([&i]).for_each(|&done| {
                    refused(shadow, blocks[done], layout, stale(blocks[done]));
                });
            }
        });
    }
}

#[test]
fn an_address_inside_a_block_is_stale_and_one_inside_a_granule_foreign() {
    each(|shadow, blocks, layout| {
        let granule = shadow.kind.granule as isize;
        for granules in 1..10 {
            refused(shadow, off(blocks[1], granules * granule), layout, stale(off(blocks[1], granules * granule)));
        }
        for bytes in [1, granule / 2, granule - 1, granule + 1, -1] {
            refused(shadow, off(blocks[1], bytes), layout, foreign(off(blocks[1], bytes)));
        }
    });
}

#[test]
fn the_rest_of_an_inner_block_is_none() {
    each(|shadow, blocks, _| {
        let granule = shadow.kind.granule;
        for granules in 1..10 {
            let inner = off(blocks[2], (granules * granule) as isize);
            refused(shadow, inner, layout((10 - granules) * granule), stale(inner));
        }
    });
}

#[test]
fn two_neighbours_are_not_one_block() {
    for (first, second) in
        [(1, 1), (1, 2), (1, 7), (7, 1), (2, 2), (60, 5), (1, 130), (130, 1), (63, 65), (64, 64), (150, 90)]
    {
        each(|shadow, _, _| {
            let size = |granules| layout(granules * shadow.kind.granule);
            let (sizes, both) = ([size(first), size(second)], size(first + second));
            let [a, b] = sizes.map(|size| shadow.allocate(size).expect("room"));
            assert_eq!(off(a, sizes[0].size() as isize), b, "neighbours");
            refused(shadow, a, both, wrong_layout(a));
            // And a block is not one with what is free behind it, nor with what is free before it.
            shadow.free(shadow.live(b));
            refused(shadow, a, both, wrong_layout(a));
            let again = shadow.allocate(sizes[1]).expect("room");
            shadow.free(shadow.live(a));
            refused(shadow, a, both, stale(a));
            refused(shadow, again, both, wrong_layout(again));
        });
    }
}

#[test]
fn the_last_block_of_memory_is_live_and_no_longer_than_memory() {
    each(|shadow, _, _| {
        shadow.take_rest(0);
        let plot = shadow.plots[0].end;
        let last = *shadow.blocks().last().expect("what was taken");
        let live = shadow.live(last);
        let bytes = live.layout.size();
        assert!(plot - (last.addr().get() + bytes) < shadow.kind.granule, "it ends where memory does");
        refused(shadow, last, layout(bytes + shadow.kind.granule), wrong_layout(last));
        shadow.free(live);
        refused(shadow, last, live.layout, stale(last));
    });
}

#[test]
fn a_wrong_size_is_wrong_layout() {
    each(|shadow, blocks, full| {
        let granule = shadow.kind.granule;
        let absurd = [isize::MAX as usize, isize::MAX as usize - granule, usize::MAX / 4, 1 << 40];
        for bytes in [0, 1, granule, 9 * granule, 10 * granule + 1, 11 * granule, 20 * granule, 30 * granule]
            .into_iter()
            .chain(absurd)
        {
            for block in blocks {
                refused(shadow, block, layout(bytes), wrong_layout(block));
            }
        }
        // To the end of memory and one past it.
        let rest = shadow.plots[0].end - blocks[2].addr().get();
        refused(shadow, blocks[2], layout(rest), wrong_layout(blocks[2]));
        refused(shadow, blocks[2], layout(rest + granule), wrong_layout(blocks[2]));
        // As good as the right size: the granules are the same.
        let live = shadow.live(blocks[0]);
        // SAFETY: a live block; the layout is what is tested.
        assert_eq!(unsafe { shadow.heap.free(live.block, layout(full.size() - granule + 1)) }, Ok(()));
        shadow.live.remove(&blocks[0].addr().get());
    });
}

#[test]
fn free_memory_tables_and_what_lies_elsewhere_are_refused() {
    each(|shadow, _, layout| {
        let plot = shadow.plots[0];
        let at = |address: usize| off(shadow.address(0, 0).expect("a ground"), address as isize - plot.base as isize);
        let places = [plot.base, plot.first - shadow.kind.granule, plot.end, plot.end + shadow.kind.granule];
        let [tables, last_table, end, behind] = places.map(at);
        let [hole, last] = [plot.end - 64 * 16, plot.end - shadow.kind.granule].map(at);
        for block in [tables, last_table, end, behind, off(tables, -(shadow.kind.granule as isize))] {
            refused(shadow, block, layout, foreign(block));
        }
        for block in [hole, last] {
            refused(shadow, block, layout, stale(block));
        }
        let elsewhere = Ground::new(0, 64);
        refused(shadow, elsewhere.start(), layout, foreign(elsewhere.start()));
        refused(shadow, NonNull::dangling(), layout, foreign(NonNull::dangling()));
        refused(
            shadow,
            NonNull::without_provenance(std::num::NonZero::<usize>::MAX),
            layout,
            foreign(NonNull::without_provenance(std::num::NonZero::<usize>::MAX)),
        );
    });
}

#[test]
fn a_block_that_was_resized_has_its_new_size_only() {
    each(|shadow, blocks, old| {
        let new = layout(5 * shadow.kind.granule);
        assert!(shadow.resize(shadow.live(blocks[1]), new.size()));
        refused(shadow, blocks[1], old, wrong_layout(blocks[1]));
        let behind = off(blocks[1], new.size() as isize);
        refused(shadow, behind, new, stale(behind));
        // The last one into the rest of memory.
        let larger = layout(20 * shadow.kind.granule);
        assert!(shadow.resize(shadow.live(blocks[2]), larger.size()));
        refused(shadow, blocks[2], old, wrong_layout(blocks[2]));
        // One that moves: its old place is free.
        let moved = shadow.reallocate(shadow.live(blocks[0]), larger.size()).expect("room");
        assert_ne!(moved, blocks[0]);
        refused(shadow, blocks[0], old, stale(blocks[0]));
        refused(shadow, blocks[0], larger, stale(blocks[0]));
    });
}

#[test]
fn before_there_is_memory_every_block_is_foreign() {
    for kind in told(checked_kinds()) {
        let mut shadow = Shadow::new(kind);
        let elsewhere = Ground::new(0, 64);
        refused(&mut shadow, elsewhere.start(), layout(8), foreign(elsewhere.start()));
        assert_eq!(shadow.allocate(layout(1)), None);
        assert_eq!(shadow.allocate(Layout::from_size_align(1, 64).expect("small")), None);
        assert!(!shadow.heap.contains(elsewhere.start()));
    }
}

#[test]
fn with_several_regions_an_address_of_none_is_refused_even_unchecked() {
    for kind in [Kind::plain::<Fast, 3>(), Kind::plain::<Small, 3>()] {
        let mut shadow = Shadow::with(kind, 4096);
        shadow.add(8, 2000).expect("large enough");
        let elsewhere = Ground::new(0, 64);
        // SAFETY: refused, which is asserted.
        let said = unsafe { shadow.heap.free(elsewhere.start(), layout(8)) };
        assert_eq!(said, foreign(elsewhere.start()));
        let end = off(shadow.address(0, 0).expect("a ground"), 4096);
        // SAFETY: as above.
        assert_eq!(unsafe { shadow.heap.free(end, layout(8)) }, foreign(end));
        shadow.judge();
    }
}

#[test]
fn a_heap_that_can_have_no_region_answers_too() {
    let elsewhere = Ground::new(0, 4096);
    let mut fast: RegionHeap<Fast, 0> = RegionHeap::empty();
    let mut checked: RegionHeap<Checked, 0> = RegionHeap::empty();
    assert_eq!((fast.allocate(layout(8)), checked.allocate(layout(8))), (None, None));
    // SAFETY: refused, which is asserted.
    assert_eq!(unsafe { fast.free(elsewhere.start(), layout(8)) }, foreign(elsewhere.start()));
    // SAFETY: as above.
    assert_eq!(unsafe { checked.free(elsewhere.start(), layout(8)) }, foreign(elsewhere.start()));
    assert_eq!(fast.check(), Ok(()));
}
