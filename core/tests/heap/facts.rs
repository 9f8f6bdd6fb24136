//! What the heap promises in numbers, and who goes where: small stories with known ends.

use crate::world::shadow::Shadow;
use crate::world::{Kind, Unusual, cut, plain_kinds, told};
use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_core::heap::Packed;

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
fn a_block_that_fits_nowhere_else_moves_down_into_what_is_free_before_it() {
    // What is behind it: a live block, the rest of memory, or a free block.
    for behind in [0, 1, 2] {
        each(|shadow, granule| {
            if !shadow.kind.slides {
                return;
            }
            let [before, block, other, _wall] = take(shadow, [300, 200, 100, 1]);
            if behind == 1 {
                // Nothing but the rest of memory is free, and the block lies right before it.
                let rest = shadow.heap.usage().largest_free;
                let [a, b] =
                    [rest - 250 * granule, 200 * granule].map(|bytes| shadow.allocate(layout(bytes)).expect("room"));
                free(shadow, a);
                let size = rest - 50 * granule;
                let moved = shadow.reallocate(shadow.live(b), size).expect("both sides together are enough");
                assert_eq!(moved, a);
                assert_eq!(shadow.reallocate(shadow.live(moved), rest + granule), None);
                return;
            }
            let rest = shadow.heap.usage().largest_free;
            shadow.allocate(layout(rest)).expect("the rest");
            free(shadow, before);
            let mut room = 500;
            if behind == 2 {
                free(shadow, other);
                room += 100;
            }
            assert_eq!(shadow.reallocate(shadow.live(block), (room + 1) * granule), None);
            shadow.judge();
            // In place comes first, where that is enough.
            let size = if behind == 2 { room - 1 } else { room };
            assert_eq!(shadow.reallocate(shadow.live(block), size * granule), Some(before));
            shadow.judge();
            assert_eq!(shadow.reallocate(shadow.live(before), room * granule), Some(before));
        });
    }
}

#[test]
fn the_next_block_is_cut_from_the_larger_of_two_rests() {
    for (size, old) in [(38, true), (34, true), (33, false), (20, false)] {
        let mut shadow = Shadow::with(Kind::plain::<Unusual<Packed, true, false, 3>, 1>(), 16 << 10);
        let [hole, _wall] = take(&mut shadow, [40, 1]);
        shadow.take_rest(6);
        let [rest, _] = shadow.gaps()[0];
        free(&mut shadow, hole);
        // Of the hole there remain 2, 6, 7 and 20 granules.
        assert_eq!(take(&mut shadow, [size]), [hole]);
        let next = if old { rest } else { hole.addr().get() + size * shadow.kind.granule };
        assert_eq!(take(&mut shadow, [1]).map(|block| block.addr().get()), [next], "{size}");
        shadow.judge();
        shadow.drain();
    }
}

#[test]
fn a_search_in_the_own_list_finds_the_third_block_and_not_the_fourth() {
    let exact = usize::BITS as usize;
    // All of one list, the smaller ones looked at first: the request fits the first freed alone.
    for (smaller, found) in [(0, true), (1, true), (2, true), (3, false)] {
        let mut shadow = Shadow::with(Kind::plain::<Unusual<Packed, true, false, 3>, 1>(), 16 << 10);
        let blocks: Vec<_> = (0..4)
            .map(|i| {
                let [block, _wall] = take(&mut shadow, [exact + 3 - i, 1]);
                block
            })
            .collect();
        shadow.take_rest(0);
        blocks[..=smaller].iter().for_each(|&block| free(&mut shadow, block));
        let given = shadow.allocate(layout((exact + 3) * shadow.kind.granule));
        assert_eq!(given, found.then_some(blocks[0]), "behind {smaller} that are too small");
        shadow.judge();
        shadow.drain();
    }
}
