//! Lent memory as a source: what it refuses, and that no region overlaps another that is out.
#![cfg(not(loom))]

use proptest::prelude::*;
use terrace_core::{FixedSource, Region, Source, SourceError};

fn is_refused(source: &mut FixedSource<'_>, region: Region) -> bool {
    let before = source.usage();
    let refused = matches!(source.give_back(region), Err(SourceError::Misuse(_)));
    refused && source.usage() == before
}

#[test]
fn a_region_returned_twice_frees_no_other() {
    let mut memory = [0; 64];
    let mut source = FixedSource::new(&mut memory);
    let [first, second, third] = [64, 64, 64].map(|bytes| source.take(bytes).expect("room"));
    source.give_back(first).expect("it is out");
    assert!(is_refused(&mut source, first), "it was returned");
    source.give_back(second).expect("it is out");
    assert!(is_refused(&mut source, second) && is_refused(&mut source, first));
    let next = source.take(64).expect("room");
    assert_ne!(next.base, third.base, "the third is out");
    for region in [third, next] {
        source.give_back(region).expect("it is out");
        assert!(is_refused(&mut source, region));
    }
    assert_eq!(source.usage().reserved, 0);
    assert_eq!(source.take(64).map(|region| region.base), Ok(first.base));
}

#[test]
fn what_is_no_region_is_refused() {
    let mut memory = [0; 64];
    let mut source = FixedSource::new(&mut memory);
    let [low, high] = [128, 64].map(|bytes| source.take(bytes).expect("room"));
    let wrong = [
        Region { bytes: 0, ..low },
        Region { bytes: 32, ..low },
        Region { bytes: 192, ..low },
        Region { bytes: u64::MAX - 63, ..low },
        Region { base: high.base, ..low },
        Region { id: low.id + 32, base: low.base + 32, bytes: 64 },
        Region { id: u64::MAX - 63, base: low.base.wrapping_sub(64), bytes: 64 },
        Region { id: 192, base: low.base + 192, bytes: 64 },
    ];
    assert!(wrong.into_iter().all(|region| is_refused(&mut source, region)));
    source.give_back(high).expect("it is out");
    assert!(is_refused(&mut source, Region { bytes: 64, ..low }), "it is half of the only region that is out");
    source.give_back(low).expect("it is out");
}

#[test]
fn a_returned_region_that_is_written_to_costs_memory_but_no_region() {
    let mut memory = [0; 64];
    let mut source = FixedSource::new(&mut memory);
    let [low, _high] = [64, 64].map(|bytes| source.take(bytes).expect("room"));
    source.give_back(low).expect("it is out");
    source.zero(low.base, 16).expect("memory of the source");
    assert!(is_refused(&mut source, low));
    assert_eq!(source.take(64).map(|region| region.base), Ok(low.base + 128));
}

proptest! {
    #[test]
    fn regions_that_are_out_never_overlap(steps in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8), 1..60)) {
        let mut memory = [0; 128];
        let mut source = FixedSource::new(&mut memory);
        let (mut out, mut returned) = (Vec::<Region>::new(), Vec::<Region>::new());
        for (which, act) in steps {
            if act < 2 {
                let Ok(region) = source.take(which.index(192) as u64 + 1) else { continue };
                let apart = |other: &Region| other.base + other.bytes <= region.base || region.base + region.bytes <= other.base;
                prop_assert!(out.iter().all(apart));
                returned.retain(apart);
                out.push(region);
            } else if act == 2 && !out.is_empty() {
                let region = out.swap_remove(which.index(out.len()));
                prop_assert_eq!(source.give_back(region), Ok(()));
                returned.push(region);
            } else if !returned.is_empty() {
                prop_assert!(is_refused(&mut source, returned[which.index(returned.len())]));
            }
            prop_assert_eq!(source.usage().reserved, out.iter().map(|region| region.bytes).sum::<u64>());
        }
    }
}
