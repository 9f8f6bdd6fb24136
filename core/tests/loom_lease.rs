//! The lease word under loom: every interleaving of readers, a writer and the mover.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_lease
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: lease_acquire_relaxed
// seeded-env: lease_release_relaxed
// seeded-env: lease_close_relaxed
// seeded-env: lease_open_relaxed
// seeded-env: lease_close_blind
// seeded-env: lease_wanted_lost
// seeded-env: lease_brief_lost
#![cfg(loom)]

mod explore;

use explore::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use terrace_core::lease::{LeaseError, LeaseWord};

/// A buffer in two tiers: `here` says in which of them the bytes are. Loom reports any access that races.
struct World {
    lease: LeaseWord,
    tiers: [UnsafeCell<u32>; 2],
    here: UnsafeCell<usize>,
    /// The pinned total: the thread that sets COUNTED adds the bytes, the thread that closes subtracts them.
    pinned: AtomicUsize,
}

/// The value that the mover leaves in the tier from which it moved the bytes.
const GONE: u32 = u32::MAX;

impl World {
    /// The value 1 in tier 0, counted.
    fn new(counted: bool) -> Arc<Self> {
        let world = Self {
            lease: LeaseWord::open(),
            tiers: [UnsafeCell::new(1), UnsafeCell::new(GONE)],
            here: UnsafeCell::new(0),
            pinned: AtomicUsize::new(usize::from(counted)),
        };
        assert!(!counted || world.lease.set_counted() == Ok(true));
        Arc::new(world)
    }

    fn place(&self) -> usize {
        self.here.with(|here| read(here))
    }

    /// Reads under a shared lease; `None` if refused. The flag: the release returned true, so the mover must be notified.
    fn read(&self) -> Option<(u32, bool)> {
        self.lease.acquire_shared().ok()?;
        let value = self.tiers[self.place()].with(|bytes| read(bytes));
        Some((value, self.lease.release_shared()))
    }

    /// Writes under the exclusive lease.
    fn write(&self, value: u32) -> bool {
        let written = self.lease.acquire_exclusive().is_ok();
        if written {
            self.tiers[self.place()].with_mut(|bytes| write(bytes, value));
            let _ = self.lease.release_exclusive();
        }
        written
    }

    /// Moves the bytes to the other tier, and overwrites their old tier; or returns the error of `close`.
    fn shift(&self) -> Result<(), LeaseError> {
        if self.lease.close()? {
            self.pinned.fetch_sub(1, Ordering::Relaxed);
        }
        let from = self.place();
        let value = self.tiers[from].with(|bytes| read(bytes));
        self.tiers[1 - from].with_mut(|bytes| write(bytes, value));
        self.tiers[from].with_mut(|bytes| write(bytes, GONE));
        self.here.with_mut(|here| write(here, 1 - from));
        self.lease.reopen();
        Ok(())
    }
}

/// Reads a cell that loom has checked for races.
fn read<T: Copy>(place: *const T) -> T {
    // SAFETY: `UnsafeCell::with` of loom passes a pointer to the cell's own value and reports accesses that race.
    unsafe { *place }
}

/// Writes a cell that loom has checked for races.
fn write<T>(place: *mut T, value: T) {
    // SAFETY: `UnsafeCell::with_mut` of loom passes a pointer to the cell's own value and reports accesses that race.
    unsafe { *place = value }
}

#[test]
fn two_readers_and_a_mover() {
    explore(|| {
        let world = World::new(true);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || world.read())
            })
            .collect();
        let moved = world.shift();
        let reads: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("no panic")).collect();
        assert!(reads.iter().flatten().all(|(value, _)| *value == 1), "nobody reads what was moved away");
        let told = reads.iter().flatten().filter(|(_, wanted)| *wanted).count();
        match moved {
            Ok(()) => assert_eq!((told, world.pinned.load(Ordering::Relaxed)), (0, 0)),
            Err(refused) => {
                assert_eq!(refused, LeaseError::Busy);
                assert!(told >= 1, "the last release tells the mover");
                world.shift().expect("nobody holds a lease now");
            }
        }
        world.lease.check().expect("sound");
        assert!(!world.lease.is_held(), "no lease is lost");
        assert_eq!((world.place(), world.lease.acquire_shared()), (1, Err(LeaseError::Uncounted)));
    });
}

