//! Regions as large as their records can say: places and sizes with every bit in use.

use crate::world::shadow::Shadow;
use crate::world::{Kind, cut};
use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_core::heap::{Bounded, Checked, Fast, Narrow, Packed, Small, Wide};

/// Each kind with a region of the most it can have; wide records, whose most is 64 GiB, with more than 2^20 granules.
fn each(story: impl Fn(&mut Shadow)) {
    for (kind, bytes) in [
        (Kind::plain::<Fast<Narrow>, 1>(), 512 << 10),
        (Kind::plain::<Checked<Small<Narrow>>, 1>(), 512 << 10),
        (Kind::plain::<Fast<Packed>, 1>(), 20 << 20),
        (Kind::plain::<Checked<Bounded<Packed>>, 1>(), 20 << 20),
        (Kind::plain::<Checked<Fast<Wide>>, 1>(), 20 << 20),
        (Kind::plain::<Small<Wide>, 1>(), 20 << 20),
    ] {
        let mut shadow = Shadow::with(kind, bytes);
        story(&mut shadow);
        shadow.judge();
        shadow.drain();
    }
}

fn granules(shadow: &Shadow, granules: usize) -> Layout {
    Layout::from_size_align(granules * shadow.kind.granule, 1).expect("small")
}

/// Blocks of `sizes` in turn, until there is no room.
fn fill(shadow: &mut Shadow, sizes: &[usize]) -> Vec<NonNull<u8>> {
    sizes.iter().cycle().map_while(|&size| shadow.allocate(granules(shadow, size))).collect()
}

#[test]
fn one_block_can_be_nearly_all_of_it() {
    each(|shadow| {
        let whole = shadow.take_rest(1);
        let last = shadow.allocate(granules(shadow, 1)).expect("one is left");
        shadow.free(shadow.live(whole));
        shadow.judge();
        // The largest size there is, in a list or freed last; then cut, merged, and cut again.
        let half = shadow.heap.usage().largest_free / shadow.kind.granule / 2;
        let a = shadow.allocate(granules(shadow, half)).expect("room");
        let b = shadow.take_rest(0);
        shadow.judge();
        for block in [b, last, a] {
            shadow.free(shadow.live(block));
            shadow.judge();
        }
    });
}

#[test]
fn lists_at_the_far_end_keep_every_bit_of_their_links() {
    each(|shadow| {
        shadow.take_rest(900);
        let blocks = fill(shadow, &[1, 2, 1, 5, 1, 67, 1, 2]);
        assert!(blocks.len() > 80);
        // Every other one goes: lists of many, far out. Then their middles, their first and their last ones are merged
        // away.
        let free = |shadow: &mut Shadow, i: usize| shadow.free(shadow.live(blocks[i]));
        (1..blocks.len()).step_by(2).for_each(|i| free(shadow, i));
        shadow.judge();
        for i in (0..blocks.len()).step_by(2).filter(|i| i % 6 == 0) {
            free(shadow, i);
            shadow.judge();
        }
        while shadow.allocate(granules(shadow, 2)).is_some() {}
        shadow.judge();
    });
}

#[test]
fn lists_link_both_ends_of_memory() {
    each(|shadow| {
        let [low, _wall] = [3, 1].map(|size| shadow.allocate(granules(shadow, size)).expect("room"));
        let middle = shadow.take_rest(8);
        let [high, _wall] = [3, 1].map(|size| shadow.allocate(granules(shadow, size)).expect("room"));
        for _ in 0..3 {
            for block in [low, high] {
                shadow.free(shadow.live(block));
                shadow.judge();
            }
            // Another block is freed last, so that both are in their list, whose links are the most apart.
            let last = shadow.allocate(granules(shadow, 4)).expect("four are left");
            shadow.free(shadow.live(last));
            shadow.judge();
            let mut again = [0; 2].map(|_| shadow.allocate(granules(shadow, 3)).expect("two such holes"));
            again.sort();
            assert!(again[0] == low || again[1] == high);
            shadow.judge();
            if again != [low, high] {
                return;
            }
        }
        shadow.free(shadow.live(middle));
    });
}

#[test]
fn random_programs_of_every_magnitude() {
    each(|shadow| {
        let mut random = fastrand::Rng::with_seed(1);
        let mut random = move |below: usize| random.usize(..below);
        let magnitudes = (shadow.heap.usage().total / 8).ilog2() as usize;
        for step in 0..cut(2500, 100) {
            let magnitude = random(magnitudes);
            let bytes = 1 + random(1 << magnitude);
            let live = shadow.nth(random(1 << 20));
            match (random(8), live) {
                (0..=3, _) | (_, None) => {
                    let align = if random(4) == 0 { 1 << random(14) } else { 1 };
                    shadow.allocate(Layout::from_size_align(bytes, align).expect("small"));
                }
                (4, Some(live)) => _ = shadow.resize(live, bytes),
                (5, Some(live)) => _ = shadow.reallocate(live, bytes),
                (_, Some(live)) => shadow.free(live),
            }
            if step % 100 == 0 {
                shadow.judge();
            }
        }
    });
}
