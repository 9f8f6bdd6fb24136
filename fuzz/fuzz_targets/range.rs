//! Ranges with every strategy, beside a map that says of every granule what it is.
//!
//! Run: `cargo +nightly fuzz run range` in this folder's parent; longer: `-- -max_total_time=600`.
// sanitizer: none
// seeded-env: range_loses_gap
// seeded-env: range_misses_exact_fit
// seeded-env: range_ignores_alignment
#![no_main]
#![forbid(unsafe_code)]

#[path = "../../core/tests/all/range_model/mod.rs"]
mod range_model;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use range_model::world::{Act, World};
use terrace_core::{AnyFit, Branch, Fit};
use terrace_fuzz_core::FaultyIndex;

#[derive(Arbitrary, Debug)]
struct Input {
    fit: u8,
    /// Slots beyond the least that make sense: few of them run out, many do not.
    slots: u8,
    acts: Vec<Act>,
}

fuzz_target!(|input: Input| {
    let slots = 8 + usize::from(input.slots);
    let fit = [Fit::Good, Fit::Best, Fit::First, Fit::Worst][usize::from(input.fit) % 4];
    let index = FaultyIndex::new(AnyFit::new(fit, vec![Branch::EMPTY; slots]));
    let mut world = World::new(fit, index, slots);
    world.add(0, range_model::world::PLOT, false);
    // Longer programs say nothing new and slow the search down.
    world.play(&input.acts[..input.acts.len().min(200)]);
});
