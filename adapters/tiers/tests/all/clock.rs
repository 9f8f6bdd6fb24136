//! Times of ticks that jump, stand still, and go back: nothing is refused for ever.
#![cfg(target_os = "linux")]

use crate::disks::Panics;
use crate::turns::{by_hand_on, drive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use terrace_file::{Directory, EngineKind, Executor};
use terrace_tests::Random;
use terrace_tests::hung::bounded;
use terrace_tiers::ledger::PlacementHint;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;
/// How long a tier is suspended after its first failure, in milliseconds.
const BACKOFF: u64 = 1000;
/// Reads of a buffer within so many milliseconds promote it.
const WINDOW: u64 = 10_000;

/// A manager over a disk that fails on demand, and a buffer in memory.
struct Failing {
    fails: Arc<AtomicBool>,
    tasks: Executor,
    manager: Manager,
    buffer: Buffer,
    _directory: TempDir,
}

fn failing() -> Failing {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let fails = Arc::new(AtomicBool::new(false));
    let disk = Arc::new(Panics(files, Arc::clone(&fails)));
    let (tasks, manager) = by_hand_on(disk, Manager::builder().memory(4 * MIB));
    let buffer = drive(&tasks, manager.allocate_async(MIB, BufferOptions::default())).expect("room");
    Failing { fails, tasks, manager, buffer, _directory: directory }
}

impl Failing {
    fn demoted(&self) -> Result<(), Error> {
        drive(&self.tasks, self.manager.demote_async(&self.buffer, 1))
    }

    /// A copy to files fails, and their tier is suspended.
    fn suspend(&self) {
        drive(&self.tasks, self.buffer.write_async(0, vec![7; 1 << 20])).expect("memory has room");
        self.fails.store(true, Ordering::Relaxed);
        assert!(matches!(self.demoted(), Err(Error::Store(_))));
        self.fails.store(false, Ordering::Relaxed);
        assert!(self.is_suspended());
    }

    fn is_suspended(&self) -> bool {
        self.manager.tiers()[1].view.suspended_until.is_some()
    }

    /// All calls go well; the buffer is in memory again then.
    fn goes_on(&self) {
        assert_eq!(self.demoted(), Ok(()));
        assert!(drive(&self.tasks, self.buffer.read_async(0, 1 << 20)).expect("read").iter().all(|byte| *byte == 7));
        drop(drive(&self.tasks, self.buffer.lease_mut_async()).expect("room"));
        self.manager.check().expect("sound");
    }
}

#[test]
fn a_suspension_ends_however_the_clock_jumps() {
    for begun in [0, 5, u64::MAX / 2, u64::MAX - BACKOFF, u64::MAX - 1, u64::MAX] {
        let world = failing();
        world.manager.tick(begun);
        world.suspend();
        // The clock stands still: the tier is tried again when its time is over, and a disk that would take a write again
        // says so before.
        let until = world.manager.tiers()[1].view.suspended_until.expect("suspended");
        assert_eq!(until, begun.saturating_add(BACKOFF), "from {begun} on");
        if begun < u64::MAX - BACKOFF {
            [begun, begun, until - 1].into_iter().for_each(|now| world.manager.tick(now));
            assert!(world.is_suspended(), "its time is not over");
            assert!(matches!(world.demoted(), Err(Error::Suspended { left: 1, .. })));
        }
        world.manager.tick(until);
        assert!(!world.is_suspended(), "from {begun} on");
        world.goes_on();
        world.suspend();
        world.manager.tick(u64::MAX);
        assert!(!world.is_suspended(), "from {begun} on");
        world.goes_on();
        // The clock is at its end, where each suspension lasts until the next tick.
        for _ in 0..8 {
            world.suspend();
            world.manager.tick(u64::MAX);
            world.goes_on();
        }
    }
}

/// The caller's mistake: times before the latest one count as that one.
#[test]
fn a_clock_that_goes_back_stands_still() {
    let world = failing();
    world.manager.tick(50_000);
    world.suspend();
    for now in [50_000, 49_999, 3, 0, 50_000 + BACKOFF - 1, 1] {
        world.manager.tick(now);
        assert!(world.is_suspended(), "at {now}");
        assert!(matches!(world.demoted(), Err(Error::Suspended { left: 1..=BACKOFF, .. })), "at {now}");
        // Memory is used all the same.
        drive(&world.tasks, world.buffer.write_async(0, vec![7; 1 << 20])).expect("memory has room");
        world.manager.check().expect("sound");
    }
    world.manager.tick(50_000 + BACKOFF);
    assert!(!world.is_suspended());
    world.goes_on();
}

/// A buffer in files, with nothing else in memory.
fn in_files(manager: &Manager) -> Buffer {
    let hint = PlacementHint { tier: Some(1), keep: false };
    let buffer = manager.allocate_with(MIB, BufferOptions { hint, ..BufferOptions::default() }).expect("room");
    buffer.write(0, &[7; 1000]).expect("written");
    buffer
}

#[test]
fn two_reads_within_the_window_promote_and_no_jump_breaks_the_window() {
    bounded(|| {
        // The times before each of two reads, and whether the second one promotes.
        let cases = [
            (0, 0, true),
            (0, WINDOW, true),
            (0, WINDOW + 1, false),
            (0, u64::MAX, false),
            (u64::MAX - WINDOW, u64::MAX, true),
            (u64::MAX, u64::MAX, true),
            (WINDOW * 9, WINDOW * 8, true),
            (u64::MAX, 0, true),
        ];
        for (first, second, promotes) in cases {
            let directory = tempfile::tempdir().expect("a directory");
            let builder = Manager::builder().memory(4 * MIB).directory_of(directory.path(), 64 * MIB);
            let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
            // Without a hint for files, which would keep it there.
            let buffer = manager.allocate(MIB).expect("room");
            buffer.write(0, &[7; 1000]).expect("written");
            manager.demote(&buffer, 1).expect("no lease is held");
            let is_up = || manager.list()[0].tier == 0;
            for now in [first, second] {
                assert!(!is_up());
                manager.tick(now);
                let mut read = [0; 1000];
                buffer.read(0, &mut read).expect("read");
                assert_eq!(read, [7; 1000]);
            }
            // The promotion is a task; a lease that is taken in vain shows that there is none.
            let begun = std::time::Instant::now();
            while promotes && !is_up() {
                assert!(begun.elapsed() < Duration::from_secs(20), "{first} and {second}");
                std::thread::yield_now();
            }
            assert_eq!(manager.move_stats().up, u64::from(promotes), "{first} and {second}");
            manager.check().expect("sound");
        }
    });
}

#[test]
fn threads_that_tick_with_any_times_stop_nobody() {
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 100 };
    bounded(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let builder = Manager::builder().memory(4 * MIB).directory_of(directory.path(), 128 * MIB).chunk(64 << 10);
        let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (manager, ends) = (&manager, &ends);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    while !ends.load(Ordering::Relaxed) {
                        let times = [0, u64::MAX, random.next(), random.below(WINDOW), u64::MAX / 2];
                        manager.tick(times[random.below(5) as usize]);
                    }
                });
            }
            let users: Vec<_> = (0..4u8)
                .map(|thread| {
                    let manager = &manager;
                    scope.spawn(move || {
                        let (mut random, buffers) = (Random::new(thread.into()), [(); 3].map(|()| in_files(manager)));
                        for round in 0..ROUNDS {
                            let buffer = &buffers[round as usize % 3];
                            let at = random.below(MIB - 100);
                            buffer.write(at, &[thread; 100]).expect("nobody else has it");
                            manager.prefetch(buffer).expect("it is there");
                            assert_eq!(buffer.lease_best().map(|lease| lease[at as usize]), Ok(thread));
                            manager.demote(buffer, 1).expect("no lease is held");
                            assert_eq!(buffer.read_async(at, 100).wait(), Ok(vec![thread; 100]));
                        }
                    })
                })
                .collect();
            users.into_iter().for_each(|user| user.join().expect("no panic"));
            ends.store(true, Ordering::Relaxed);
        });
        manager.check().expect("sound");
    });
}
