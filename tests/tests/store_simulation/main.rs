//! The store on a simulated disk: random programs with faults, power cuts and kills, held against a map.
//!
//! | file | what it is |
//! | --- | --- |
//! | `program` | one seed: a random program with faults, power cuts and kills |
//! | `scenario`, `completeness` | one short scenario with every fault and every power cut at every order |
//! | `session` | a store whose operations are begun, driven and judged |
//! | `reopen` | power cuts, kills, restarts, and what is found then |
//! | `model` | what a store must hold |
//! | `content`, `tally` | what pieces hold; what ran |
//!
//! `TERRACE_SEEDS` says how many seeds, `TERRACE_SEED` replays one and shows every order. What ran is counted, printed and
//! asserted, so that the simulation cannot go blind.
#![cfg(target_os = "linux")]

mod completeness;
mod content;
mod model;
mod program;
mod reopen;
mod scenario;
mod session;
mod tally;

use tally::Tally;
use terrace_file::FramePool;
use terrace_tests::disk::run_seeds;

/// Seeds of a usual run: some seconds with the dev profile.
const SEEDS: u64 = 1000;

/// Room for frames: two of 256 KiB for the log, and some of 16 KiB for what is under way.
const FRAMES: usize = 4 << 20;

fn frames() -> FramePool {
    FramePool::new(FRAMES).expect("a mapping")
}

#[test]
fn seeds() {
    let worker = || {
        let frames = frames();
        move |seed, trace: &_, tally: &mut Tally| program::run(seed, &frames, tally, trace)
    };
    let Some((tally, seeds)) = run_seeds("store_simulation", (SEEDS, 1), worker) else { return };
    tally.is_broad(seeds >= SEEDS).unwrap_or_else(|blind| panic!("the simulation has gone blind: {blind}"));
}
