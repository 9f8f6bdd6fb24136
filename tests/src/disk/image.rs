//! What one file of the simulated disk holds, in sectors.
//!
//! Promises upward: reads see all that was written; what is durable changes by [`Image::sync`] alone (and by rot); which
//! sectors do not hold what they should is known, so that a test can say whether an error was just.
//!
//! Invariant: without faults, `now` is `durable` with `pending` laid over it in order.

use super::dice::Dice;
use std::collections::BTreeSet;

/// What a disk writes whole or not at all.
pub const SECTOR: usize = 512;

/// A write that is not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Its first sector.
    pub(super) first: usize,
    /// Whole sectors.
    pub(super) bytes: Vec<u8>,
    /// When it was answered, in steps of the disk.
    pub(super) answered: u64,
    /// A sync said that it is durable, and lied.
    pub(super) promised: bool,
    /// What happened to it on its way.
    pub(super) way: Way,
}

/// Where a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Where it should.
    Right,
    /// Nowhere.
    Lost,
    /// It was meant for another place.
    Stray,
}

/// A file's contents.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// What is read.
    pub(super) now: Vec<u8>,
    /// What survives a power cut whatever else does.
    pub(super) durable: Vec<u8>,
    /// Written since, in the order of the answers.
    pub(super) pending: Vec<Pending>,
    /// Sectors of `now` that do not hold what was written, though no answer said so.
    pub(super) damaged: BTreeSet<usize>,
    /// The same of `durable`.
    pub(super) rotten: BTreeSet<usize>,
    /// A sync made it durable that the file has this size.
    pub(super) sized: bool,
}

impl Image {
    /// Zeros.
    pub(super) fn new(bytes: usize) -> Self {
        let durable = vec![0; bytes];
        let (damaged, rotten) = Default::default();
        Self { now: durable.clone(), durable, pending: Vec::new(), damaged, rotten, sized: false }
    }

    /// What the next start finds.
    pub(super) fn settled(durable: Vec<u8>, rotten: BTreeSet<usize>) -> Self {
        Self { now: durable.clone(), durable, pending: Vec::new(), damaged: rotten.clone(), rotten, sized: true }
    }

    pub(super) fn sectors(&self) -> usize {
        self.now.len() / SECTOR
    }

    /// Writes whole sectors.
    pub(super) fn write(&mut self, first: usize, bytes: &[u8], answered: u64, way: Way) {
        debug_assert!(bytes.len().is_multiple_of(SECTOR));
        let sectors = first..first + bytes.len() / SECTOR;
        if way != Way::Lost {
            self.now[first * SECTOR..][..bytes.len()].copy_from_slice(bytes);
        }
        match way {
            Way::Right if self.damaged.is_empty() => {}
            Way::Right => self.damaged.retain(|sector| !sectors.contains(sector)),
            Way::Lost | Way::Stray => self.damaged.extend(sectors),
        }
        self.pending.push(Pending { first, bytes: bytes.to_vec(), answered, promised: false, way });
    }

    /// Writes a part of a write's sectors: those for which `keep` says so.
    pub(super) fn write_some(&mut self, first: usize, bytes: &[u8], answered: u64, mut keep: impl FnMut() -> bool) {
        for (index, sector) in bytes.chunks(SECTOR).enumerate() {
            if keep() {
                self.write(first + index, sector, answered, Way::Right);
            }
        }
    }

    /// Makes durable what was answered before `until`.
    pub(super) fn sync(&mut self, until: u64) {
        self.sized = true;
        let covered = self.covered(until);
        for write in self.pending.drain(..covered) {
            let sectors = write.first..write.first + write.bytes.len() / SECTOR;
            if write.way != Way::Lost {
                self.durable[write.first * SECTOR..][..write.bytes.len()].copy_from_slice(&write.bytes);
            }
            match write.way {
                Way::Right if self.rotten.is_empty() => {}
                Way::Right => self.rotten.retain(|sector| !sectors.contains(sector)),
                Way::Lost | Way::Stray => self.rotten.extend(sectors),
            }
        }
    }

    /// Says that it did.
    pub(super) fn sync_lost(&mut self, until: u64) {
        let covered = self.covered(until);
        self.pending[..covered].iter_mut().for_each(|write| write.promised = true);
    }

