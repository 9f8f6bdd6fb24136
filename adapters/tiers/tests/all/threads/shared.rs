//! Buffers that all threads use: every word has the version of one write, and versions only grow.

use super::{CHUNK, MIB, World, bytes_of, cancelled, is_for_room, may};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use terrace_tests::Random;
use terrace_tiers::{Buffer, Error, Manager};

/// Bytes of the buffers: in one page, in one chunk, at the edges of chunks, in many.
const SIZES: [u64; 8] = [8, 4096, CHUNK - 8, CHUNK, CHUNK + 8, 700 << 10, MIB, 3 * MIB];

/// A buffer of versions.
pub struct Stamped {
    buffer: Buffer,
    /// The newest version whose write has ended: no later read finds an older one.
    published: AtomicU64,
    /// The newest version that was published before a sync that went well.
    synced: AtomicU64,
    /// Held by calls that write, which do not see the version that they replace.
    calls: Mutex<()>,
    /// Whether calls write it, or leases alone.
    by_calls: bool,
}

/// The name of a buffer of versions, and the least version that another manager must find.
pub struct Kept {
    pub name: String,
    least: u64,
    most: u64,
}

/// What a lease, a move or a call may be refused for beside others.
fn is_for_others(error: &Error) -> bool {
    matches!(error, Error::Leased) || is_for_room(error)
}

/// The one version in these bytes.
fn version(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next().expect("a word");
    let torn = words.position(|word| word != first);
    assert_eq!(torn, None, "two versions in {} bytes, one is {first}", bytes.len());
    first
}

fn stamp(bytes: &mut [u8], version: u64) {
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&version.to_le_bytes()));
}

impl Stamped {
    pub fn all(manager: &Manager) -> Vec<Self> {
        let one = |(at, bytes): (usize, &u64)| {
            let buffer = manager.allocate_named(&format!("shared {at}"), *bytes).expect("room");
            let [published, synced] = [0, 0].map(AtomicU64::new);
            Self { buffer, published, synced, calls: Mutex::default(), by_calls: at % 2 == 0 }
        };
        SIZES.iter().enumerate().map(one).collect()
    }

    /// What a use may find that begins now.
    fn least(&self) -> u64 {
        self.published.load(Ordering::SeqCst)
    }

    fn is(&self, least: u64, bytes: &[u8]) -> u64 {
        let version = version(bytes);
        let name = self.buffer.name();
        assert!(version >= least, "{name:?} went back to {version} from {least}");
        version
    }

    /// Uses the buffer once.
    pub fn step(&self, world: &World, random: &mut Random) {
        let (manager, buffer, least) = (&world.manager, &self.buffer, self.least());
        let tier = random.below(u64::from(world.memory) + 2) as u8;
        match random.below(16) {
            0..3 => {
                let mut read = vec![1; buffer.bytes() as usize];
                may(buffer.read(0, &mut read), |error| *error == Error::Leased).map(|()| self.is(least, &read));
            }
            3 => {
                let words = buffer.bytes() / 8;
                let start = random.below(words);
                let bytes = (1 + random.below(words - start)) * 8;
                if let Some(read) = cancelled(buffer.read_async(start * 8, bytes as usize), random) {
                    may(read, |error| *error == Error::Leased).map(|read| self.is(least, &read));
                }
            }
            4..6 => {
                if let Some(lease) = may(buffer.lease_best(), is_for_others) {
                    let first = self.is(least, &lease);
                    std::thread::sleep(Duration::from_micros(random.below(300)));
                    assert_eq!(version(&lease), first, "it is leased");
                }
            }
            6 => {
                let lease = may(buffer.try_lease(), is_for_others).flatten();
                lease.iter().for_each(|lease| _ = self.is(least, lease));
            }
            7 => {
                if let Some(lease) = cancelled(buffer.lease_best_async(), random) {
                    may(lease, is_for_others).map(|lease| self.is(least, &lease));
                }
            }
            8 => drop(cancelled(buffer.lease_mut_async(), random).and_then(|lease| may(lease, is_for_others))),
            9..11 if self.by_calls => self.write(random),
            9..11 => self.lease_to_write(),
            11 => {
                let moved = match random.below(4) {
                    0 => manager.promote_async(buffer, tier),
                    1 => manager.demote_async(buffer, tier),
                    _ => manager.prefetch_async(buffer),
                };
                let ended = if random.once_in(2) { Some(moved.wait()) } else { cancelled(moved, random) };
                ended.and_then(|ended| may(ended, is_for_others));
            }
            12 => manager.prefetch(buffer).expect("it is there"),
            13 => drop(cancelled(manager.sync_async(buffer), random)),
            14 => {
                if may(manager.sync(buffer), is_for_others).is_some() {
                    self.synced.fetch_max(least, Ordering::SeqCst);
                }
            }
            _ => assert_eq!(
                manager.open(buffer.name().expect("a name")).map(|opened| opened.bytes()),
                Ok(buffer.bytes())
            ),
        }
    }