#[test]
fn a_reader_a_writer_and_a_mover() {
    explore(|| {
        let world = World::new(true);
        let other = world.clone();
        let writer = thread::spawn(move || other.write(2));
        let other = world.clone();
        let mover = thread::spawn(move || other.shift());
        let value = world.read();
        let written = writer.join().expect("no panic");
        let moved = mover.join().expect("no panic").is_ok();
        if let Some((value, _)) = value {
            assert!(value == 1 || (value == 2 && written), "{value}");
        }
        world.lease.set_counted().expect("open again");
        assert_eq!(world.place(), usize::from(moved));
        assert_eq!(world.read().map(|(value, _)| value), Some(if written { 2 } else { 1 }), "the write is not lost");
        assert!(!world.lease.is_held());
    });
}

#[test]
fn counting_and_closing_agree_on_what_is_pinned() {
    explore(|| {
        let world = World::new(false);
        let other = world.clone();
        let taker = thread::spawn(move || match other.lease.acquire_shared() {
            Err(LeaseError::Uncounted) => {
                // As under the owner's lock: add first, and subtract if the word was counted already.
                other.pinned.fetch_add(1, Ordering::Relaxed);
                if other.lease.set_counted() != Ok(true) {
                    other.pinned.fetch_sub(1, Ordering::Relaxed);
                }
                other.read().is_some()
            }
            refused => {
                assert_eq!(refused, Err(LeaseError::Closed));
                false
            }
        });
        let moved = world.shift();
        let read = taker.join().expect("no panic");
        assert!(read || moved.is_ok(), "one of them got the bytes");
        let counted = world.lease.clear_counted().expect("no lease is held");
        assert_eq!(world.pinned.load(Ordering::Relaxed), usize::from(counted));
    });
}

#[test]
fn a_writer_sees_what_the_writer_before_left() {
    explore(|| {
        let world = World::new(true);
        let other = world.clone();
        let writer = thread::spawn(move || other.write(2));
        let mine = world.write(3);
        let theirs = writer.join().expect("no panic");
        assert!(mine || theirs, "one of them at least");
        let value = world.read().map(|(value, _)| value);
        assert!(value == Some(2) && theirs || value == Some(3) && mine);
    });
}

/// A call that writes, and a second caller that waits for its end while a lessee reads.
#[test]
fn a_caller_that_waits_for_a_call_is_told() {
    explore(|| {
        let world = World::new(true);
        let other = world.clone();
        let reader = thread::spawn(move || {
            other.lease.acquire_brief(true).ok()?;
            let value = other.tiers[other.place()].with(|bytes| read(bytes));
            Some((value, other.lease.release_brief()))
        });
        let other = world.clone();
        let lessee = thread::spawn(move || other.read());
        let written = world.lease.acquire_brief_exclusive();
        if written.is_ok() {
            world.tiers[world.place()].with_mut(|bytes| write(bytes, 2));
            assert!(!world.lease.release_brief(), "no caller waits");
        }
        let waits = written == Err(LeaseError::Brief) && world.lease.want_brief();
        let (read, _) = (reader.join().expect("no panic"), lessee.join().expect("no panic"));
        assert!(!waits || read.is_some_and(|(_, told)| told), "the release of the last brief lease tells the caller");
        world.lease.check().expect("sound");
        assert!(!world.lease.is_held(), "no lease is lost");
    });
}

#[test]
fn a_mover_sees_what_a_call_left() {
    explore(|| {
        let world = World::new(true);
        let other = world.clone();
        let writer = thread::spawn(move || {
            other.lease.acquire_brief_exclusive().ok()?;
            other.tiers[other.place()].with_mut(|bytes| write(bytes, 2));
            Some(other.lease.release_brief())
        });
        let moved = world.shift();
        let wrote = writer.join().expect("no panic");
        assert!(moved.is_ok() || wrote == Some(true), "a mover that was refused is told");
        let _ = world.lease.set_counted();
        let value = world.read().map(|(value, _)| value);
        assert_eq!(value, Some(if wrote.is_some() { 2 } else { 1 }));
    });
}