    /// Fails: each write is dropped or kept, and the system holds all of them for done. What was dropped may be read until the
    /// system forgets it, which is at once or at the power cut.
    pub(super) fn sync_failed(&mut self, until: u64, dice: &mut dyn Dice) {
        let covered = self.covered(until);
        let (old, later): (Vec<_>, Vec<_>) = {
            let mut old = std::mem::take(&mut self.pending);
            let later = old.split_off(covered);
            (old, later)
        };
        for write in old {
            let choice = dice.below(4);
            if choice == 2 {
                self.forget(&write);
            }
            if choice < 2 {
                self.pending.push(write);
            } else if write.promised {
                // An earlier sync had said that it is durable: what lies there instead is wrong, also what was written before.
                self.pending.push(Pending { way: Way::Lost, ..write });
            }
        }
        self.pending.extend(later);
    }

    /// What was written is read no more.
    fn forget(&mut self, write: &Pending) {
        let bytes = write.first * SECTOR..write.first * SECTOR + write.bytes.len();
        self.now[bytes.clone()].copy_from_slice(&self.durable[bytes]);
        self.damaged.extend(write.first..write.first + write.bytes.len() / SECTOR);
    }

    /// How many writes a sync covers: `pending` is in the order of the answers.
    fn covered(&self, until: u64) -> usize {
        self.pending.partition_point(|write| write.answered < until)
    }

    /// One bit turns, for good.
    pub(super) fn rot(&mut self, byte: usize, bit: u8) {
        let sector = byte / SECTOR;
        self.now[byte] ^= 1 << bit;
        self.damaged.insert(sector);
        let covers = |write: &Pending| {
            write.way != Way::Lost && (write.first..write.first + write.bytes.len() / SECTOR).contains(&sector)
        };
        match self.pending.iter().rposition(covers) {
            // As if the sector were written once more, by nobody, and so that what is durable then counts as rotten.
            Some(index) => {
                let bytes = self.now[sector * SECTOR..][..SECTOR].to_vec();
                let Pending { answered, promised, .. } = self.pending[index];
                let stray = Pending { first: sector, bytes, answered, promised, way: Way::Stray };
                self.pending.insert(index + 1, stray);
            }
            None => {
                self.durable[byte] ^= 1 << bit;
                self.rotten.insert(sector);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn a_sync_covers_what_was_answered_before_it() {
        let mut image = Image::new(4 * SECTOR);
        image.write(0, &[1; SECTOR], 5, Way::Right);
        image.write(1, &[2; SECTOR], 6, Way::Right);
        image.sync(6);
        assert_eq!((image.durable[0], image.durable[SECTOR], image.pending.len()), (1, 0, 1));
        assert_eq!(image.now[SECTOR], 2);
    }

    #[test]
    fn after_a_failed_sync_the_next_one_lies() {
        let mut random = Random::new(1);
        let dropped = (0..40).filter(|_| {
            let mut image = Image::new(SECTOR);
            image.write(0, &[7; SECTOR], 1, Way::Right);
            image.sync_failed(2, &mut random);
            image.sync(3);
            image.durable[0] == 0
        });
        assert!((5..35).contains(&dropped.count()), "some are dropped, some are kept");
    }

    #[test]
    fn what_a_sync_promised_and_the_next_one_dropped_is_rotten_whatever_was_written_before() {
        let dropped = (0..40).filter(|&seed| {
            let (mut random, mut image) = (Random::new(seed), Image::new(SECTOR));
            image.write(0, &[1; SECTOR], 1, Way::Right);
            image.write(0, &[2; SECTOR], 2, Way::Right);
            image.sync_lost(3);
            image.sync_failed(3, &mut random);
            image.sync(4);
            assert_eq!(image.rotten.contains(&0), image.durable[0] != 2, "seed {seed}");
            image.durable[0] == 1
        });
        assert!((3..20).contains(&dropped.count()), "sometimes the first is kept and the second is dropped");
    }

    #[test]
    fn rot_is_read_and_lasts_until_the_sector_is_written() {
        let mut image = Image::new(2 * SECTOR);
        image.write(0, &[1; 2 * SECTOR], 1, Way::Right);
        image.rot(3, 1);
        assert_eq!((image.now[3], image.damaged.contains(&0)), (3, true));
        image.sync(2);
        assert_eq!((image.durable[3], image.rotten.contains(&0)), (3, true));
        image.write(0, &[4; SECTOR], 3, Way::Right);
        assert!(!image.damaged.contains(&0) && image.rotten.contains(&0), "not durable yet");
        image.sync(4);
        assert!(!image.rotten.contains(&0));
    }
}
