//! Every subject does what it is timed for.

use super::*;
use crate::core::actions::Actions;

/// Fills and runs a subject, then checks that no two live blocks overlap.
fn blocks_are_disjoint(name: Name, live: u32, pairs: usize) {
    let actions = Actions::new(11, live, pairs);
    let mut contestant = name.build(live).unwrap();
    contestant.fill(&actions.fill).unwrap();
    contestant.run(&actions.pairs).unwrap();
    let mut sizes = actions.fill.clone();
    for pair in &actions.pairs {
        sizes[pair.victim as usize] = pair.bytes;
    }
    let mut extents: Vec<(u64, u64)> =
        contestant.starts().into_iter().zip(sizes).map(|(start, bytes)| (start, start + u64::from(bytes))).collect();
    extents.sort_unstable();
    assert_eq!(extents.len(), live as usize);
    let overlap = extents.windows(2).find(|two| two[0].1 > two[1].0);
    assert_eq!(overlap, None, "{}: two live blocks overlap", name.title());
}

#[test]
fn every_subject_hands_out_disjoint_blocks() {
    for &name in Name::all().iter().filter(|name| **name != Name::Loop) {
        blocks_are_disjoint(name, 200, 4000);
    }
}

#[test]
fn every_subject_holds_few_blocks_for_long() {
    // The fewer blocks, the more their sum varies: the capacity must hold all the same.
    for &name in Name::all() {
        let actions = Actions::new(12, 100, 20_000);
        let mut contestant = name.build(100).unwrap();
        contestant.fill(&actions.fill).unwrap();
        assert_eq!(contestant.run(&actions.pairs), Ok(()), "{}", name.title());
    }
}

#[test]
fn a_refused_call_is_reported() {
    let mut contestant = Name::Good.build(1).unwrap();
    let sizes = vec![1 << 20; 1000];
    assert_eq!(contestant.fill(&sizes), Err(Refused { bytes: 1 << 20 }));
}

#[test]
fn the_most_live_blocks_fit_into_32_bits_of_granules() {
    assert!(capacity(MOST_LIVE) / GRANULE < 1 << 32);
    assert!(capacity(MOST_LIVE + 10_000) / GRANULE >= 1 << 32, "the limit is not needlessly low");
}
