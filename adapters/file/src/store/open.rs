//! Recovery: finds what is durable on the disk; all other space is free.
//!
//! Promises upward: recovery changes nothing before it knows that the files are this store's and that nothing durable is missing;
//! it writes what it found to a new log, in two copies, before it removes the old ones.
//! Asks from below: the superblock ([`superblock`]), the logs ([`read`](super::read)).

use super::block::{BLOCK, FRAME, SPACE_AMPLIFICATION, file_bytes};
use super::error::StoreError;
use super::extent::Extent;
use super::log::Log;
use super::map::{ObjectMap, Updates};
use super::options::StoreOptions;
use super::piece::Piece;
use super::read::{self, FirstBlock, LogContents, LogInfo};
use super::record::PieceEntry;
use super::shared::StoreShared;
use super::space::{MAX_FILE_NUMBER, Space};
use super::superblock::{self, DurableBound, Superblock};
use crate::disk::{Claimed, Disk, DiskRequest, StoreFile, submit};
use crate::frame::{ALIGN, Frame, FramePool};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How far a file's number may exceed the highest one that the store is known to have used. Gaps are normal, because
/// failed attempts to create a file use up numbers too.
const MAX_NUMBER_GAP: u32 = 1 << 30;

/// The most bytes that all files of a store may have together: 2^48 below 2^64, so that adding the sizes of a few new
/// logs (up to 2^40 bytes each) and slabs (2^32 each) cannot overflow a `u64`.
const MAX_FILE_BYTES: u64 = u64::MAX - (1 << 48);

/// The store's files on the disk, by kind, with their numbers and their sizes in bytes.
struct StoreFiles {
    superblock: Option<u64>,
    slabs: Vec<(u32, u64)>,
    /// Logs with the latest generation first.
    logs: Vec<(u32, u64)>,
}

impl StoreFiles {
    /// Checks that no log's number is too far above `log`, the last log known, and no slab's above `slab`, the last
    /// slab in use.
    ///
    /// # Errors
    /// [`StoreError::BadNumber`].
    fn check_numbers(&self, log: u32, slab: u32) -> Result<(), StoreError> {
        let far =
            |(number, known): (u32, u32)| number >= MAX_FILE_NUMBER || number.saturating_sub(known) > MAX_NUMBER_GAP;
        let log = self.logs.iter().map(|(number, _)| *number).find(|number| far((*number, log))).map(StoreFile::Log);
        let slab =
            self.slabs.iter().map(|(number, _)| *number).find(|number| far((*number, slab))).map(StoreFile::Slab);
        log.or(slab).map_or(Ok(()), |file| Err(StoreError::BadNumber { file }))
    }

    /// Bytes of all files together.
    fn bytes(&self) -> u64 {
        let files = self.logs.iter().chain(&self.slabs).map(|(_, bytes)| *bytes);
        files.chain(self.superblock).fold(0, u64::saturating_add)
    }

    /// One of the logs or slabs, if there are any.
    fn first(&self) -> Option<StoreFile> {
        let log = self.logs.first().map(|(log, _)| StoreFile::Log(*log));
        log.or(self.slabs.first().map(|(slab, _)| StoreFile::Slab(*slab)))
    }
}

