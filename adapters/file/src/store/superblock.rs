//! The superblock: a store's identity, and a lower bound of what is durable.
//!
//! ```text
//! file     floor | 0 .. | mark | mark | 0 .. | floor       16 pages; floors and marks are pages of one format
//! page     magic 8 | version 4 | crc 4 | identity 16 | count 8 | generation 4 | 0 4 | blocks 8 | durable 8 | 0
//! ```
//!
//! A log alone cannot show that its end was cut off or a later log deleted; the superblock can. Its pages hold copies
//! of the bound: two synced ones (floors) and two that are not synced (marks). The store writes a floor when the first
//! group of a log is durable, before it relies on the log, and the marks after each floor and each later group.
//!
//! Promises upward: a store whose logs hold less than was once durable is [`StoreError::Damaged`], never an older state; one
//! bad page loses nothing.
//! Asks from below: a disk, a frame.
//!
//! Invariants:
//! - floors are written alternately, each synced before the other is written: after any power cut one of them is sound
//! - marks are not synced: each states what was durable before its write, and a lost mark only states less
//! - each floor has a count of its own, even one whose write was reported as failed: the page with the greater count holds
//! - 56 KiB lie between the floors, so that a misdirected write hits one of them only
//! - the file is durable before the store creates any other file

use super::block::{BLOCK, Identity, VERSION, check_format, checksum};
use super::error::StoreError;
use crate::disk::{Disk, DiskRequest, StoreFile, submit};
use crate::fault::FileFaultReason;
use crate::frame::Frame;

/// The first bytes of every page of the superblock.
const MAGIC: [u8; 8] = *b"terrace\x1b";

/// Page numbers of the two floors (synced copies of the bound), then of the two marks (copies that are not synced). One
/// write covers both marks, so they are neighbours.
const POSITIONS: [usize; PAGES] = [0, 15, 7, 8];
const PAGES: usize = 4;
pub(super) const FLOORS: usize = 2;

/// Bytes of the superblock's file: 64 KiB.
pub(super) const BYTES: u64 = 16 * BLOCK as u64;

/// Bytes of a page that hold its checksum.
const CRC: std::ops::Range<usize> = 12..16;

/// How often an invalid page is read: the disk may misread once.
const TRIES: usize = 2;

/// A lower bound of what is durable: a log, and how many of its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DurableBound {
    /// The generation of the log that holds everything durable; 0 before there is one.
    pub generation: u32,
    /// Number of blocks in one copy of that log.
    pub blocks: u64,
    /// How many of those blocks, at least, are durable.
    pub durable: u64,
}

/// The superblock of an open store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Superblock {
    pub identity: Identity,
    /// The bound that was last read from the superblock, or written to it.
    pub bound: DurableBound,
    /// Number of floor pages written so far, including writes reported as failed.
    count: u64,
    /// Index of the floor page to write next, 0 or 1. The other one is durable, unless no floor page was written yet.
    slot: usize,
    /// Whether the last write of a floor page failed: that page may name a log on which the store does not rely.
    unsure: bool,
}

/// A decoded page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SuperblockPage {
    identity: Identity,
    count: u64,
    bound: DurableBound,
}

impl SuperblockPage {
    fn encode(&self, bytes: &mut [u8]) {
        let DurableBound { generation, blocks, durable } = self.bound;
        bytes.fill(0);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.identity.0);
        bytes[32..40].copy_from_slice(&self.count.to_le_bytes());
        bytes[40..44].copy_from_slice(&generation.to_le_bytes());
        bytes[48..56].copy_from_slice(&blocks.to_le_bytes());
        bytes[56..64].copy_from_slice(&durable.to_le_bytes());
        let crc = checksum(bytes, CRC);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
            bytes.get(at..at + N)?.try_into().ok()
        }
        let number = |at| array(bytes, at).map(u64::from_le_bytes);
        let (version, crc) = (u32::from_le_bytes(array(bytes, 8)?), u32::from_le_bytes(array(bytes, CRC.start)?));
        // seeded: superblock_crc: crc == checksum(bytes, CRC) => true
        let sound = array(bytes, 0)? == MAGIC && version == VERSION && crc == checksum(bytes, CRC);
        let generation = u32::from_le_bytes(array(bytes, 40)?);
        let bound = DurableBound { generation, blocks: number(48)?, durable: number(56)? };
        sound.then_some(Self { identity: Identity(array(bytes, 16)?), count: number(32)?, bound })
    }
}

