//! What the heap promises in numbers, and who goes where: small stories with known ends.

use crate::world::shadow::Shadow;
use crate::world::{Kind, cut, plain_kinds, told};
use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_core::heap::{Fast, MOST_MERGED, Packed};

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 1).expect("small")
}

/// A heap of 64 KiB of each kind without headers.
fn each(story: impl Fn(&mut Shadow, usize)) {
    for kind in told(plain_kinds()) {
        let mut shadow = Shadow::with(kind, 64 << 10);
        story(&mut shadow, kind.granule);
        shadow.judge();
        shadow.drain();
    }
}

fn take<const N: usize>(shadow: &mut Shadow, granules: [usize; N]) -> [NonNull<u8>; N] {
    granules.map(|granules| shadow.allocate(layout(granules * shadow.kind.granule)).expect("room"))
}

fn free(shadow: &mut Shadow, block: NonNull<u8>) {
    shadow.free(shadow.live(block));
    shadow.judge();
}

#[test]
fn a_block_costs_its_bytes_rounded_up_to_a_granule() {
    each(|shadow, granule| {
        for bytes in (1..=130).chain([4096, 4097]) {
            let before = shadow.heap.usage().live;
            shadow.allocate(layout(bytes)).expect("room");
            assert_eq!(shadow.heap.usage().live - before, bytes.div_ceil(granule) * granule, "{bytes}");
        }
    });
}

#[test]
fn overhead_of_16_64_and_100_bytes() {
    let cost = |kind: Kind, bytes: usize| {
        let mut shadow = Shadow::with(kind, 64 << 10);
        shadow.allocate(layout(bytes)).expect("room");
        // One bit a granule beside it.
        let bits = shadow.heap.usage().live / kind.granule;
        (shadow.heap.usage().live - bytes, bits)
    };
    for kind in told(plain_kinds()) {
        let expected = if kind.granule == 8 { [(0, 2), (0, 8), (4, 13)] } else { [(0, 1), (0, 4), (12, 7)] };
        assert_eq!([16, 64, 100].map(|bytes| cost(kind, bytes)), expected, "{}", kind.name);
    }
}

#[test]
fn three_neighbours_become_one_in_every_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    // Sizes of a list of their own, of one shared with others, and beyond what two edges in one word can say.
    let sizes = [[1, 1, 1], [2, 3, 5], [1, 70, 9], [60, 56, 57], [200, 64, 130], [1, 1, 300]];
    for sizes in sizes.into_iter().step_by(cut(1, 3)) {
        for order in orders.into_iter().step_by(cut(1, 2)) {
            each(|shadow, _| {
                let [wall, a, b, c, _end] = take(shadow, [1, sizes[0], sizes[1], sizes[2], 1]);
                let before = shadow.gaps();
                for i in order {
                    free(shadow, [a, b, c][i]);
                }
                let gaps = shadow.gaps();
                assert_eq!(gaps.len(), before.len() + 1, "one more gap, and check() and usage() agree");
                // All of it is one block: the one in front can take it all, and no granule more.
                let all = (1 + sizes.iter().sum::<usize>()) * shadow.kind.granule;
                assert!(!shadow.resize(shadow.live(wall), all + 1));
                assert!(shadow.resize(shadow.live(wall), all));
                shadow.judge();
                free(shadow, wall);
            });
        }
    }
}

#[test]
fn the_blocks_at_both_ends_of_a_region_merge_too() {
    each(|shadow, granule| {
        let [first, second] = take(shadow, [5, 5]);
        shadow.take_rest(0);
        assert_eq!((shadow.heap.usage().free, shadow.allocate(layout(1))), (0, None));
        let last = *shadow.blocks().last().expect("several");
        let rest = shadow.live(last).layout.size();
        assert_eq!(last.addr().get() + rest, shadow.plots[0].end);
        assert_eq!(first.addr().get(), shadow.plots[0].first);
        free(shadow, first);
        free(shadow, last);
        assert_eq!(shadow.heap.usage().free, rest + 5 * granule);
        free(shadow, second);
    });
}

#[test]
fn small_blocks_lie_side_by_side_without_a_search() {
    each(|shadow, granule| {
        let blocks = take(shadow, [1, 2, 3, 4, 40]).map(|block| block.addr().get());
        let steps: Vec<_> = blocks.windows(2).map(|pair| (pair[1] - pair[0]) / granule).collect();
        assert_eq!(steps, [1, 2, 3, 4]);
    });
}

