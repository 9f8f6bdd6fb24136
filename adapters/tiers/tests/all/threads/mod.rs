//! Many threads against shadow models: each finds the bytes that it must find.
//!
//! Each thread knows the exact bytes of its own buffers. Buffers that all threads use hold one version in every word, and
//! versions only grow. After each round a new manager on the same directories must find what was synced.
//!
//! `TERRACE_THREADS_SECONDS` says how long the rounds take together.
#![cfg(target_os = "linux")]

mod owned;
mod shared;

use owned::Owned;
use shared::{Contended, Stamped};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use terrace_device::Device;
use terrace_file::EngineKind;
use terrace_tests::Random;
use terrace_tests::hung::bounded_by;
use terrace_tiers::policy::PolicyKind;
use terrace_tiers::{Error, Manager};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 256 << 10;
/// Far less than the buffers of all threads.
const MEMORY: u64 = 8 * MIB;
const THREADS: u64 = if cfg!(miri) { 4 } else { 32 };
/// Seconds of all rounds together where the environment says nothing.
const SECONDS: u64 = if cfg!(miri) { 1 } else { 12 };
/// Seconds of the longest round.
const ROUND: u64 = 10;
/// A round that has not ended by then waits for ever: 32 threads share two processors with all other tests.
const LIMIT: Duration = Duration::from_secs(600);
const POLICIES: [PolicyKind; 3] = [PolicyKind::Lru, PolicyKind::Sieve, PolicyKind::S3Fifo];
const ENGINES: [EngineKind; 2] = [EngineKind::Best, EngineKind::Threads];

/// What one round's threads use together.
struct World {
    manager: Manager,
    stamped: Vec<Stamped>,
    contended: Contended,
    /// Tiers of memory and of devices; those behind are of files.
    memory: u8,
    end: Instant,
}

#[test]
fn many_threads_find_what_they_wrote_whatever_the_others_do() {
    let given = std::env::var("TERRACE_THREADS_SECONDS").ok();
    let seconds = given.map_or(SECONDS, |text| text.parse().expect("TERRACE_THREADS_SECONDS is a number"));
    // Every policy meets every engine.
    let rounds = (seconds / ROUND).next_multiple_of(6).max(6);
    for number in 0..rounds {
        let time = Duration::from_millis(seconds * 1000 / rounds);
        bounded_by(LIMIT, move || round(number, time));
    }
}

fn build(number: u64, directories: &[tempfile::TempDir; 2], interval: Duration) -> Manager {
    let policy = POLICIES[number as usize % 3];
    let engine = ENGINES[number as usize / 3 % 2];
    let mut builder = Manager::builder().memory(MEMORY).chunk(CHUNK as usize).policy(policy).engine(engine);
    for directory in directories {
        builder = builder.directory_of(directory.path(), 256 * MIB);
    }
    // Every other round has a device with memory of its own.
    if number % 2 == 1 {
        builder = builder.device_of(&Device::host(), 3 * MIB);
    }
    builder.maintenance_interval(interval).build().expect("it is built")
}

/// One round: the threads work, what they left is checked, and again by another manager.
fn round(number: u64, time: Duration) {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let manager = build(number, &directories, Duration::from_millis(7));
    let (stamped, contended) = (Stamped::all(&manager), Contended::new());
    let memory = 1 + (number % 2) as u8;
    let world = World { manager, stamped, contended, memory, end: Instant::now() + time };
    let left = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, left) = (&world, &left);
            scope.spawn(move || {
                let owned = work(world, thread, Random::new(number * 1000 + thread));
                left.lock().expect("no panic").extend(owned);
            });
        }
    });
    let left = left.into_inner().expect("no panic");
    world.manager.check().expect("sound");
    let moves = world.manager.move_stats();
    assert!(moves.up > 0 && moves.down > 0, "{moves:?}");
    left.iter().for_each(Owned::holds);
    // Half of those with names go; the others must be found again, where they were synced.
    let mut random = Random::new(number);
    let (left, removed): (Vec<_>, Vec<_>) = left.into_iter().partition(|_| random.once_in(2));
    // At once: each waits for the disk.
    std::thread::scope(|scope| removed.iter().for_each(|owned| _ = scope.spawn(|| owned.remove(&world.manager))));
    drop(removed);
    let World { manager, stamped, .. } = world;
    let versions: Vec<_> = stamped.into_iter().map(Stamped::kept).collect();
    let owned: Vec<_> = left.into_iter().filter_map(Owned::kept).collect();
    only_names_are_left(&manager);
    drop(manager);

    let manager = build(number, &directories, Duration::ZERO);
    let mut found: BTreeSet<String> = manager.list().into_iter().filter_map(|listed| listed.name).collect();
    versions.iter().for_each(|kept| kept.is_found(&manager, found.remove(&kept.name)));
    owned.iter().for_each(|kept| kept.is_found(&manager, found.remove(&kept.name)));
    Contended::found(&manager, &mut found);
    assert_eq!(found, BTreeSet::new(), "names that were removed, or never synced");
    manager.check().expect("sound");
    everything_can_go(manager, || build(number, &directories, Duration::ZERO), directories[0].path());
}

