//! Buffers of one thread, which knows their exact bytes.

use super::{CHUNK, MIB, World, bytes_of, cancelled, is_for_room, may};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};
use terrace_tests::Random;
use terrace_tiers::ledger::PlacementHint;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

/// A buffer and its bytes.
pub struct Owned {
    buffer: Buffer,
    bytes: Vec<u8>,
    /// Hashes of the bytes that may be durable: those of the last sync; all since then, once a sync was begun that nobody
    /// awaited.
    durable: BTreeSet<u64>,
    /// Whether a sync was awaited: a restart finds the name.
    synced: bool,
    /// Whether syncs were begun that nobody awaited.
    loose: bool,
}

/// A named buffer that the manager of the next round may find, and the bytes that it may have.
pub struct Kept {
    pub name: String,
    durable: BTreeSet<u64>,
    synced: bool,
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Sizes at the edges of pages and of chunks, and between.
fn size(random: &mut Random) -> u64 {
    let edges = [1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, MIB, 3 * MIB];
    if random.once_in(2) { edges[random.below(10) as usize] } else { random.size(3 * MIB) }
}

/// Bytes that differ from place to place and from write to write.
fn fresh(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut made = vec![0; bytes];
    made.chunks_mut(1024).for_each(|part| part.fill(random.next() as u8));
    made
}

impl Owned {
    /// Allocates one more, with a name or without. Names are few, so that most were removed before.
    pub fn allocate(world: &World, (thread, own): (u64, &[Self]), random: &mut Random) -> Option<Self> {
        let (bytes, name) = (size(random), format!("{thread} has {}", random.below(6)));
        let is_taken = own.iter().any(|owned| owned.buffer.name() == Some(&name));
        let tier = (random.once_in(3)).then(|| random.below(u64::from(world.memory) + 2) as u8);
        let hint = PlacementHint { tier, keep: false };
        let options =
            BufferOptions { name: random.once_in(2).then_some(name), hint, wait: random.once_in(4), tenant: 0 };
        if options.name.is_some() && is_taken {
            return None;
        }
        if random.once_in(8) {
            // Freed wherever its request has got, with its name.
            let name = options.name.is_some().then(|| format!("{thread} drops {}", random.next()));
            drop(cancelled(world.manager.allocate_async(bytes, BufferOptions { name, ..options }), random)?);
            return None;
        }
        let buffer = world.manager.allocate_with(bytes, options).expect("files have room");
        let owned =
            Self { buffer, bytes: vec![0; bytes as usize], durable: BTreeSet::new(), synced: false, loose: false };
        owned.holds();
        Some(owned)
    }

    /// All of the bytes are right.
    pub fn holds(&self) {
        let mut read = vec![1; self.bytes.len()];
        self.buffer.read(0, &mut read).expect("read");
        self.is(0, &read);
    }

    fn is(&self, offset: usize, read: &[u8]) {
        let expected = &self.bytes[offset..offset + read.len()];
        if let Some(at) = (0..read.len()).find(|at| read[*at] != expected[*at]) {
            let (name, found) = (self.buffer.name(), (read[at], expected[at]));
            panic!("{name:?}: byte {} of {} is {found:?}, of {}", offset + at, self.bytes.len(), read.len());
        }
    }

    /// A range, often from or to the edge of a chunk.
    fn range(&self, random: &mut Random) -> (usize, usize) {
        let len = self.bytes.len() as u64;
        let at = |random: &mut Random| {
            let at = random.below(len + 1);
            if random.once_in(3) { at / CHUNK * CHUNK } else { at }
        };
        let (one, two) = (at(random), at(random));
        (one.min(two) as usize, one.max(two) as usize)
    }

    /// Records a write of these bytes, which later reads must return.
    fn wrote(&mut self, offset: usize, part: &[u8]) {
        self.bytes[offset..offset + part.len()].copy_from_slice(part);
        if self.loose {
            self.durable.insert(hash(&self.bytes));
        }
    }

