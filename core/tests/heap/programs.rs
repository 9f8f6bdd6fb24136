//! Random programs on every configuration of the heap, beside a shadow that knows every block.

use crate::world::act::{Act, play};
use crate::world::shadow::Shadow;
use crate::world::{Kind, cut, kinds};
use proptest::prelude::*;

/// Acts of every sort; small numbers of blocks, so that the same ones are met again and again.
fn acts(most: usize) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => any::<(u16, u8)>().prop_map(|(size, align)| Act::Allocate(size, align)),
        2 => any::<(u8, i8)>().prop_map(|(gap, more)| Act::Exact(gap, more)),
        7 => any::<u8>().prop_map(Act::Free),
        1 => Just(Act::FreeHighest),
        2 => any::<(u8, u16)>().prop_map(|(n, size)| Act::Resize(n, size)),
        2 => any::<(u8, i8)>().prop_map(|(n, more)| Act::Stretch(n, more)),
        2 => any::<(u8, u16)>().prop_map(|(n, size)| Act::Reallocate(n, size)),
        1 => any::<(u8, u16, u16, u8)>().prop_map(|(ground, at, size, call)| Act::Wild(ground, at, size, call)),
        2 => any::<(u8, i8, i8, u8)>().prop_map(|(n, off, more, call)| Act::Near(n, off, more, call)),
        1 => any::<(u8, u16)>().prop_map(|(front, size)| Act::Add(front, size)),
    ];
    prop::collection::vec(act, 1..most)
}

fn kind() -> impl Strategy<Value = Kind> {
    let kinds = kinds();
    (0..kinds.len()).prop_map(move |i| kinds[i])
}

/// How many programs: more than the default of 256, since the configurations share them; as many as the environment says where
/// it asks for fewer than the default, as under Miri.
fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if default.cases < 256 { default.cases } else { cases.max(default.cases) };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn a_small_heap_does_what_the_shadow_says(
        kind in kind(),
        front in 0..48usize,
        bytes in 300..6000usize,
        acts in acts(cut(80, 24)),
    ) {
        let mut shadow = Shadow::new(kind);
        _ = shadow.add(front, bytes);
        play(&mut shadow, &acts);
    }

    #[test]
    fn a_tiny_heap_does_too(kind in kind(), front in 0..48usize, bytes in 0..900usize, acts in acts(cut(30, 16))) {
        let mut shadow = Shadow::new(kind);
        _ = shadow.add(front, bytes);
        play(&mut shadow, &acts);
    }

    #[test]
    fn and_one_whose_regions_come_later(kind in kind(), acts in acts(cut(60, 20))) {
        play(&mut Shadow::new(kind), &acts);
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_larger_heap_does_too(kind in kind(), front in 0..48usize, bytes in 6000..200_000usize, acts in acts(cut(200, 30))) {
        let mut shadow = Shadow::new(kind);
        _ = shadow.add(front, bytes);
        play(&mut shadow, &acts);
    }
}

/// Each kind at least once, whatever the programs above drew. Under Miri in regions that are as small as every kind accepts.
#[test]
fn every_kind_runs_a_program() {
    for (i, kind) in kinds().into_iter().enumerate() {
        let mut shadow = Shadow::new(kind);
        shadow.add(i, cut(4000, 2100) + i).expect("large enough");
        let near = [Act::Near(0, 1, 0, 0), Act::Near(1, 0, 1, 1), Act::Wild(0, 8, 40, 2)];
        let first = [(40, 0), (130, 12), (20, 1), (300, 0), (64, 9)].map(|(size, align)| Act::Allocate(size, align));
        let then = [Act::Free(1), Act::Resize(0, 90), Act::Stretch(2, 0), Act::Reallocate(1, 600), Act::Exact(0, 0)];
        let last = [
            Act::Free(2),
            Act::FreeHighest,
            Act::Add(3, cut(3000, 2100)),
            Act::Allocate(200, 3),
            Act::Reallocate(0, 20),
        ];
        play(&mut shadow, &[&first[..], &near, &then, &near, &last].concat());
    }
}
