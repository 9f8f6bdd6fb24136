//! The simulated sources: counting, capacity, misuse, injected failures.

use crate::common;

use common::MIB;
use proptest::prelude::*;
use std::collections::BTreeSet;
use terrace_core::{Region, Source, SourceError, SourceUsage};
use terrace_models::{Growing, Segments};

const PAGE: u64 = 2 * MIB;

fn misuse<T: std::fmt::Debug>(result: Result<T, SourceError>) {
    assert!(matches!(result, Err(SourceError::Misuse(_))), "{result:?} is not a misuse");
}

fn failed<T: std::fmt::Debug>(result: Result<T, SourceError>) {
    assert!(matches!(result, Err(SourceError::Failed { .. })), "{result:?} is not a failure");
}

#[test]
fn segments_count_and_stay_apart() {
    let mut source = Segments::new(0);
    let regions = [1, MIB, 3 * MIB, 20 * MIB].map(|bytes| source.take(bytes).unwrap());
    for pair in regions.windows(2) {
        assert!(pair[0].base + pair[0].bytes < pair[1].base, "never adjacent");
        assert!(pair[1].base.is_multiple_of(PAGE));
    }
    assert_eq!(source.outstanding(), regions);
    let sum = 1 + 24 * MIB;
    let usage = SourceUsage { capacity: 0, reserved: sum, peak_reserved: sum, calls: 4, handles: 4 };
    assert_eq!(source.usage(), usage);
    source.give_back(regions[3]).unwrap();
    assert_eq!(source.usage(), SourceUsage { reserved: sum - 20 * MIB, calls: 5, ..usage });
    let again = source.take(20 * MIB).unwrap();
    assert!(again.base > regions[3].base, "addresses are not used twice");
    assert_eq!((source.page_bytes(), source.reserve(PAGE)), (0, Err(SourceError::Unsupported)));
    assert_eq!(source.map(again, 0, PAGE), Err(SourceError::Unsupported));
}

#[test]
fn segments_refuse_misuse() {
    let mut source = Segments::new(0);
    let region = source.take(MIB).unwrap();
    let before = source.usage();
    misuse(source.take(0));
    misuse(source.give_back(Region { id: region.id + 1, ..region }));
    misuse(source.give_back(Region { bytes: region.bytes - 1, ..region }));
    assert_eq!(source.usage(), before);
    source.give_back(region).unwrap();
    misuse(source.give_back(region));
    assert!(source.outstanding().is_empty());
}

#[test]
fn capacity_is_exact() {
    let mut fixed = Segments::new(10 * MIB);
    let region = fixed.take(4 * MIB).unwrap();
    assert_eq!(fixed.take(6 * MIB + 1), Err(SourceError::OutOfMemory { available: 6 * MIB }));
    fixed.take(6 * MIB).unwrap();
    assert_eq!(fixed.take(1), Err(SourceError::OutOfMemory { available: 0 }));
    fixed.give_back(region).unwrap();
    fixed.take(4 * MIB).unwrap();

    let mut growing = Growing::new(10 * MIB);
    let space = growing.reserve(1 << 44).unwrap();
    growing.map(space, 0, 8 * MIB).unwrap();
    assert_eq!(growing.map(space, 8 * MIB, 4 * MIB), Err(SourceError::OutOfMemory { available: 2 * MIB }));
    assert_eq!(growing.take(3 * MIB), Err(SourceError::OutOfMemory { available: 2 * MIB }));
    growing.take(MIB).unwrap();
    assert_eq!(growing.usage().reserved, 10 * MIB, "a take is rounded up to pages");
    assert!(matches!(growing.reserve(u64::MAX), Err(SourceError::OutOfMemory { .. })));
    assert!(matches!(Growing::new(0).take(1 << 62), Err(SourceError::OutOfMemory { .. })));
    assert!(matches!(Segments::new(0).take(u64::MAX), Err(SourceError::OutOfMemory { .. })));
}

#[test]
fn growing_counts_ranges_and_pages() {
    let mut source = Growing::new(0);
    let space = source.reserve(16 << 40).unwrap();
    assert_eq!(source.usage(), SourceUsage::default(), "address space is free");
    source.map(space, 0, 200 * PAGE).unwrap();
    source.unmap(space, 50 * PAGE, 100 * PAGE).unwrap();
    source.shift(space, 0, 1000 * PAGE, 10 * PAGE).unwrap();
    let usage = source.usage();
    assert_eq!((usage.calls, usage.handles), (3, 200));
    assert_eq!((usage.reserved, usage.peak_reserved), (100 * PAGE, 200 * PAGE));
    assert_eq!(source.outstanding(), [(space, 100 * PAGE)]);
    // Mapped: [10, 50), [150, 200), [1000, 1010).
    source.give_back(space).unwrap();
    assert_eq!((source.usage().calls, source.usage().reserved), (6, 0));
    misuse(source.give_back(space));
    let whole = source.take(3 * MIB).unwrap();
    assert_eq!((whole.bytes, source.usage().calls, source.usage().handles), (4 * MIB, 7, 202));
    source.give_back(whole).unwrap();
    assert_eq!(source.usage().calls, 8);
}

