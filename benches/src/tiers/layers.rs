//! Passes over the layers of a model of which a quarter fits into memory: each is leased, compared, and used for a while.
//!
//! Promises upward: a layer's work lasts its time from the lease on, the comparison of its bytes included; the thread sleeps for
//! the rest, as a program does whose layers run on a device. The best that is possible is the work of all layers and of one more,
//! in which the first one is read, or a raw read of all bytes where that lasts longer.
//! Asks from below: leases and moves of the manager; the raw ring.

use super::calls::{flush, rest};
use super::home::Place;
use super::large::{CHUNK, DEPTH, buffer_bytes};
use super::results::Sample;
use super::who::Engine;
use std::time::{Duration, Instant};
use terrace::tiers::Lease;
use terrace::tiers::policy::PolicyKind;
use terrace::{Buffer, Manager};
use terrace_raw::{Blocks, Cost, Error, Latencies, Look, Moved, Work, timed};

/// How many layers ahead are announced.
const AHEAD: usize = 2;

/// A way to announce which layers come next, before each layer is leased.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Its name.
    pub title: &'static str,
    announce: Announce,
}

#[derive(Clone, Copy, Debug)]
enum Announce {
    /// Before each lease: the layers, and the number of the one that is leased next.
    Each(fn(&Manager, &[Buffer], usize) -> Result<(), Error>),
    /// All at once: a sequence leases them.
    Sequence,
}

/// All ways. Another one is one more line.
pub const WAYS: &[Way] = &[
    Way { title: "leases", announce: Announce::Each(|_, _, _| Ok(())) },
    Way { title: "prefetch(2 ahead)", announce: Announce::Each(prefetch) },
    Way { title: "promote_async(2 ahead)", announce: Announce::Each(promote) },
    Way { title: "sequence(2 ahead)", announce: Announce::Sequence },
];

/// Policies under which each way is run.
pub const POLICIES: [(&str, PolicyKind); 3] =
    [("LRU", PolicyKind::Lru), ("SIEVE", PolicyKind::Sieve), ("S3-FIFO", PolicyKind::S3Fifo)];

/// The layer that each step announces anew, or at the first step all of them.
fn ahead(layers: &[Buffer], next: usize) -> &[Buffer] {
    let from = if next == 0 { 1 } else { next + AHEAD };
    layers.get(from..(next + AHEAD + 1).min(layers.len())).unwrap_or_default()
}

fn prefetch(manager: &Manager, layers: &[Buffer], next: usize) -> Result<(), Error> {
    Ok(ahead(layers, next).iter().try_for_each(|layer| manager.prefetch(layer))?)
}

fn promote(manager: &Manager, layers: &[Buffer], next: usize) -> Result<(), Error> {
    // The move goes on without its handle. If it is refused, the lease brings the layer.
    ahead(layers, next).iter().for_each(|layer| drop(manager.promote_async(layer, 0)));
    Ok(())
}

/// A contestant: the raw read of all layers, or the ways under one policy, one after another.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// The raw read.
    Raw,
    /// The manager, by the number of its policy.
    Manager(usize),
}

impl Pass {
    /// All.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Manager(0), Self::Manager(1), Self::Manager(2)];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Raw => "raw ring",
            Self::Manager(policy) => POLICIES[policy].0,
        }
    }
}

/// Time of a layer's work.
fn work(place: &Place) -> Duration {
    Duration::from_millis(if place.quick { 5 } else { 100 })
}

/// Layers.
fn count(place: &Place) -> u64 {
    place.total() / buffer_bytes(place) as u64
}

/// The shortest time that a pass takes, however fast the disk is.
fn floor(place: &Place) -> Duration {
    work(place) * (count(place) as u32 + 1)
}

/// Runs one contestant.
///
/// # Errors
/// Those of the contestant.
pub fn turn(place: &Place, pass: Pass, round: usize) -> Result<Vec<Sample>, Error> {
    let what = format!("pass over {} x {} MiB", count(place), buffer_bytes(place) >> 20);
    let sample = |title: &str, moved| {
        let floor_ns = floor(place).as_nanos() as u64;
        Sample { what: what.clone(), who: title.into(), engine: Engine::Ring, round, floor_ns, moved }
    };
    match pass {
        Pass::Raw => Ok(vec![sample(pass.title(), raw(place, round)?)]),
        Pass::Manager(policy) => {
            let title = |way: &Way| format!("{}, {}", pass.title(), way.title);
            let passes = manager(place, POLICIES[policy].1, round)?;
            Ok(WAYS.iter().zip(passes).map(|(way, moved)| sample(&title(way), moved)).collect())
        }
    }
}

fn raw(place: &Place, round: usize) -> Result<Moved, Error> {
    let turn = place.turn()?;
    let blocks = Blocks::new(CHUNK, round as u64);
    let file = turn.raw(&blocks, DEPTH)?;
    let order: Vec<u64> = (0..place.total() / CHUNK as u64).collect();
    let work = Work { write: true, look: Look::All, blocks: &blocks, order: &order };
    file.ring(work, DEPTH)?;
    let (latencies, cost) = timed(|| file.ring(Work { write: false, ..work }, DEPTH))?;
    Ok(Moved::new(place.total(), cost, &latencies))
}

/// A pass in each way, over the same layers, after one without work that is not measured: each begins with what the pass before left
/// in memory.
fn manager(place: &Place, policy: PolicyKind, round: usize) -> Result<Vec<Moved>, Error> {
    let turn = place.turn()?;
    let manager = turn.manager(Engine::Ring).memory(place.total() / 4).policy(policy).build()?;
    let blocks = Blocks::new(buffer_bytes(place), round as u64);
    let mut layers = Vec::new();
    for block in 0..count(place) {
        let layer = manager.allocate(blocks.bytes() as u64)?;
        layer.write(0, &blocks.make(block))?;
        layers.push(layer);
    }
    flush(&manager, &layers, DEPTH, &turn.directory())?;
    pass(&manager, &layers, &blocks, &WAYS[0], Duration::ZERO)?;
    let pass = |way: &Way| {
        let (latencies, cost): (Latencies, Cost) = timed(|| pass(&manager, &layers, &blocks, way, work(place)))?;
        Ok(Moved::new(place.total(), cost, &latencies))
    };
    WAYS.iter().map(pass).collect()
}

/// One pass; latencies of the leases.
fn pass(manager: &Manager, layers: &[Buffer], blocks: &Blocks, way: &Way, work: Duration) -> Result<Latencies, Error> {
    let mut latencies = Latencies::default();
    let mut step = |called: Instant, layer: usize, lease: Lease<'_>| -> Result<(), Error> {
        latencies.end(called);
        let begun = Instant::now();
        blocks.check(&lease, layer as u64)?;
        std::thread::sleep(rest(begun, work));
        Ok(())
    };
    match way.announce {
        Announce::Each(announce) => {
            for (next, layer) in layers.iter().enumerate() {
                announce(manager, layers, next)?;
                step(Instant::now(), next, layer.lease_best()?)?;
            }
        }
        Announce::Sequence => {
            let mut sequence = manager.sequence(layers, AHEAD)?;
            for layer in 0..layers.len() {
                let called = Instant::now();
                step(called, layer, sequence.lease_next().ok_or("one lease for each layer")??)?;
            }
        }
    }
    Ok(latencies)
}