/// Opens the store on a disk, or creates one.
pub(super) async fn open(disk: Claimed, frames: FramePool, options: StoreOptions) -> Result<StoreShared, StoreError> {
    // seeded: options: options.check()? => ()
    options.check()?;
    let found = list_files(&*disk)?;
    let log_frame = || async { frames.wait(FRAME).await.map_err(|most| StoreError::TooLarge { asked: FRAME, most }) };
    let mut log_frames = [Some(log_frame().await?), Some(log_frame().await?)];
    let superblock = identify(&*disk, &found, &mut log_frames).await?;
    let (generation, contents) = latest(&*disk, &found, &superblock, options.cap, &mut log_frames).await?;
    // seeded: sizes_summed: found.bytes() > MAX_FILE_BYTES => false
    if found.bytes() > MAX_FILE_BYTES {
        return Err(StoreError::CapTooSmall { needs: found.bytes(), cap: options.cap });
    }
    let named = contents.slabs();
    found.check_numbers(generation.max(superblock.bound.generation), named.last().copied().unwrap_or(0))?;
    let space = Arc::new(Space::new(options.cap));
    space.count(superblock::BYTES);
    let unneeded = add_slabs(&found, &named, &space, &options)?;
    let log_files = |earlier: bool| {
        let others = found.logs.iter().filter(move |(log, _)| *log != generation && (*log < generation) == earlier);
        others.map(|(log, bytes)| (StoreFile::Log(*log), *bytes))
    };
    let mut log = Log {
        superblock,
        generation,
        latest: found.logs.first().map_or(0, |(latest, _)| *latest).max(superblock.bound.generation),
        blocks: contents.blocks,
        next_blocks: 0,
        next: contents.next,
        complete: contents.complete,
        // Never append to a recovered log. What a killed process wrote may be in the page cache only, and a later sync
        // may succeed without making it durable. The next log begins with a snapshot of everything.
        sealed: true,
        in_doubt: Vec::new(),
        predecessor: None,
        spare: None,
        // For now only the later logs. The earlier logs, and slabs that they may name, stay until the new log is
        // durable: after a power cut, recovery may find one of them to be the latest.
        garbage: log_files(false).collect(),
        frames: log_frames,
    };
    // For the recovered log, count the bytes that its removal will subtract; after a power cut the file may be shorter.
    let counted = |(of, bytes): &(u32, u64)| if *of == generation { log.bytes() } else { *bytes };
    found.logs.iter().for_each(|file| space.count(counted(file)));
    let map = build_map(contents, &space);
    let bytes = map.bytes;
    let shared = StoreShared::new(disk, frames, options, space, map);
    log.next_blocks = shared.blocks_for(bytes);
    shared.space.set_reserve(log.reserve(log.next_blocks));
    // seeded: fit_first: shared.check_fit(&log)? => ()
    shared.check_fit(&log)?;
    // While the superblock names no log, write it again: what recovery read of it may be in the page cache only.
    // seeded: superblock_begun: superblock.bound.generation == 0 => found.superblock.is_none()
    if superblock.bound.generation == 0 {
        create_superblock(&shared, &found, &mut log).await?;
    }
    shared.record(&mut log, &[], &Updates::new()).await?;
    log.garbage.extend(log_files(true).chain(unneeded));
    shared.sweep(&mut log).await;
    shared.fit(&mut log).await?;
    shared.make_spare_if_room(&mut log).await;
    *shared.log.lock().await = Some(log);
    Ok(shared)
}