    /// Uses the buffer once. Nobody else does, so that only room is ever lacking.
    pub fn step(&mut self, world: &World, random: &mut Random) {
        let (manager, (start, end)) = (&world.manager, self.range(random));
        let tier = random.below(u64::from(world.memory) + 2) as u8;
        match random.below(22) {
            0..3 => {
                let part = fresh(random, end - start);
                self.buffer.write(start as u64, &part).expect("nobody else has it");
                self.wrote(start, &part);
            }
            3..5 => {
                let mut read = vec![1; end - start];
                self.buffer.read(start as u64, &mut read).expect("read");
                self.is(start, &read);
            }
            5 => {
                let part = fresh(random, end - start);
                self.buffer.write_async(start as u64, part.clone()).wait().expect("nobody else has it");
                self.wrote(start, &part);
            }
            6 => self.write_without_waiting(start, end, random),
            7 => {
                if let Some(read) = cancelled(self.buffer.read_async(start as u64, end - start), random) {
                    self.is(start, &read.expect("read"));
                }
            }
            8..11 => {
                if let Some(lease) = may(self.buffer.lease_best(), is_for_room) {
                    self.is(0, &lease);
                    assert_eq!(self.buffer.write(0, &[1]), Err(Error::Leased));
                    assert_eq!(manager.demote(&self.buffer, world.memory), Err(Error::Leased));
                    let again = self.buffer.try_lease().expect("they share").expect("it stays");
                    assert_eq!(again.as_ptr(), lease.as_ptr());
                    drop(lease);
                    self.is(0, &again);
                }
            }
            11 => {
                if let Some(lease) = may(self.buffer.try_lease(), is_for_room).flatten() {
                    self.is(0, &lease);
                }
            }
            12..14 => self.lease_to_write(start, end, random),
            14 => {
                if let Some(lease) = cancelled(self.buffer.lease_best_async(), random) {
                    may(lease, is_for_room).iter().for_each(|lease| self.is(0, lease));
                }
            }
            15 => drop(cancelled(self.buffer.lease_mut_async(), random).and_then(|lease| may(lease, is_for_room))),
            16 => {
                // Waits, or is dropped on the way: then it goes on.
                let moved = match random.below(3) {
                    0 => manager.promote_async(&self.buffer, tier),
                    1 => manager.demote_async(&self.buffer, tier),
                    _ => manager.prefetch_async(&self.buffer),
                };
                let ended = if random.once_in(2) { Some(moved.wait()) } else { cancelled(moved, random) };
                ended.and_then(|ended| may(ended, is_for_room));
            }
            17 => manager.prefetch(&self.buffer).expect("it is there"),
            18 if world.memory > 1 => {
                let room = |error: &Error| is_for_room(error);
                may(self.buffer.lease_device(), room)
                    .iter()
                    .for_each(|lease| assert_eq!(lease.bytes(), self.bytes.len() as u64));
                // Nothing is written, but all other copies are stale now.
                drop(may(self.buffer.lease_device_mut(), room));
            }
            18..20 => self.sync(manager, random),
            _ => self.reopen(manager),
        }
    }

    /// A write that nobody waits for is done all the same; until then, reads see all of it or nothing.
    fn write_without_waiting(&mut self, start: usize, end: usize, random: &mut Random) {
        let (part, mut read) = (fresh(random, end - start), vec![1; end - start]);
        drop(cancelled(self.buffer.write_async(start as u64, part.clone()), random));
        let begun = Instant::now();
        loop {
            self.buffer.read(start as u64, &mut read).expect("read");
            if read == part {
                return self.wrote(start, &part);
            }
            self.is(start, &read);
            assert!(begun.elapsed() < Duration::from_secs(30), "a write was begun, and does not end");
            std::thread::yield_now();
        }
    }

