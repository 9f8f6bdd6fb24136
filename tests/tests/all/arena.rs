//! The contract suite on arenas: over segments and over pages, with every strategy, with and without work in flight, and
//! with little of everything that is lent.

use terrace::engine::arena::{ArenaSettings, Coalesce};
use terrace::engine::{AnyFit, Arena, Branch, Fence, Fit, NoFence, Source};
use terrace_device::store::{ArenaCapacity, HeapStore, heap_parts};
use terrace_models::{Growing, Segments};
use terrace_tests::{Contract, Ticking};

type Storage = HeapStore<AnyFit<Box<[Branch]>>>;

fn arena<S: Source, F: Fence>(
    source: S,
    fence: F,
    fit: Fit,
    slots: usize,
    settings: ArenaSettings,
) -> Arena<S, F, Storage> {
    let parts = heap_parts(ArenaCapacity { slots, bins: 64, entries: slots / 4, segments: 16 }, |branches| {
        AnyFit::new(fit, branches)
    });
    Arena::new(source, fence, parts, settings).expect("valid settings")
}

/// Requests up to 3 MiB against 48 MiB, half of them above the threshold of the small path.
const SUITE: Contract = Contract::new().largest(3 << 20).programs(40, 150);
const CAPACITY: u64 = 48 << 20;
const FITS: [Fit; 4] = [Fit::Good, Fit::Best, Fit::First, Fit::Worst];

/// Small segments, so that many come and go.
fn segments() -> ArenaSettings {
    ArenaSettings { segment: 4 << 20, grain: 1 << 20, ..ArenaSettings::segments() }
}

fn growing() -> ArenaSettings {
    ArenaSettings { space: 1 << 30, ..ArenaSettings::growing() }
}

#[test]
fn over_segments() {
    for fit in FITS {
        SUITE.check(|| arena(Segments::new(CAPACITY), NoFence, fit, 1000, segments())).unwrap();
    }
}

#[test]
fn over_pages() {
    for fit in FITS {
        SUITE.check(|| arena(Growing::new(CAPACITY), NoFence, fit, 1000, growing())).unwrap();
    }
}

#[test]
fn over_sources_without_a_limit() {
    SUITE.check(|| arena(Segments::new(0), NoFence, Fit::Best, 1000, segments())).unwrap();
    SUITE.check(|| arena(Growing::new(0), NoFence, Fit::Best, 1000, growing())).unwrap();
}

#[test]
fn with_few_slots_few_segments_and_little_cache() {
    SUITE.check(|| arena(Segments::new(CAPACITY), NoFence, Fit::Best, 24, segments())).unwrap();
    SUITE.check(|| arena(Growing::new(CAPACITY), NoFence, Fit::Best, 24, growing())).unwrap();
}

#[test]
fn merging_at_once_and_past_a_threshold() {
    for coalesce in [Coalesce::AtOnce, Coalesce::Threshold(1 << 20)] {
        let (fixed, pages) = (ArenaSettings { coalesce, ..segments() }, ArenaSettings { coalesce, ..growing() });
        SUITE.check(|| arena(Segments::new(CAPACITY), NoFence, Fit::Good, 1000, fixed)).unwrap();
        SUITE.check(|| arena(Growing::new(CAPACITY), NoFence, Fit::Good, 1000, pages)).unwrap();
    }
}

#[test]
fn with_work_in_flight() {
    let suite = SUITE.work_in_flight();
    suite.check(|| arena(Segments::new(CAPACITY), Ticking::new(5), Fit::Best, 1000, segments())).unwrap();
    suite.check(|| arena(Growing::new(CAPACITY), Ticking::new(5), Fit::Best, 1000, growing())).unwrap();
}