    /// Writes the next version by a call.
    fn write(&self, random: &mut Random) {
        let _alone = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, mut bytes) = (self.least() + 1, vec![0; self.buffer.bytes() as usize]);
        stamp(&mut bytes, next);
        let written = match random.once_in(2) {
            true => self.buffer.write(0, &bytes),
            false => self.buffer.write_async(0, bytes).wait(),
        };
        if may(written, |error| *error == Error::Leased).is_some() {
            self.published.fetch_max(next, Ordering::SeqCst);
        }
    }

    /// Writes the next version under a lease; readers that find it half written would find two versions.
    fn lease_to_write(&self) {
        let least = self.least();
        let Some(mut lease) = may(self.buffer.lease_mut(), is_for_others) else { return };
        let next = self.is(least, &lease) + 1;
        let half = lease.len() / 16 * 8;
        stamp(&mut lease[half..], next);
        std::thread::yield_now();
        stamp(&mut lease[..half], next);
        drop(lease);
        self.published.fetch_max(next, Ordering::SeqCst);
    }

    /// Drops the handle once the threads have ended; returns what the manager of the next round must find.
    pub fn kept(self) -> Kept {
        let (least, most) = (self.synced.into_inner(), self.published.into_inner());
        Kept { name: self.buffer.name().expect("a name").into(), least, most }
    }
}

impl Kept {
    pub fn is_found(&self, manager: &Manager, found: bool) {
        let Self { name, least, most } = self;
        assert!(found || *least == 0, "{name} was synced");
        if found {
            let version = version(&bytes_of(manager, name));
            assert!((*least..=*most).contains(&version), "{name}: {version}, not from {least} to {most}");
        }
    }
}

/// Names that all threads allocate, open and remove: each buffer has zeros, or the stamp of its name in every word.
pub struct Contended;

const NAMES: u64 = 4;

impl Contended {
    pub fn new() -> Self {
        Self
    }

    pub fn step(&self, world: &World, random: &mut Random) {
        let manager = &world.manager;
        let (at, is_gone) = (random.below(NAMES), |error: &Error| matches!(error, Error::Freed | Error::Leased));
        let name = format!("contended {at}");
        match random.below(4) {
            0 => {
                let bytes = random.size(MIB / 8) * 8;
                let taken = |error: &Error| matches!(error, Error::NameTaken(_));
                let Some(buffer) = may(manager.allocate_named(&name, bytes), taken) else { return };
                let mut stamped = vec![0; bytes as usize];
                stamp(&mut stamped, at + 1);
                may(buffer.write(0, &stamped), is_gone);
            }
            1 => _ = may(manager.remove(&name), |error| matches!(error, Error::NoSuchName(_)) || is_gone(error)),
            _ => {
                let Some(buffer) = may(manager.open(&name), |error| matches!(error, Error::NoSuchName(_))) else {
                    return;
                };
                let right = |bytes: &[u8]| assert!([0, at + 1].contains(&version(bytes)), "{name}: another's bytes");
                let mut read = vec![1; buffer.bytes() as usize];
                may(buffer.read(0, &mut read), is_gone).iter().for_each(|()| right(&read));
                let others = |error: &Error| is_gone(error) || is_for_room(error);
                may(buffer.lease_best(), others).iter().for_each(|lease| right(lease));
                if random.once_in(2) {
                    may(manager.sync(&buffer), others);
                }
            }
        }
    }

    /// Takes the contended names out of those that another manager has found.
    pub fn found(manager: &Manager, names: &mut BTreeSet<String>) {
        for at in 0..NAMES {
            let name = format!("contended {at}");
            if names.remove(&name) {
                assert!([0, at + 1].contains(&version(&bytes_of(manager, &name))), "{name}: another's bytes");
            }
        }
    }
}
