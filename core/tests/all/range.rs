//! Ranges with each strategy against the model: the gap chosen, the address in it, and no request that fails needlessly.

use crate::range_model::GRANULE;
use crate::range_model::world::{Act, PLOT, World};
use proptest::prelude::*;
use terrace_core::{
    Allocator, AnyFit, BestFit, Branch, ExtentKind, FirstFit, Fit, GoodFit, Index, Owner, Range, RangeExtent, Request,
    Slot, WorstFit,
};

/// Slots of each range: more than the tests use.
const SLOTS: usize = 200;

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let bytes = || prop_oneof![any::<u16>(), (0..12u16).prop_map(|granules| granules * GRANULE as u16)];
    let align = || prop_oneof![2 => Just(0u8), 1 => 0..9u8];
    let act = prop_oneof![
        5 => (bytes(), align(), prop::bool::weighted(0.2)).prop_map(|(bytes, bits, exact)| Act::Allocate(bytes, bits, exact)),
        4 => any::<u8>().prop_map(Act::Free),
        1 => (any::<u8>(), bytes()).prop_map(|(at, bytes)| Act::Resize(at, bytes)),
    ];
    prop::collection::vec(act, 1..80)
}

/// Runs the acts on two adjacent regions, which must not merge, and one apart.
fn play(fit: Fit, index: impl Index, acts: &[Act]) {
    let mut world = World::new(fit, index, SLOTS);
    world.add(0, PLOT, false);
    world.add(PLOT, PLOT - 3, false);
    world.add(3 * PLOT, 20, false);
    world.play(acts);
}

fn branches() -> Vec<Branch> {
    vec![Branch::EMPTY; SLOTS]
}

proptest! {
    #[test]
    fn best_fit_takes_the_smallest_gap_that_fits_and_the_lowest_of_equals(acts in acts()) {
        play(Fit::Best, BestFit::new(branches()), &acts);
    }

    #[test]
    fn first_fit_takes_the_lowest_address_that_fits(acts in acts()) {
        play(Fit::First, FirstFit::new(branches()), &acts);
    }

    #[test]
    fn worst_fit_takes_the_largest_gap(acts in acts()) {
        play(Fit::Worst, WorstFit::new(branches()), &acts);
    }

    #[test]
    fn good_fit_takes_a_gap_of_its_own_bin_or_of_the_first_bin_above(acts in acts()) {
        play(Fit::Good, GoodFit::new(), &acts);
    }

    #[test]
    fn any_fit_is_the_strategy_it_was_given(
        acts in acts(),
        fit in prop_oneof![Just(Fit::Good), Just(Fit::Best), Just(Fit::First), Just(Fit::Worst)],
    ) {
        play(fit, AnyFit::new(fit, branches()), &acts);
    }
}

#[test]
fn each_strategy_on_one_picture() {
    // Gaps of 4, 9, 3 and 9 granules between blocks of one granule; a request of 3 granules.
    let picture = |index| {
        let mut range = Range::new(vec![Slot::EMPTY; 64], GRANULE, index).expect("valid");
        range.add_region(0, 29 * GRANULE).expect("room");
        for at in [4, 14, 18, 28] {
            let gap = last_gap(&range).expect("not all is taken yet");
            range.claim(&gap, at * GRANULE, GRANULE).expect("free");
        }
        range.allocate(Request::new(3 * GRANULE)).expect("three gaps fit").address / GRANULE
    };
    let any = |fit| AnyFit::new(fit, vec![Branch::EMPTY; 64]);
    assert_eq!(picture(any(Fit::First)), 0);
    assert_eq!(picture(any(Fit::Best)), 15);
    assert_eq!(picture(any(Fit::Worst)), 5 + 9 - 3, "the high end of the lower of two of 9");
    assert_eq!(picture(any(Fit::Good)), 15, "a bin of its own for 3 granules");
}

#[test]
fn statistics_count_calls_whatever_the_tickets() {
    for (last, step) in [(0, 1), (0, 2), (1, 2), (1000, 7)] {
        let slots = vec![Slot::EMPTY; 64];
        let mut range = Range::new(slots, GRANULE, GoodFit::new()).expect("valid").with_tickets(last, step);
        let count = |range: &Range<_, _>| (range.stats().allocations, range.stats().frees, range.stats().hits);
        assert_eq!(count(&range), (0, 0, 0));
        range.add_region(0, 16 * GRANULE).expect("room");
        let blocks = [1, 2, 3].map(|granules| range.allocate(Request::new(granules * GRANULE)).expect("room"));
        range.free(blocks[0], Owner(0)).expect("live");
        let renamed = range.rename(blocks[1]).expect("live");
        assert_eq!(count(&range), (3, 1, 3), "a new ticket is no new block");
        let resized = range.resize(renamed, GRANULE).expect("shrinks");
        range.free(resized, Owner(0)).expect("live");
        range.free(blocks[2], Owner(0)).expect("live");
        assert_eq!(count(&range), (3, 3, 3));
    }
}

/// The last gap of the only region.
fn last_gap<I: Index>(range: &Range<Vec<Slot>, I>) -> Option<RangeExtent> {
    let region = range.regions().next()?;
    range.extents(region).filter(|extent| extent.kind == ExtentKind::Free).last()
}
