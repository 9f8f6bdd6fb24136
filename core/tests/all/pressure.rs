//! Levels and cache policy at each boundary.

use proptest::prelude::*;
use terrace_core::pressure::{CachePolicy, CapAdvice, HYSTERESIS, Level, Pressure, level};

#[test]
fn levels_begin_exactly_at_60_80_and_95_percent() {
    for capacity in [1000, 1_000_000, 80_000_000_000, (u64::MAX / 1000) * 1000] {
        let part = capacity / 1000;
        for (permille, below, at) in [
            (600, Level::Normal, Level::Elevated),
            (800, Level::Elevated, Level::High),
            (950, Level::High, Level::Critical),
        ] {
            assert_eq!(level(permille * part - 1, capacity), below, "{permille} of {capacity}");
            assert_eq!(level(permille * part, capacity), at, "{permille} of {capacity}");
        }
        assert_eq!((level(0, capacity), level(u64::MAX, capacity)), (Level::Normal, Level::Critical));
    }
    assert_eq!(level(u64::MAX, 0), Level::Normal, "not limited");
}

#[test]
fn a_level_is_left_below_its_beginning_less_hysteresis() {
    for (begins, reached, lower) in [
        (600, Level::Elevated, Level::Normal),
        (800, Level::High, Level::Elevated),
        (950, Level::Critical, Level::High),
    ] {
        let mut pressure = Pressure::new(1000);
        let mut told = Vec::new();
        for used in [begins, begins - 1, begins - HYSTERESIS, begins, begins - HYSTERESIS - 1] {
            pressure.update(used, |level| told.push((used, level)));
        }
        assert_eq!(told, [(begins, reached), (begins - HYSTERESIS - 1, lower)]);
        assert_eq!(pressure.level(), lower);
    }
}

#[test]
fn levels_rise_and_fall_by_several_steps_at_once() {
    let mut pressure = Pressure::new(1000);
    assert_eq!(pressure.update(1000, |_| ()), Level::Critical);
    assert_eq!(pressure.update(760, |_| ()), Level::High, "not below 800 less 50");
    assert_eq!(pressure.update(0, |_| ()), Level::Normal);
}

#[test]
fn caches_grow_below_30_and_shrink_above_80_percent() {
    let policy = CachePolicy::default();
    assert_eq!(policy.advise(299, 1000, 100), CapAdvice::Grow(150));
    assert_eq!(policy.advise(300, 1000, 100), CapAdvice::Keep);
    assert_eq!(policy.advise(800, 1000, 100), CapAdvice::Keep);
    assert_eq!(policy.advise(801, 1000, 100), CapAdvice::Shrink(66));
    assert_eq!(policy.advise(u64::MAX, u64::MAX, u64::MAX), CapAdvice::Shrink(u64::MAX / 3 * 2));
    assert_eq!(policy.advise(u64::MAX, 0, 100), CapAdvice::Grow(150), "not limited");
}

#[test]
fn caps_stay_within_their_bounds() {
    let policy = CachePolicy { min: 60, max: 120, ..CachePolicy::default() };
    assert_eq!(policy.advise(0, 10, 100), CapAdvice::Grow(120));
    assert_eq!(policy.advise(0, 10, 120), CapAdvice::Keep);
    assert_eq!(policy.advise(10, 10, 80), CapAdvice::Shrink(60));
    assert_eq!(policy.advise(10, 10, 60), CapAdvice::Keep);
    assert_eq!(CachePolicy::default().advise(0, 10, 1), CapAdvice::Grow(2), "a cap of one byte still grows");
    assert_eq!(CachePolicy::default().advise(0, 10, u64::MAX), CapAdvice::Keep);
    assert_eq!(CachePolicy::default().advise(10, 10, 0), CapAdvice::Keep);
}

proptest! {
    #[test]
    fn a_level_with_memory_is_between_the_plain_one_and_the_one_of_more(
        capacity in 1u64..1_000_000,
        fills in prop::collection::vec(0f64..1.1, 1..50),
    ) {
        let mut pressure = Pressure::new(capacity);
        let mut last = Level::Normal;
        for fill in fills {
            let used = (capacity as f64 * fill) as u64;
            let mut told = None;
            let now = pressure.update(used, |level| told = Some(level));
            let plain = level(used, capacity);
            prop_assert!(now >= plain && (now == plain || now <= last), "never too low, never risen without need");
            prop_assert_eq!(told, (now != last).then_some(now), "a change is told once");
            last = now;
        }
    }
}