/// Reads the superblock, with the I/O buffer in `frame`, which it puts back. `None` if no page is valid and none is of
/// another program or version.
///
/// # Errors
/// [`StoreError::Foreign`], [`StoreError::Older`], [`StoreError::Newer`]; [`StoreError::Damaged`] when pages name
/// different stores; the error of the disk when no page could be read.
pub(super) async fn read(disk: &dyn Disk, frame: &mut Option<Frame>) -> Result<Option<Superblock>, StoreError> {
    let (mut pages, mut refused) = ([None; PAGES], None);
    for (index, page) in pages.iter_mut().enumerate() {
        for _ in 0..TRIES {
            match read_page(disk, index, frame).await {
                Ok(bytes) => match SuperblockPage::decode(bytes) {
                    Some(sound) => *page = Some(sound),
                    None => refused = check_format(StoreFile::Superblock, MAGIC, bytes).err().or(refused),
                },
                Err(fault) => refused = refused.or(Some(fault)),
            }
            if page.is_some() {
                break;
            }
        }
    }
    let Some(first) = pages.iter().flatten().next() else { return refused.map_or(Ok(None), Err) };
    let identity = first.identity;
    // seeded: superblock_mixed: pages.iter().flatten().any(|page| page.identity != identity) => false
    if pages.iter().flatten().any(|page| page.identity != identity) {
        return Err(StoreError::Damaged { file: StoreFile::Superblock });
    }
    Ok(Some(Superblock { bound: latest_bound(&pages), ..next_slot(&pages, identity) }))
}

/// The bound of the page that was written last, which has the greatest count; of several such pages, the highest bound.
fn latest_bound(pages: &[Option<SuperblockPage>; PAGES]) -> DurableBound {
    // seeded: superblock_latest: (page.count, page.bound.generation, page.bound.durable) => (0, page.bound.generation, page.bound.durable)
    let latest = |page: &&SuperblockPage| (page.count, page.bound.generation, page.bound.durable);
    pages.iter().flatten().max_by_key(latest).map(|page| page.bound).unwrap_or_default()
}

/// A superblock whose next floor page to write is the later of the two, whose sync may not have ended, or one that is
/// not valid.
fn next_slot(pages: &[Option<SuperblockPage>; PAGES], identity: Identity) -> Superblock {
    let count = |slot: usize| pages[slot].map(|page| page.count);
    let slot = match (count(0), count(1)) {
        (Some(first), Some(second)) => usize::from(second > first),
        (first, _) => usize::from(first.is_some()),
    };
    let count = pages.iter().flatten().map(|page| page.count).max().unwrap_or(0);
    Superblock { identity, bound: DurableBound::default(), count, slot, unsure: false }
}

async fn read_page<'a>(disk: &dyn Disk, index: usize, frame: &'a mut Option<Frame>) -> Result<&'a [u8], StoreError> {
    let (file, offset) = (StoreFile::Superblock, (POSITIONS[index] * BLOCK) as u64);
    let own = frame.take().ok_or(StoreError::short("read", file, offset))?;
    let response = submit(disk, DiskRequest::Read { file, offset, bytes: BLOCK, frame: own }).await;
    *frame = response.frame;
    let moved = response.result?;
    // After a short read the file does not have the page: return no bytes.
    Ok(frame.as_ref().map_or(&[], |frame| &frame[..if moved == BLOCK { BLOCK } else { 0 }]))
}

impl Superblock {
    /// The superblock of a new store.
    ///
    /// # Errors
    /// The error of the system's random number generator.
    pub(super) fn new() -> Result<Self, StoreError> {
        Ok(Self { identity: Identity::random()?, bound: DurableBound::default(), count: 0, slot: 0, unsure: false })
    }

    /// Makes a bound durable: writes and syncs the next floor page, then writes the bound to the marks too.
    ///
    /// # Errors
    /// The error of the disk; the next call writes the same floor page again.
    pub(super) async fn write_floor(
        &mut self,
        disk: &dyn Disk,
        frame: &mut Option<Frame>,
        bound: DurableBound,
    ) -> Result<(), StoreError> {
        let damaged = StoreError::Damaged { file: StoreFile::Superblock };
        self.count = self.count.checked_add(1).ok_or(damaged)?;
        let next = Self { bound, unsure: false, ..*self };
        self.unsure = true;
        next.write(disk, frame, self.slot, 1).await?;
        // seeded: superblock_sync: submit(disk, DiskRequest::Sync { file: StoreFile::Superblock }).await.result => Ok(0)
        submit(disk, DiskRequest::Sync { file: StoreFile::Superblock }).await.result?;
        // seeded: superblock_turns: 1 - self.slot => self.slot
        *self = Self { slot: 1 - self.slot, ..next };
        // If the disk loses this floor page, the marks still name its log, and not the log before.
        // seeded: superblock_floor_marks: self.write_marks(disk, frame, bound.durable).await => Ok(())
        self.write_marks(disk, frame, bound.durable).await
    }

