//! The scenario, in full: every fault at every order, every power cut after every order.

use crate::frames;
use crate::scenario::{self, at};
use crate::tally::Tally;
use std::collections::BTreeMap;
use terrace_tests::disk::{Fault, Trace, judge};

/// Schedules of the scenario: orders in which tasks and orders go on.
const SCHEDULES: u64 = 3;

/// Orders of the scenario, at least.
const ORDERS: u64 = 40;

/// Runs the scenario with each fault at one order; which of them fired right there.
fn faults_at(seed: u64, order: u64, tally: &mut Tally) -> Vec<Fault> {
    let (frames, mut exact) = (frames(), Vec::new());
    for fault in Fault::ALL {
        let (trace, name) = (Trace::default(), format!("{fault:?} at order {order}, schedule {seed}"));
        let run = || {
            if scenario::with_fault(seed, at(order, fault), &frames, tally, &trace)? {
                exact.push(fault);
            }
            Ok(())
        };
        judge(&name, &trace, run).unwrap_or_else(|why| panic!("{why}"));
    }
    exact
}

#[test]
fn every_fault_at_every_order() {
    let (mut tally, mut orders, mut fired) = (Tally::default(), 0, BTreeMap::<Fault, u64>::new());
    for seed in 0..SCHEDULES {
        for order in 0.. {
            let exact = faults_at(seed, order, &mut tally);
            exact.iter().for_each(|fault| *fired.entry(*fault).or_default() += 1);
            // Some fault fits every order: past the end none fires.
            if exact.is_empty() {
                break;
            }
            orders += 1;
        }
    }
    println!("{tally}\n{orders} orders; faults right there: {fired:?}");
    for fault in Fault::ALL {
        assert!(fired.contains_key(&fault), "{fault:?} never fired");
    }
    assert!(orders > ORDERS * SCHEDULES, "the scenario has become short: {orders} orders");
    assert!(tally.resolved > 0 && tally.excused.len() > 4, "faults have no effect: {tally}");
}

#[test]
fn every_power_cut_after_every_order() {
    let (mut tally, frames, mut total, mut complete) = (Tally::default(), frames(), 0, 0);
    for seed in 0..SCHEDULES {
        for stop in 0.. {
            let (trace, mut cuts) = (Trace::default(), None);
            let run = || {
                cuts = scenario::with_cuts(seed, stop, &frames, &mut tally, &trace)?;
                Ok(())
            };
            let name = format!("a power cut after {stop} orders, schedule {seed}");
            judge(&name, &trace, run).unwrap_or_else(|why| panic!("{why}"));
            let Some(cuts) = cuts else { break };
            (total, complete) = (total + 1, complete + u64::from(cuts.complete));
        }
    }
    println!("{tally}\n{total} places, at {complete} of them every combination");
    assert!(total > ORDERS * SCHEDULES && complete * 2 > total, "{total} places, {complete} complete");
    assert!(tally.resolved > 0 && tally.excused.is_empty(), "without faults there are no errors: {tally}");
}
