//! Holes, claims, and regions that are added and removed, against the model: as an arena with a growing source uses a range.

use crate::range_model::GRANULE;
use crate::range_model::world::{Act, PLOT, World};
use proptest::prelude::*;
use terrace_core::{AllocError, Allocator, AnyFit, Branch, Cause, ExtentKind, Fit, FreeError, RegionId};

/// Slots: few, so that they run out often.
const SLOTS: usize = 14;

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let part = || (any::<u8>(), any::<u8>(), any::<u8>());
    let act = prop_oneof![
        4 => (0..12 * GRANULE as u16, 0..7u8, any::<bool>()).prop_map(|(bytes, bits, exact)| Act::Allocate(bytes, bits, exact)),
        4 => any::<u8>().prop_map(Act::Free),
        1 => (any::<u8>(), 0..12 * GRANULE as u16).prop_map(|(at, bytes)| Act::Resize(at, bytes)),
        4 => part().prop_map(|(at, front, len)| Act::Back(at, front, len)),
        4 => part().prop_map(|(at, front, len)| Act::Strip(at, front, len)),
        2 => part().prop_map(|(at, front, len)| Act::Claim(at, front, len)),
        1 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(plot, len, space)| Act::Add(plot, len, space)),
        1 => any::<u8>().prop_map(Act::Remove),
    ];
    prop::collection::vec(act, 1..100)
}

fn world(fit: Fit) -> World<AnyFit<Vec<Branch>>> {
    World::new(fit, AnyFit::new(fit, vec![Branch::EMPTY; SLOTS]), SLOTS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn holes_claims_and_regions_are_what_the_map_says(
        acts in acts(),
        fit in prop_oneof![Just(Fit::Good), Just(Fit::Best), Just(Fit::First), Just(Fit::Worst)],
    ) {
        let mut world = world(fit);
        world.add(0, PLOT, true);
        world.add(PLOT, PLOT, false);
        world.play(&acts);
    }
}

#[test]
fn a_removed_region_is_unknown_and_its_addresses_can_be_added_again() {
    let mut world = world(Fit::Best);
    world.add(0, PLOT, true);
    world.add(2 * PLOT, 5, false);
    world.remove(0);
    let gone = world.gone.expect("nothing was live in it");
    assert!(matches!(world.range.remove_region(gone), Err(FreeError::Foreign { .. })), "twice");
    world.add(0, 3, false);
    world.map.compare(&world.range, SLOTS);
}

#[test]
fn the_front_and_the_end_of_a_hole_are_committed_without_a_slot() {
    for fit in [Fit::Good, Fit::Best, Fit::First, Fit::Worst] {
        for (front, bytes) in [(0, 30), (10, 30)] {
            let mut world = World::new(fit, AnyFit::new(fit, vec![Branch::EMPTY; 2]), 2);
            world.add(0, PLOT, true);
            assert_eq!((world.range.slots_left(), PLOT), (0, 40));
            // The map says that no slot is needed.
            world.play(&[Act::Back(0, front, bytes)]);
            assert_eq!(world.range.backed(), 30 * GRANULE);
        }
    }
}

#[test]
fn stretches_off_the_granule_or_outside_are_refused() {
    let mut world = world(Fit::First);
    world.add(PLOT, PLOT, false);
    let (gap, ..) = world.pick(ExtentKind::Free, 0).expect("all is free");
    for (start, bytes) in [
        (gap.start + 1, GRANULE),
        (gap.start, GRANULE + 1),
        (gap.start, 0),
        (gap.start - GRANULE, GRANULE),
        (gap.end() - GRANULE, 2 * GRANULE),
        (gap.start, u64::MAX - GRANULE + 1),
        (u64::MAX - GRANULE + 1, 2 * GRANULE),
    ] {
        for result in [world.range.decommit(&gap, start, bytes), world.range.claim(&gap, start, bytes).map(|_| ())] {
            assert_eq!(result.expect_err("not inside").cause, Cause::BadRequest, "{start} {bytes}");
        }
        let back = world.range.commit(&gap, start, bytes);
        assert_eq!(back.expect_err("a gap is no hole").cause, Cause::BadRequest);
    }
    world.map.compare(&world.range, SLOTS);
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let mut range = world(Fit::Good).range.based(1 << 20);
    let cause = |result: Result<RegionId, AllocError>| result.expect_err("refused").cause;
    let far = (1 << 20) + (u64::from(u32::MAX) + 1) * GRANULE;
    assert_eq!(cause(range.add_region(1 << 20, 0)), Cause::BadRequest, "nothing");
    assert_eq!(cause(range.add_region((1 << 20) + 1, GRANULE)), Cause::BadRequest, "between granules");
    assert_eq!(cause(range.add_region(1 << 20, GRANULE + 1)), Cause::BadRequest, "half a granule");
    assert_eq!(cause(range.add_region((1 << 20) - GRANULE, GRANULE)), Cause::TooLarge, "below the base");
    assert_eq!(cause(range.add_region(far, GRANULE)), Cause::TooLarge, "beyond 2^32 granules");
    assert_eq!(cause(range.add_region(1 << 20, u64::MAX - GRANULE + 1)), Cause::TooLarge, "past the last address");
    assert_eq!(cause(range.add_space(far, GRANULE)), Cause::TooLarge);
    assert_eq!(range.slots_left() as usize, SLOTS, "a refused region keeps no slot");
    range.check().expect("nothing changed");
}