    /// If the last write of a floor page failed, overwrites that page and the marks with the current bound. The caller
    /// must do so before it removes the log that the page may name. The disk may silently lose one of the two writes,
    /// so both are synced.
    ///
    /// # Errors
    /// As [`write_floor`](Self::write_floor); then the log must stay, and the caller must try again.
    pub(super) async fn rewrite_if_unsure(
        &mut self,
        disk: &dyn Disk,
        frame: &mut Option<Frame>,
    ) -> Result<(), StoreError> {
        if !self.unsure {
            return Ok(());
        }
        self.write_floor(disk, frame, self.bound).await?;
        self.unsure = true;
        // seeded: superblock_assured_marks: self.write(disk, frame, FLOORS, PAGES - FLOORS).await? => ()
        self.write(disk, frame, FLOORS, PAGES - FLOORS).await?;
        // seeded: superblock_assured_sync: submit(disk, DiskRequest::Sync { file: StoreFile::Superblock }).await.result => Ok(0)
        submit(disk, DiskRequest::Sync { file: StoreFile::Superblock }).await.result?;
        self.unsure = false;
        Ok(())
    }

    /// Writes to the marks that `durable` blocks of the log are durable. If the write fails, the marks state fewer
    /// blocks, which is still true.
    ///
    /// # Errors
    /// The superblock has lost its name: a restart would not find what is durable.
    pub(super) async fn write_marks(
        &mut self,
        disk: &dyn Disk,
        frame: &mut Option<Frame>,
        durable: u64,
    ) -> Result<(), StoreError> {
        self.bound.durable = durable;
        // seeded: superblock_marks: self.write(disk, frame, FLOORS, PAGES - FLOORS).await => Ok::<(), StoreError>(())
        match self.write(disk, frame, FLOORS, PAGES - FLOORS).await {
            Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::Gone => Err(fault.into()),
            _ => Ok(()),
        }
    }

    /// Writes the page to `times` neighbouring pages of the file; the first is `POSITIONS[first]`.
    async fn write(
        &self,
        disk: &dyn Disk,
        own: &mut Option<Frame>,
        first: usize,
        times: usize,
    ) -> Result<(), StoreError> {
        let (file, offset, bytes) = (StoreFile::Superblock, (POSITIONS[first] * BLOCK) as u64, times * BLOCK);
        let mut frame = own.take().ok_or(StoreError::short("write", file, offset))?;
        let page = SuperblockPage { identity: self.identity, count: self.count, bound: self.bound };
        frame[..bytes].chunks_mut(BLOCK).for_each(|block| page.encode(block));
        let response = submit(disk, DiskRequest::Write { file, offset, bytes, frame }).await;
        *own = response.frame;
        match response.result? {
            moved if moved == bytes => Ok(()),
            _ => Err(StoreError::short("write", file, offset)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(count: u64, generation: u32) -> SuperblockPage {
        let bound = DurableBound { generation, blocks: 8, durable: 3 };
        SuperblockPage { identity: Identity([7; 16]), count, bound }
    }

    #[test]
    fn a_page_with_any_bit_flipped_is_none() {
        let mut bytes = [0; BLOCK];
        page(5, 9).encode(&mut bytes);
        assert_eq!(SuperblockPage::decode(&bytes), Some(page(5, 9)));
        for bit in 0..BLOCK * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SuperblockPage::decode(&bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn the_floor_that_is_overwritten_is_never_the_only_one_that_is_durable() {
        let next = |first: Option<u64>, second: Option<u64>| {
            let floor = |count: Option<u64>| count.map(|count| page(count, 1));
            let found = next_slot(&[floor(first), floor(second), None, None], Identity([7; 16]));
            (found.slot, found.count)
        };
        assert_eq!(next(Some(4), Some(5)), (1, 5), "the sync of the later one may not have ended");
        assert_eq!(next(Some(6), Some(5)), (0, 6));
        assert_eq!(next(Some(4), None), (1, 4), "the other one is the only one");
        assert_eq!(next(None, Some(4)), (0, 4));
    }

    #[test]
    fn the_latest_page_counts_and_of_those_the_one_that_says_most() {
        let more = SuperblockPage { bound: DurableBound { durable: 5, ..page(9, 2).bound }, ..page(9, 2) };
        let pages = [Some(page(1, 1)), Some(page(8, 3)), Some(more), Some(page(9, 2))];
        assert_eq!(latest_bound(&pages), more.bound, "the floor of log 3 was taken back");
    }
}
