//! The pinned pool beside the policy of PyTorch's pinned allocator, on a device made of numbers, whose memory nobody touches.
//!
//! Where programs only take, at most 1.05 times what is live is reserved. Where they free and take other sizes for long, pinned
//! memory is cut up: regions never move, and only what is wholly vacant can be given back. There 1.05 and few calls exclude each
//! other; this is the curve, as (calls, peak reserved / peak live as asked for):
//!
//! | | PyTorch's policy | terrace | regions for one block each, 5 % kept | pages, could they be pinned |
//! | --- | --- | --- | --- | --- |
//! | `request` | 1, 1.569 | 1, 1.000 | 1, 1.000 | 1, 1.000 |
//! | `staging` | 107, 1.968 | 47, 1.277 | 5893, 1.050 | 459, 1.031 |
//! | `checkpoint` | 32, 2.261 | 17, 1.314 | 398, 1.048 | 48, 1.030 |
//! | `kv` | 118, 1.782 | 192, 1.216 | 7244, 1.050 | 512, 1.030 |
//!
//! A call that pins a gigabyte takes some 100 ms. Other settings of the pool move along 1.17 to 1.45 by chance; with a slack of
//! 10 % in place of 5 `kv` takes 91 calls (1.219), and what only grows 1.10.

use terrace::device::{Device, DeviceBlock, DeviceOptions, Stream};
use terrace::engine::arena::{ArenaSettings, Coalesce};
use terrace::engine::{Arena, ArenaCapacity, BestFit, NoFence, heap_parts};
use terrace_models::scenarios::{Outcome, Pooled, Scenario, Step, Subject, Totals, run};
use terrace_models::{Growing, PinnedCache, Segments};
use terrace_tests::manual::Manual;

const GIB: u64 = 1 << 30;

/// Pinned memory of a device.
struct Pinned {
    device: Device,
    stream: Stream,
}

impl Subject for Pinned {
    type Block = DeviceBlock;

    fn allocate(&mut self, bytes: u64, _: u32) -> Option<DeviceBlock> {
        self.device.allocate_pinned(&self.stream, bytes, 1).ok()
    }

    fn free(&mut self, block: DeviceBlock, _: u32) {
        drop(block);
    }

    fn totals(&self) -> Totals {
        let pool = self.device.stats().pinned;
        let (peak_reserved, peak_in_use) = (pool.peak_reserved, pool.peak_in_use);
        Totals { calls: pool.source_calls, handles: pool.handles, peak_reserved, peak_in_use }
    }
}

fn ours(scenario: &Scenario) -> Outcome {
    // SAFETY: blocks are counted here, and no byte of one is touched.
    let manual = unsafe { Manual::new(256 * GIB, false).with_pinned() };
    let device = Device::open(manual, DeviceOptions::default()).expect("valid options");
    let stream = device.stream().expect("nothing fails here");
    let mut subject = Pinned { device, stream };
    let outcome = run(scenario, &mut subject);
    subject.device.check().expect("every invariant holds");
    assert_eq!(outcome.failed, 0, "{}", scenario.name);
    outcome
}

fn theirs(scenario: &Scenario) -> Outcome {
    run(scenario, &mut Pooled(PinnedCache::new(Segments::new(0))))
}

/// Reserved over live, as asked for.
fn times(outcome: &Outcome) -> f64 {
    outcome.totals.peak_reserved as f64 / outcome.peak_live as f64
}

#[test]
fn a_request_of_20_4_gib_pins_20_4_gib() {
    let scenario = Scenario::request();
    let (ours, theirs) = (ours(&scenario), theirs(&scenario));
    assert!(ours.totals.peak_reserved < 41 * GIB / 2, "{ours:?}: 20.5 GiB at most");
    assert_eq!((ours.totals.calls, theirs.totals.calls, theirs.totals.peak_reserved), (1, 1, 32 * GIB));
}

/// The same without its frees: what only grows.
fn growing(scenario: &Scenario, most: usize) -> Scenario {
    let taken = scenario.steps.iter().filter(|step| matches!(step, Step::Allocate { .. })).take(most);
    let apart = taken.enumerate().filter_map(|(at, step)| match *step {
        Step::Allocate { bytes, stream, .. } => Some(Step::Allocate { slot: at as u32, bytes, stream }),
        Step::Free { .. } => None,
    });
    Scenario::new(format!("growing {}", scenario.name), apart)
}