fn list_files(disk: &dyn Disk) -> Result<StoreFiles, StoreError> {
    let mut found = StoreFiles { superblock: None, slabs: Vec::new(), logs: Vec::new() };
    for (file, bytes) in disk.files()? {
        match file {
            StoreFile::Superblock => found.superblock = Some(bytes),
            StoreFile::Slab(slab) => found.slabs.push((slab, bytes)),
            StoreFile::Log(log) => found.logs.push((log, bytes)),
        }
    }
    found.logs.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The store's superblock, or a new one if the disk has none of a store's files.
///
/// # Errors
/// A log is of another store, version or program; [`StoreError::Damaged`] when logs or slabs exist and the superblock
/// is missing.
async fn identify(
    disk: &dyn Disk,
    found: &StoreFiles,
    frames: &mut [Option<Frame>; 2],
) -> Result<Superblock, StoreError> {
    let superblock = match found.superblock {
        Some(_) => superblock::read(disk, &mut frames[0]).await?,
        None => None,
    };
    let identity = superblock.map(|superblock| superblock.identity);
    for (generation, bytes) in &found.logs {
        let blocks = bytes / (2 * BLOCK as u64);
        let known = LogInfo { generation: *generation, identity, blocks, durable: 0, limit: 0 };
        // If a superblock was found, the directory is this store's, and so is each file with a store's name: a log that
        // looks foreign has been overwritten by a fault.
        // seeded: log_stranger: identity.is_none() => false
        if read::first(disk, known, frames).await? == FirstBlock::Foreign && identity.is_none() {
            return Err(StoreError::Foreign { file: StoreFile::Log(*generation) });
        }
    }
    match (superblock, found.first()) {
        // The file's size is certain only once the superblock names a log: before, its creation may have been
        // interrupted.
        // seeded: superblock_cut: found.superblock == Some(superblock::BYTES) => true
        (Some(known), _) if known.bound.generation == 0 || found.superblock == Some(superblock::BYTES) => Ok(known),
        (Some(_), _) => Err(StoreError::Damaged { file: StoreFile::Superblock }),
        // The superblock is durable before the first log or slab is created, so one that is missing here was lost.
        // seeded: superblock_gone: Err(StoreError::Damaged { file: StoreFile::Superblock }) => Superblock::new()
        (None, Some(_)) => Err(StoreError::Damaged { file: StoreFile::Superblock }),
        (None, None) => Superblock::new(),
    }
}

/// Reads the latest complete log, and returns its generation and contents; an empty log if no log was ever complete.
///
/// # Errors
/// [`StoreError::Damaged`] when the log that the superblock names is missing or short; those of [`read::read`].
async fn latest(
    disk: &dyn Disk,
    found: &StoreFiles,
    superblock: &Superblock,
    cap: u64,
    frames: &mut [Option<Frame>; 2],
) -> Result<(u32, LogContents), StoreError> {
    let bound = superblock.bound;
    let identity = Some(superblock.identity);
    // How many bytes of logs to read at most: a store under this cap cannot have more. The log that the superblock
    // names, which is the last one here, is read in any case.
    let mut left = cap;
    // seeded: log_floor: *log >= bound.generation => true
    let counts = |(log, _): &&(u32, u64)| *log >= bound.generation;
    for (generation, bytes) in found.logs.iter().filter(counts) {
        let named = *generation == bound.generation;
        let (blocks, durable) = if named { (bound.blocks, bound.durable) } else { (bytes / (2 * BLOCK as u64), 0) };
        let known = LogInfo { generation: *generation, identity, blocks, durable, limit: cap / SPACE_AMPLIFICATION };
        // seeded: log_cut: *bytes < file_bytes(blocks) => false
        if *bytes < file_bytes(blocks) {
            return Err(StoreError::Damaged { file: StoreFile::Log(*generation) });
        }
        // A file that is too large is skipped if it does not begin as a log of this store: a sparse file may be larger
        // than the disk.
        let begun = matches!(read::first(disk, known, frames).await?, FirstBlock::Sound);
        let most = if named { cap } else { left };
        // seeded: log_above_cap: *bytes > most => false
        if *bytes > most {
            if !begun && !named {
                continue;
            }
            return Err(StoreError::CapTooSmall { needs: found.bytes().saturating_add(*bytes), cap });
        }
        left = left.saturating_sub(*bytes);
        let contents = read::read(disk, known, frames).await?;
        // seeded: log_whole: contents.complete => true
        if contents.complete {
            return Ok((*generation, contents));
        }
    }
    // seeded: log_gone: found.slabs.first() => None
    match (bound.generation, found.slabs.first()) {
        (0, None) => Ok((0, LogContents::default())),
        // A slab exists although the superblock names no log; the store creates slabs only after it does.
        (0, Some((slab, _))) => Err(StoreError::Damaged { file: StoreFile::Slab(*slab) }),
        (log, _) => Err(StoreError::Damaged { file: StoreFile::Log(log) }),
    }
}

/// Adds to the space the slabs that the log names, and at most one empty slab, of the size in `options`: the records of
/// free space take memory. Counts the bytes of the other slabs, which hold nothing, and returns them for removal.
///
/// # Errors
/// [`StoreError::CapTooSmall`] when one page for each named slab is already more than the cap.
fn add_slabs(
    found: &StoreFiles,
    named: &BTreeSet<u32>,
    space: &Space,
    options: &StoreOptions,
) -> Result<Vec<(StoreFile, u64)>, StoreError> {
    let (page, cap, mut unneeded) = (ALIGN as u64, options.cap, Vec::new());
    let pages = found.slabs.iter().filter(|(slab, _)| named.contains(slab)).count() as u64 * page;
    // unseeded: named_slabs: those are refused below as well, after as many areas were made
    if pages > cap {
        return Err(StoreError::CapTooSmall { needs: pages, cap });
    }
    let is_spare = |(slab, bytes): &&(u32, u64)| *bytes == options.slab_bytes && !named.contains(slab);
    let spare = found.slabs.iter().find(is_spare).map(|(slab, _)| *slab);
    for (slab, bytes) in &found.slabs {
        space.skip(*slab);
        // Less than a page: the slab was being created when the program was killed.
        // seeded: slab_stump: *bytes >= page => true
        let whole = *bytes >= page;
        if whole && (named.contains(slab) || spare == Some(*slab)) {
            space.add(*slab, *bytes, true)?;
            continue;
        }
        space.count(*bytes);
        // Keep a slab that the log names although it is too short: it was whole once, and may be restored.
        // seeded: stump_named: !named.contains(slab) => true
        if !named.contains(slab) {
            unneeded.push((StoreFile::Slab(*slab), *bytes));
        }
    }
    Ok(unneeded)
}

/// Makes the superblock of a new store durable, before any other file is created.
async fn create_superblock(shared: &StoreShared, found: &StoreFiles, log: &mut Log) -> Result<(), StoreError> {
    let file = StoreFile::Superblock;
    // Remove a file of another size, which an interrupted creation has left.
    if found.superblock.is_some_and(|bytes| bytes != superblock::BYTES) {
        submit(&*shared.disk, DiskRequest::Remove { file }).await.result?;
    }
    if found.superblock != Some(superblock::BYTES) {
        submit(&*shared.disk, DiskRequest::Create { file, bytes: superblock::BYTES }).await.result?;
    }
    // Write both floor pages: the disk may silently lose one of the writes.
    for _ in 0..superblock::FLOORS {
        log.superblock.write_floor(&*shared.disk, &mut log.frames[0], DurableBound::default()).await?;
    }
    // seeded: superblock_name_sync: shared.sync_directory().await => Ok(())
    shared.sync_directory().await
}

/// Builds the objects from a log's contents, and allocates the extents of their pieces.
fn build_map(contents: LogContents, space: &Arc<Space>) -> ObjectMap {
    let pieces = recover_all(contents.parts.values(), space);
    let (mut objects, mut bytes) = (contents.objects, 0);
    // Parts are in the order of their objects' numbers, as objects are.
    let mut parts = contents.parts.into_keys().zip(pieces).peekable();
    for (id, object) in &mut objects {
        while let Some(((_, part), piece)) = parts.next_if(|((of, _), _)| of == id) {
            object.parts.insert(part, piece);
        }
        bytes += object.bytes();
    }
    ObjectMap { objects, bytes }
}

/// The pieces that entries name, in the order of the entries.
fn recover_all<'a>(entries: impl Iterator<Item = &'a PieceEntry>, space: &Arc<Space>) -> Vec<Arc<Piece>> {
    // Copies of what is compared: a sort that looks up each entry takes several times as long.
    let place = |entry: &PieceEntry| (entry.slab, entry.page, entry.bytes, entry.crc);
    let mut entries: Vec<_> = entries.map(place).zip(0usize..).collect();
    let mut pieces: Vec<Option<Arc<Piece>>> = vec![None; entries.len()];
    // Sort by falling offset in each slab, as `Space::claim` requires.
    entries.sort_unstable_by_key(|(place, _)| std::cmp::Reverse(*place));
    let mut last = None;
    for (place, at) in entries {
        // Entries with the same location, which follow one another, are one piece in several parts or objects.
        let known = last.filter(|(known, _)| *known == place).and_then(|(_, at): (_, usize)| pieces[at].clone());
        pieces[at] = Some(known.unwrap_or_else(|| recover(place, space)));
        last = Some((place, at));
    }
    pieces.into_iter().flatten().collect()
}

/// The piece that an entry names by slab, page, bytes and checksum. Its extent is missing if the slab is missing or too
/// short, or another piece overlaps.
fn recover((slab, page, bytes, crc): (u32, u32, u32, u32), space: &Arc<Space>) -> Arc<Piece> {
    let extent = Extent::claim(space, slab, u64::from(page) * ALIGN as u64, u64::from(bytes));
    let extent = extent.ok_or_else(|| {
        // No new slab may get the number of a lost slab.
        space.skip(slab);
        space.state().areas.contains_key(&slab)
    });
    Arc::new(Piece::recovered(&PieceEntry { object: 0, part: 0, slab, page, bytes, crc }, extent, space))
}
