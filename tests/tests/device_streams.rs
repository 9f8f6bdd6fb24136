//! Random programs over streams, on a device made of numbers: what may be reused when.
//!
//! The device judges each access (see `terrace_tests::manual`); the programs allocate, use, drop, wait, go on, fork and join
//! streams, open and close them, capture graphs, and let calls fail.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use terrace_tests::manual::Lie;
use terrace_tests::manual::program::{Step, Trouble, run};

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any::<[u8; 4]>().prop_map(Step::from_bytes), 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_reused_before_it_is_done(pages: bool, steps in steps(400)) {
        run(pages, Trouble::default(), &steps).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn also_when_a_call_fails(pages: bool, at in 1u64..300, steps in steps(200)) {
        run(pages, Trouble { fails: Some(at), lie: None }, &steps).map_err(TestCaseError::fail)?;
    }
}

/// The judge has teeth: programs as above find each lie of a driver.
#[test]
fn a_lying_driver_is_found_out() {
    for lie in [Lie::EventsEarly, Lie::OrdersForgotten, Lie::WaitsShort, Lie::RegionsTwice] {
        let mut runner = TestRunner::deterministic();
        let found = (0..200).any(|_| {
            let steps = steps(400).new_tree(&mut runner).expect("the strategy rejects nothing").current();
            run(lie == Lie::WaitsShort, Trouble { fails: None, lie: Some(lie) }, &steps).is_err()
        });
        assert!(found, "{lie:?} was not found in 200 programs");
    }
}