/// Buffers without names go with their last handle, as soon as the tasks are done that use them.
fn only_names_are_left(manager: &Manager) {
    let begun = Instant::now();
    while manager.list().iter().any(|listed| listed.name.is_none() || listed.leased) {
        assert!(begun.elapsed() < Duration::from_secs(30), "a handle is left: {:?}", manager.list());
        std::thread::sleep(Duration::from_millis(1));
    }
    manager.check().expect("sound");
}

/// Removes every name: nothing is used then, and no later manager finds any.
fn everything_can_go(manager: Manager, build: impl Fn() -> Manager, directory: &Path) {
    let names: Vec<String> = manager.list().into_iter().filter_map(|listed| listed.name).collect();
    let removed: Vec<_> = names.iter().map(|name| manager.remove_async(name)).collect();
    removed.into_iter().for_each(|removed| removed.wait().expect("no lease is held"));
    let begun = Instant::now();
    while manager.tiers().iter().any(|tier| tier.view.used + tier.view.leaving > 0) {
        assert!(begun.elapsed() < Duration::from_secs(30), "bytes of none: {:?}", manager.tiers());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(manager.list(), []);
    manager.check().expect("sound");
    drop(manager);
    let manager = build();
    assert_eq!(manager.list(), [], "in {}", directory.display());
    manager.check().expect("sound");
}

/// What one thread does until the round ends; returns the buffers that it has then.
fn work(world: &World, thread: u64, mut random: Random) -> Vec<Owned> {
    let mut own: Vec<Owned> = Vec::new();
    while Instant::now() < world.end {
        match random.below(20) {
            0..2 if own.len() < 4 => own.extend(Owned::allocate(world, (thread, &own), &mut random)),
            0..2 => {
                let at = random.below(own.len() as u64) as usize;
                own.swap_remove(at).release(&world.manager, &mut random);
            }
            2..12 if !own.is_empty() => {
                let at = random.below(own.len() as u64) as usize;
                own[at].step(world, &mut random);
            }
            12 => owned::pass(world, &own, &mut random),
            13..18 => {
                let at = random.below(world.stamped.len() as u64) as usize;
                world.stamped[at].step(world, &mut random);
            }
            18 => world.contended.step(world, &mut random),
            _ if thread == 0 => resize(&world.manager, world.memory - 1, &mut random),
            _ => std::thread::yield_now(),
        }
    }
    own
}

/// The tier of memory shrinks and grows; now and then there is none.
fn resize(manager: &Manager, tier: u8, random: &mut Random) {
    let capacity = if random.once_in(20) { 0 } else { MIB + random.below(MEMORY) };
    manager.resize(tier, capacity).expect("a tier");
    std::thread::sleep(Duration::from_millis(random.below(3)));
    manager.resize(tier, MEMORY).expect("a tier");
}

/// What a move or a lease may be refused for, where others use the same memory.
fn is_for_room(error: &Error) -> bool {
    matches!(error, Error::NoRoom { .. } | Error::PinnedCap { .. } | Error::NoTier(_) | Error::Rejected(_))
}

/// Whether it went well. Panics at a reason that `may` excludes.
fn may<T>(told: Result<T, Error>, may: impl Fn(&Error) -> bool) -> Option<T> {
    told.map_err(|error| assert!(may(&error), "{error:?}")).ok()
}

/// Polls a future some times, while other threads go on, and drops it.
fn cancelled<F: Future>(future: F, random: &mut Random) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    for _ in 0..random.below(4) {
        let polled = futures_lite::future::block_on(futures_lite::future::poll_once(&mut future));
        if polled.is_some() {
            return polled;
        }
        std::thread::yield_now();
    }
    None
}

/// Where names are found again: what a manager on the same directories says of them.
fn bytes_of(manager: &Manager, name: &str) -> Vec<u8> {
    let buffer = manager.open(name).expect("it is listed");
    let mut bytes = vec![1; buffer.bytes() as usize];
    buffer.read(0, &mut bytes).expect("read");
    bytes
}