#[test]
fn what_only_grows_pins_1_05_times_what_is_live_in_fewer_calls() {
    for scenario in [Scenario::staging(200), Scenario::checkpoint(1), Scenario::kv(136)] {
        let scenario = growing(&scenario, 200);
        let (ours, theirs) = (ours(&scenario), theirs(&scenario));
        println!("{}: {:.3} in {} calls", scenario.name, times(&ours), ours.totals.calls);
        assert!(times(&ours) <= 1.05, "{}: {ours:?}", scenario.name);
        assert!(ours.totals.calls <= theirs.totals.calls, "{}: {ours:?} beside {theirs:?}", scenario.name);
    }
}

/// At most so many times what is live, and so many calls in percent of PyTorch's: what was measured, and a little.
const CUT_UP: [(&str, f64, u64); 3] = [("staging", 1.30, 50), ("checkpoint", 1.33, 60), ("kv", 1.24, 170)];

#[test]
fn what_is_cut_up_pins_far_less_than_powers_of_two() {
    for scenario in [Scenario::staging(2000), Scenario::checkpoint(5), Scenario::kv(5000)] {
        let (ours, theirs) = (ours(&scenario), theirs(&scenario));
        let (calls, least) = (ours.totals.calls, theirs.totals.calls);
        println!("{}: {:.3} in {calls} calls, PyTorch {:.3} in {least}", scenario.name, times(&ours), times(&theirs));
        let (_, most, percent) = CUT_UP.into_iter().find(|(name, ..)| *name == scenario.name).expect("a row for each");
        assert!(times(&ours) <= most && calls * 100 <= least * percent, "{}: {ours:?}", scenario.name);
        assert!(ours.totals.peak_reserved * 4 < theirs.totals.peak_reserved * 3, "{}: {theirs:?}", scenario.name);
    }
}

/// Regions for one block each, of its size or up to 4 % more; vacant ones are kept up to 5 % beyond the peak.
#[derive(Default)]
struct Exact {
    vacant: Vec<u64>,
    live: u64,
    totals: Totals,
    reserved: u64,
}

impl Subject for Exact {
    /// The region's bytes, and the block's.
    type Block = (u64, u64);

    fn allocate(&mut self, bytes: u64, _: u32) -> Option<(u64, u64)> {
        let totals = &mut self.totals;
        self.live += bytes;
        totals.peak_in_use = totals.peak_in_use.max(self.live);
        let fits = |region: &u64| *region >= bytes && *region <= bytes + bytes / 25;
        if let Some(at) = self.vacant.iter().position(fits) {
            return Some((self.vacant.swap_remove(at), bytes));
        }
        while self.reserved + bytes > totals.peak_in_use + totals.peak_in_use / 20 {
            let Some(region) = self.vacant.pop() else { break };
            (self.reserved, totals.calls) = (self.reserved - region, totals.calls + 1);
        }
        (self.reserved, totals.calls) = (self.reserved + bytes, totals.calls + 1);
        totals.peak_reserved = totals.peak_reserved.max(self.reserved);
        Some((bytes, bytes))
    }

    fn free(&mut self, (region, bytes): (u64, u64), _: u32) {
        self.live -= bytes;
        self.vacant.push(region);
    }

    fn totals(&self) -> Totals {
        self.totals
    }
}

/// The other ends of the curve: without moving memory, 1.05 costs ten times PyTorch's calls.
#[test]
fn without_moving_1_05_costs_ten_times_the_calls() {
    for scenario in [Scenario::staging(2000), Scenario::checkpoint(5), Scenario::kv(5000)] {
        let exact = run(&scenario, &mut Exact::default());
        let settings =
            ArenaSettings { coalesce: Coalesce::AtOnce, granule: 4096, slack: 30, ..ArenaSettings::growing() };
        let parts = heap_parts(ArenaCapacity::default(), BestFit::new);
        let arena = Arena::new(Growing::new(0), NoFence, parts, settings).expect("valid settings");
        let pages = run(&scenario, &mut Pooled(arena));
        let calls = [exact, pages].map(|outcome| (outcome.totals.calls, times(&outcome)));
        println!("{}: regions for one block {:?}, pages {:?}", scenario.name, calls[0], calls[1]);
        assert!(calls.iter().all(|(_, times)| *times <= 1.051), "{}: {calls:?}", scenario.name);
        assert!(calls[0].0 > 10 * theirs(&scenario).totals.calls && calls[1].0 * 5 < calls[0].0, "{calls:?}");
    }
}