#[test]
fn a_hole_of_exactly_its_size_is_used_before_anything_is_cut() {
    each(|shadow, _| {
        let [_a, hole, _b, other, _c, third, _d] = take(shadow, [1, 7, 1, 9, 1, 11, 1]);
        for block in [hole, other, third] {
            free(shadow, block);
        }
        assert_eq!(take(shadow, [9]), [other]);
        assert_eq!(take(shadow, [7]), [hole]);
    });
}

#[test]
fn a_block_shrinks_where_it_is_and_gives_the_end_back() {
    each(|shadow, granule| {
        let [a, _wall] = take(shadow, [100, 1]);
        for granules in [99, 98, 60, 57, 56, 2, 1] {
            assert!(shadow.resize(shadow.live(a), granules * granule));
            shadow.judge();
        }
        assert!(shadow.resize(shadow.live(a), 1), "within its granule nothing happens");
        assert!(shadow.resize(shadow.live(a), granule));
    });
}

#[test]
fn a_block_grows_into_what_is_free_behind_it() {
    // Behind it: the block freed last, one in a list, or one that was merged.
    for freed in [&[1][..], &[1, 3], &[1, 2], &[2, 1]] {
        each(|shadow, granule| {
            let blocks = take(shadow, [4, 10, 20, 30, 1]);
            for &i in freed {
                free(shadow, blocks[i]);
            }
            let room = if freed.contains(&2) { 30 } else { 10 };
            let grown =
                |shadow: &mut Shadow, granules: usize| shadow.resize(shadow.live(blocks[0]), granules * granule);
            assert!(!grown(shadow, 4 + room + 1), "one granule too many: nothing changes");
            shadow.judge();
            assert!(grown(shadow, 4 + room - 1), "one granule stays free");
            shadow.judge();
            assert!(grown(shadow, 4 + room), "to the last granule");
            shadow.judge();
            assert!(!grown(shadow, 4 + room + 1), "the next one is live");
        });
    }
}

#[test]
fn a_block_grows_into_the_rest_of_memory() {
    each(|shadow, granule| {
        let [a] = take(shadow, [4]);
        let all = shadow.heap.usage().free / granule + 4;
        for granules in [5, 100, all] {
            assert!(!shadow.resize(shadow.live(a), (all + 1) * granule));
            assert!(shadow.resize(shadow.live(a), granules * granule));
            shadow.judge();
        }
        assert_eq!(shadow.heap.usage().free_blocks, 0);
        assert!(shadow.resize(shadow.live(a), 1));
    });
}

#[test]
fn a_reallocation_moves_only_when_it_must() {
    each(|shadow, granule| {
        let [a, b, c, _wall] = take(shadow, [10, 10, 10, 1]);
        free(shadow, b);
        assert_eq!(shadow.reallocate(shadow.live(a), 20 * granule), Some(a), "what is behind it is free");
        assert_eq!(shadow.reallocate(shadow.live(c), 3 * granule), Some(c), "shorter");
        let moved = shadow.reallocate(shadow.live(a), 40 * granule).expect("room");
        assert_ne!(moved, a);
        assert_eq!(shadow.reallocate(shadow.live(moved), 64 << 10), None, "nothing is so large: it stays as it was");
        assert_eq!(shadow.reallocate(shadow.live(moved), isize::MAX as usize), None);
        shadow.judge();
    });
}

#[test]
fn what_is_cut_off_in_front_of_an_aligned_block_is_used() {
    each(|shadow, granule| {
        for bits in 3..=14 {
            let align = 1 << bits;
            take(shadow, [1]);
            let aligned = Layout::from_size_align(3 * granule, align).expect("small");
            let block = shadow.allocate(aligned).expect("room");
            assert_eq!(block.addr().get() % align, 0);
            shadow.judge();
        }
    });
}

#[test]
fn a_hole_that_only_just_fits_an_aligned_block_is_found() {
    for bits in [6, 8, 10] {
        each(|shadow, granule| {
            let align = 1 << bits;
            let aligned = Layout::from_size_align(5 * granule, align).expect("small");
            let block = shadow.allocate(aligned).expect("room");
            take(shadow, [1]);
            free(shadow, block);
            take(shadow, [align / granule + 9]);
            assert_eq!(shadow.allocate(aligned).map(|again| again.addr().get() % align), Some(0));
        });
    }
}