    fn lease_to_write(&mut self, start: usize, end: usize, random: &mut Random) {
        let part = fresh(random, end - start);
        let Some(mut lease) = may(self.buffer.lease_mut(), is_for_room) else { return };
        self.is(0, &lease);
        lease[start..end].copy_from_slice(&part);
        assert_eq!(self.buffer.read(0, &mut [0]), Err(Error::Leased));
        assert!(matches!(self.buffer.try_lease(), Err(Error::Leased)));
        drop(lease);
        self.wrote(start, &part);
    }

    fn sync(&mut self, manager: &Manager, random: &mut Random) {
        if self.buffer.name().is_none() {
            return assert_eq!(manager.sync(&self.buffer), Err(Error::Unnamed));
        }
        if random.once_in(3) {
            self.loose = true;
            self.durable.insert(hash(&self.bytes));
            let ended = cancelled(manager.sync_async(&self.buffer), random);
            self.synced |= ended.is_some_and(|ended| ended.is_ok());
        } else if may(manager.sync(&self.buffer), is_for_room).is_some() {
            self.synced = true;
            self.durable = BTreeSet::from([hash(&self.bytes)]);
        }
    }

    /// The name finds the same bytes, also where no handle was left.
    fn reopen(&mut self, manager: &Manager) {
        if let Some(name) = self.buffer.name().map(String::from) {
            assert!(matches!(manager.allocate_named(&name, 1), Err(Error::NameTaken(_))));
            self.buffer = manager.open(&name).expect("it has a handle");
        }
    }

    /// Frees the buffer, by its name or by its last handle.
    pub fn release(self, manager: &Manager, random: &mut Random) {
        self.holds();
        if !self.remove(manager) {
            // In use, perhaps, until a task has ended.
            drop((self.buffer.read_async(0, 1), manager.prefetch(&self.buffer)));
            if random.once_in(2) {
                drop(cancelled(self.buffer.lease_best_async(), random));
            }
        }
    }

    /// Frees the buffer if it has a name: its handles say so.
    pub fn remove(&self, manager: &Manager) -> bool {
        let Some(name) = self.buffer.name() else { return false };
        manager.remove(name).expect("no lease is held");
        assert_eq!(self.buffer.read(0, &mut [0]), Err(Error::Freed));
        assert_eq!(self.buffer.write(0, &[0]), Err(Error::Freed));
        assert!(matches!(manager.open(name), Err(Error::NoSuchName(_))));
        true
    }

    /// Drops the handle, and says what another manager may find.
    pub fn kept(self) -> Option<Kept> {
        let name = self.buffer.name()?.to_string();
        Some(Kept { name, durable: self.durable, synced: self.synced })
    }
}

impl Kept {
    /// The name is found if it was synced, with the bytes of the last sync or of a later one.
    pub fn is_found(&self, manager: &Manager, found: bool) {
        let Self { name, durable, synced } = self;
        assert!(found || !synced, "{name} was synced");
        if found {
            assert!(durable.contains(&hash(&bytes_of(manager, name))), "{name}: not what was synced");
        }
    }
}

/// A pass over the thread's buffers, which is left in the middle now and then.
pub fn pass(world: &World, own: &[Owned], random: &mut Random) {
    let buffers: Vec<Buffer> = own.iter().map(|owned| owned.buffer.clone()).collect();
    let mut pass = world.manager.sequence(&buffers, random.below(3) as usize).expect("its own");
    let turns = random.below(own.len() as u64 + 1) as usize;
    for owned in &own[..turns] {
        let lease = match random.once_in(4) {
            true => Some(futures_lite::future::block_on(pass.lease_next_async())),
            false => Some(pass.lease_next()),
        };
        let lease = lease.flatten().expect("one more");
        may(lease, is_for_room).iter().for_each(|lease| owned.is(0, lease));
    }
    if turns == own.len() {
        assert!(pass.lease_next().is_none());
    }
}
