//! The manager, its ledger and its store on a simulated disk: random programs with faults, power cuts and kills, on one thread,
//! held against a map.
//!
//! | file | what it is |
//! | --- | --- |
//! | `program` | one seed: a random program with faults, power cuts and kills |
//! | `session` | a manager whose operations are begun, driven and judged |
//! | `begin` | operations, as they are begun |
//! | `judge` | which errors are just |
//! | `reopen` | power cuts, kills, restarts, and what is found then |
//! | `model` | what buffers must hold, and may hold after a power cut |
//! | `tally` | what ran |
//!
//! `TERRACE_SEEDS` says how many seeds, of which half are run here; `TERRACE_SEED` replays one and shows every order.
#![cfg(target_os = "linux")]

mod begin;
mod judge;
mod model;
mod program;
mod reopen;
mod session;
mod tally;

use tally::Tally;
use terrace_file::FramePool;
use terrace_tests::disk::{Trace, run_seeds};

/// Seeds of a usual run: 20 seconds with the dev profile.
const SEEDS: u64 = 2000;

/// Of the seeds that are asked for, one in so many: each takes twice as long as one of the store's.
const SHARE: u64 = 2;

/// The world's own frames, of which the manager takes none.
fn frames() -> FramePool {
    FramePool::new(1).expect("a mapping")
}

#[test]
fn seeds() {
    let worker = || {
        let frames = frames();
        move |seed, trace: &_, tally: &mut Tally| program::run(seed, &frames, tally, trace)
    };
    let Some((tally, seeds)) = run_seeds("manager_simulation", (SEEDS, SHARE), worker) else { return };
    tally.is_broad(seeds >= SEEDS).unwrap_or_else(|blind| panic!("the simulation has gone blind: {blind}"));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let trace = Trace::new(true);
        program::run(seed, &frames(), &mut Tally::default(), &trace).expect("it holds");
        trace.lines()
    };
    for seed in 0..20 {
        assert!(run(seed) == run(seed), "seed {seed}");
    }
    assert!(run(1) != run(2));
}