#[test]
fn a_hole_of_exactly_an_aligned_blocks_size_is_found_before_a_refusal() {
    each(|shadow, granule| {
        let aligned = Layout::from_size_align(5 * granule, 512).expect("small");
        let block = shadow.allocate(aligned).expect("room");
        shadow.take_rest(0);
        free(shadow, block);
        assert_eq!(shadow.allocate(aligned), Some(block));
    });
}

#[test]
fn a_request_of_the_largest_free_block_is_served_after_a_refusal_too() {
    each(|shadow, _| {
        for _ in 0..2 {
            let largest = shadow.heap.usage().largest_free;
            assert_eq!(shadow.allocate(layout(largest + 1)), None);
            let block = shadow.allocate(layout(largest)).expect("one block of that size is free");
            assert_eq!(shadow.heap.usage().free, 0);
            free(shadow, block);
        }
    });
}

/// A heap that defers, with 64 KiB: 8192 granules of 8 bytes, so that 15 blocks may wait.
fn deferring() -> Shadow {
    Shadow::with(Kind::plain::<Fast<Packed>, 1>(), 64 << 10)
}

#[test]
fn a_block_that_waits_serves_the_next_request_of_its_size() {
    let mut shadow = deferring();
    let [first, _, second, _, third, _wall] = take(&mut shadow, [9, 1, 5, 1, 9, 1]);
    for block in [first, second, third] {
        free(&mut shadow, block);
    }
    // The third is the run, which is asked last.
    assert_eq!(take(&mut shadow, [9, 5]), [first, second]);
    assert!(take(&mut shadow, [9]) != [third], "the rest of memory is cut first");
    shadow.drain();
}

#[test]
fn blocks_freed_in_order_become_one_without_a_merge() {
    let mut shadow = deferring();
    let blocks: [_; 30] = take(&mut shadow, [3; 30]);
    take(&mut shadow, [1]);
    blocks.iter().for_each(|&block| free(&mut shadow, block));
    assert_eq!(shadow.heap.usage().free_blocks, 2, "the run and the rest of memory");
    shadow.drain();
}

#[test]
fn few_blocks_wait_and_each_call_merges_two_of_them() {
    let mut shadow = deferring();
    let blocks: [_; 200] = take(&mut shadow, [3; 200]);
    for (i, pair) in blocks.chunks(2).enumerate() {
        free(&mut shadow, pair[0]);
        // The rest of memory, the run, and what waits or was merged: nothing touches anything.
        assert_eq!(shadow.heap.usage().free_blocks, i + 2);
    }
    let mut last = shadow.heap.usage().free_blocks;
    for pair in blocks.chunks(2) {
        free(&mut shadow, pair[1]);
        let now = shadow.heap.usage().free_blocks;
        assert!(now + 2 * MOST_MERGED >= last, "{last} free blocks became {now} in one call");
        last = now;
    }
    assert!(last > 2, "some wait");
    shadow.drain();
}

#[test]
fn what_waits_is_merged_before_a_request_is_refused() {
    let mut shadow = deferring();
    let all = shadow.heap.usage().free / shadow.kind.granule;
    let blocks: [_; 100] = take(&mut shadow, [7; 100]);
    blocks.iter().step_by(2).chain(blocks.iter().skip(1).step_by(2)).for_each(|&block| free(&mut shadow, block));
    assert!(shadow.heap.usage().free_blocks > 1, "some wait");
    take(&mut shadow, [all / 8 * 7]);
    shadow.drain();
}

#[test]
fn a_block_grows_into_what_waits_rather_than_be_refused() {
    let mut shadow = deferring();
    let [grows, behind, _wall] = take(&mut shadow, [7, 7, 1]);
    shadow.take_rest(0);
    let [other, _] = shadow.blocks()[..2] else { unreachable!() };
    assert_eq!(other, grows);
    free(&mut shadow, behind);
    let live = shadow.live(grows);
    assert_eq!(shadow.reallocate(live, 14 * shadow.kind.granule), Some(grows));
    shadow.drain();
}
