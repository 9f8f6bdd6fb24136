//! Programs over the streams of a device made of numbers, which judges what is reused when; some calls fail.
// sanitizer: none
// seeded-env: streams_events_early
// seeded-env: streams_orders_forgotten
// seeded-env: streams_waits_short
// seeded-env: streams_regions_twice
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use terrace_fuzz::bug;
use terrace_tests::manual::Lie;
use terrace_tests::manual::program::{Step, Trouble, run};

/// The driver's lie that is switched on.
fn lie() -> Option<Lie> {
    let lies = [
        ("streams_events_early", Lie::EventsEarly),
        ("streams_orders_forgotten", Lie::OrdersForgotten),
        ("streams_waits_short", Lie::WaitsShort),
        ("streams_regions_twice", Lie::RegionsTwice),
    ];
    lies.into_iter().find(|(name, _)| bug(name)).map(|(_, lie)| lie)
}

fuzz_target!(|input: &[u8]| {
    // One byte for the kind of device, two for the call that fails (0: none), four a step.
    let [kind, low, high, program @ ..] = input else { return };
    let at = u16::from_le_bytes([*low, *high]);
    let steps: Vec<Step> = program.as_chunks().0.iter().map(|bytes| Step::from_bytes(*bytes)).collect();
    let trouble = Trouble { fails: (at % 512 != 0).then_some(u64::from(at % 512)), lie: lie() };
    if let Err(wrong) = run(kind % 2 == 1, trouble, &steps) {
        panic!("{wrong}");
    }
});
