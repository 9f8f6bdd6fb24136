//! Passes over the layers of a model of which a quarter fits into memory: each is leased, compared, and used for a while.
//!
//! Promises upward: a layer's work lasts its time from the lease on, the comparison of its bytes included; the thread sleeps for
//! the rest, as a program does whose layers run on a device. The best that is possible is the work of all layers and of one more,
//! in which the first one is read, or a raw read of all bytes where that lasts longer.
//! Asks from below: leases and moves of the manager; the raw ring.

use super::calls::flush;
use super::home::Place;
use super::large::{CHUNK, DEPTH, buffer_bytes};
use super::results::Sample;
use super::who::Engine;
use std::ops::Deref;
use std::time::{Duration, Instant};
use terrace::tiers::policy::PolicyKind;
use terrace::{Buffer, Manager};
use terrace_raw::{Blocks, Error, Latencies, Look, Moved, Work, timed};

/// How many layers ahead are announced.
const AHEAD: usize = 2;

/// A way to pass over the layers in order.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Its name.
    pub title: &'static str,
    /// Passes over all layers, and gives the lease of each to [`Works::layer`].
    pass: fn(&Manager, &[Buffer], &mut Works<'_>) -> Result<(), Error>,
}

/// All ways. Another one, such as an interface to which the whole sequence is told beforehand, is one more line.
pub const WAYS: &[Way] = &[
    Way { title: "leases", pass: |_, layers, works| announced(layers, works, |_| Ok(())) },
    Way { title: "prefetch(2 ahead)", pass: prefetched },
    Way { title: "promote_async(2 ahead)", pass: promoted },
    Way { title: "sequence(2 ahead)", pass: sequence },
];

/// Policies under which each way is run.
pub const POLICIES: [(&str, PolicyKind); 3] =
    [("LRU", PolicyKind::Lru), ("SIEVE", PolicyKind::Sieve), ("S3-FIFO", PolicyKind::S3Fifo)];

/// The layers that are announced before a layer is leased: at first all that are near, then one more each time.
fn ahead(layers: &[Buffer], next: usize) -> &[Buffer] {
    let from = if next == 0 { 1 } else { next + AHEAD };
    layers.get(from..(next + AHEAD + 1).min(layers.len())).unwrap_or_default()
}

/// Leases each layer after something was announced.
fn announced(
    layers: &[Buffer],
    works: &mut Works<'_>,
    announce: impl Fn(&[Buffer]) -> Result<(), Error>,
) -> Result<(), Error> {
    for (next, layer) in layers.iter().enumerate() {
        announce(ahead(layers, next))?;
        works.layer(next, || Ok(layer.lease_best()?))?;
    }
    Ok(())
}

fn prefetched(manager: &Manager, layers: &[Buffer], works: &mut Works<'_>) -> Result<(), Error> {
    announced(layers, works, |ahead| Ok(ahead.iter().try_for_each(|layer| manager.prefetch(layer))?))
}

fn sequence(manager: &Manager, layers: &[Buffer], works: &mut Works<'_>) -> Result<(), Error> {
    let mut pass = manager.sequence(layers, AHEAD)?;
    (0..layers.len())
        .try_for_each(|layer| works.layer(layer, || Ok(pass.lease_next().ok_or("a lease for each layer")??)))
}

fn promoted(manager: &Manager, layers: &[Buffer], works: &mut Works<'_>) -> Result<(), Error> {
    announced(layers, works, |ahead| {
        // The move goes on without its handle. If it is refused, the lease brings the layer.
        ahead.iter().for_each(|layer| drop(manager.promote_async(layer, 0)));
        Ok(())
    })
}

/// What is done with each layer.
#[derive(Debug)]
struct Works<'a> {
    blocks: &'a Blocks,
    /// How long it takes.
    lasts: Duration,
    /// Of the leases.
    latencies: Latencies,
}

impl Works<'_> {
    /// Leases a layer and does its work.
    fn layer<L: Deref<Target = [u8]>>(
        &mut self,
        number: usize,
        lease: impl FnOnce() -> Result<L, Error>,
    ) -> Result<(), Error> {
        let called = Instant::now();
        let bytes = lease()?;
        self.latencies.end(called);
        let begun = Instant::now();
        self.blocks.check(&bytes, number as u64)?;
        std::thread::sleep(self.lasts.saturating_sub(begun.elapsed()));
        Ok(())
    }
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

/// A pass in each way, over the same layers, after one without work that is not measured: each begins with what the pass
/// before left in memory.
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
    let pass = |way: &Way, lasts| {
        let (latencies, cost) = timed(|| {
            let mut works = Works { blocks: &blocks, lasts, latencies: Latencies::default() };
            (way.pass)(&manager, &layers, &mut works)?;
            Ok(works.latencies)
        })?;
        Ok(Moved::new(place.total(), cost, &latencies))
    };
    pass(&WAYS[0], Duration::ZERO)?;
    WAYS.iter().map(|way| pass(way, work(place))).collect()
}