#[test]
fn growing_refuses_misuse() {
    let mut source = Growing::new(0);
    let space = source.reserve(10 * PAGE).unwrap();
    source.map(space, 2 * PAGE, 3 * PAGE).unwrap();
    let before = (source.usage(), source.outstanding());
    misuse(source.map(space, 4 * PAGE, 2 * PAGE)); // page 4 is mapped
    misuse(source.map(space, 1, PAGE));
    misuse(source.map(space, 0, PAGE + 1));
    misuse(source.map(space, 0, 0));
    misuse(source.map(space, 9 * PAGE, 2 * PAGE)); // beyond the end
    misuse(source.map(space, u64::MAX - PAGE + 1, PAGE));
    misuse(source.unmap(space, 4 * PAGE, 2 * PAGE)); // page 5 is not mapped
    misuse(source.unmap(space, 2 * PAGE, PAGE / 2));
    misuse(source.shift(space, PAGE, 6 * PAGE, 2 * PAGE)); // page 1 is not mapped
    misuse(source.shift(space, 2 * PAGE, 4 * PAGE, 2 * PAGE)); // page 4 is mapped
    misuse(source.shift(space, 2 * PAGE, 9 * PAGE, 2 * PAGE)); // beyond the end
    misuse(source.map(Region { id: 99, ..space }, 0, PAGE));
    misuse(source.reserve(0));
    misuse(source.take(0));
    assert_eq!((source.usage(), source.outstanding()), before);
}

#[test]
fn planned_failures_change_nothing() {
    let mut source = Growing::new(0);
    source.fail_call(2);
    source.fail_call(3);
    let space = source.reserve(10 * PAGE).unwrap();
    source.map(space, 0, 2 * PAGE).unwrap();
    let before = (source.usage(), source.outstanding());
    failed(source.map(space, 4 * PAGE, PAGE));
    misuse(source.map(space, 0, PAGE)); // a misuse does not count as a call
    failed(source.shift(space, 0, 4 * PAGE, PAGE));
    assert_eq!((source.usage(), source.outstanding()), before);
    source.map(space, 4 * PAGE, PAGE).unwrap();
    source.fail_call(2); // two ranges are two calls; the second one fails, and nothing is given back
    failed(source.give_back(space));
    assert_eq!(source.usage().reserved, 3 * PAGE);
    source.give_back(space).unwrap();
    assert_eq!(source.faults().struck(), 3);
}

#[test]
fn random_failures_follow_their_probability() {
    let mut source = Segments::new(0);
    source.faults().fail_randomly(7, 0.25);
    let failures = (0..10_000).filter(|_| source.take(1).is_err()).count();
    // Binomial with n = 10^4, p = 1/4: deviation 43; five of them either way.
    assert!((2285..=2715).contains(&failures), "{failures} failures");
    assert_eq!(source.usage().calls, 10_000 - failures as u64);
    source.faults().fail_randomly(7, 1.0);
    failed(source.take(1));
    source.faults().stop();
    source.take(1).unwrap();
}

proptest! {
    /// Growing against a set of page numbers.
    #[test]
    fn growing_agrees_with_a_set(steps in prop::collection::vec((0..3u8, 0..200u64, 0..200u64, 1..70u64), 1..60)) {
        let mut source = Growing::new(150 * PAGE);
        let space = source.reserve(256 * PAGE).unwrap();
        let mut set: BTreeSet<u64> = BTreeSet::new();
        for (op, first, other, count) in steps {
            let inside = first + count <= 256 && other + count <= 256;
            let (from, to): (BTreeSet<u64>, BTreeSet<u64>) = ((first..first + count).collect(), (other..other + count).collect());
            let result = match op {
                0 => source.map(space, first * PAGE, count * PAGE),
                1 => source.unmap(space, first * PAGE, count * PAGE),
                _ => source.shift(space, first * PAGE, other * PAGE, count * PAGE),
            };
            let allowed = match op {
                0 => first + count <= 256 && set.is_disjoint(&from) && set.len() as u64 + count <= 150,
                1 => from.is_subset(&set),
                _ => inside && from.is_subset(&set) && set.is_disjoint(&to),
            };
            prop_assert_eq!(result.is_ok(), allowed);
            if allowed {
                if op != 0 { set.retain(|page| !from.contains(page)); }
                if op == 0 { set.extend(&from); }
                if op == 2 { set.extend(&to); }
            }
            prop_assert_eq!(source.usage().reserved, set.len() as u64 * PAGE);
        }
        let calls = source.usage().calls;
        let ranges = set.iter().filter(|&&page| page == 0 || !set.contains(&(page - 1))).count() as u64;
        source.give_back(space).unwrap();
        prop_assert_eq!(source.usage().calls, calls + ranges);
    }
}
