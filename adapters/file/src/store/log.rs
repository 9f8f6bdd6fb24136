//! The log: groups of changes, each durable as a whole before it is told.
//!
//! Promises upward: a group that was told done is found after a power cut; one that was not is found whole or not at all; a log
//! that is full, or of whose end nobody knows, is followed by another that says everything anew.
//! Asks from below: a disk, two frames.
//!
//! Invariants:
//! - a log that is `broken` is never written again: what lies behind `next` is not known
//! - once a log of a later generation was written to, nothing more is written to an earlier one: the latest whole one counts
//! - changes of a group that failed after some of it may have been written are in `limbo` until a later generation is durable: a power cut may still bring them to
//!   light, so the pieces they name keep their room (those they replace do, being in the map)
//! - the next log holds twice what there is to say, in `ahead` blocks: as much is kept free for it, before anything is said that
//!   would need more; a file that is laid by for it has as much
//! - a log that is not `whole` is `broken`; there is an `anchor` only while the log is not whole
//! - a log is `whole` once the superblock names it: before, what it says was never relied on
//! - once the log or the superblock is `gone`, having lost its name to another program, nothing is made durable or removed any more

use super::Shared;
use super::block::{BLOCK, Header, Writer, blocks_for};
use super::error::StoreError;
use super::map::{Change, Touched};
use super::read::OBJECT_BYTES;
use super::record::META_BYTES;
use super::space::LAST;
use super::superblock::{Evidence, Superblock};
use crate::disk::{File, Order, ask};
use crate::fault::Reason;
use crate::frame::Frame;
use futures_lite::future::zip;

/// Bytes of each of a log's two frames: 64 blocks are written at once.
pub(super) const FRAME: usize = 64 * BLOCK;

/// A store's files take at least so many times the bytes of its records: the log has room for twice the records in two copies,
/// and as much is kept free for the next log.
pub(super) const FILES: u64 = 8;

/// The log that is being written.
#[derive(Debug)]
pub(super) struct Log {
    pub superblock: Superblock,
    pub generation: u32,
    /// The latest generation that there is a file of.
    pub latest: u32,
    /// Blocks of it; there are as many again in the mirror.
    pub blocks: u64,
    /// Blocks that the next log will have.
    pub ahead: u64,
    /// The sequence of the next block.
    pub next: u64,
    /// Whether its first group is durable.
    pub whole: bool,
    pub broken: bool,
    pub limbo: Vec<Vec<Change>>,
    /// The generation that a power cut would bring back, while this one is not whole yet, with its bytes.
    pub anchor: Option<(File, u64)>,
    /// The generation of a file for the next log, all zeros: so a log that is full can be followed by another when the disk has
    /// become full. It is the reserve of the space, and not counted besides.
    pub spare: Option<u32>,
    /// Files that nobody needs and that are still there, with their bytes.
    pub garbage: Vec<(File, u64)>,
    /// One for each copy. `None` after the disk was gone: nothing is written any more.
    pub frames: [Option<Frame>; 2],
}

impl Log {
    pub(super) fn file(&self) -> File {
        File::Log(self.generation)
    }

    /// Bytes of its file.
    pub(super) fn bytes(&self) -> u64 {
        file_bytes(self.blocks)
    }

    /// What is to be kept free when the next log has so many blocks: it, and one as large that follows it when this one is gone.
    pub(super) fn reserve(&self, ahead: u64) -> u64 {
        file_bytes(ahead) + file_bytes(ahead).saturating_sub(self.bytes())
    }

    /// The number of the next log.
    ///
    /// # Errors
    /// [`StoreError::BadNumber`]: there is none.
    fn following(&self) -> Result<u32, StoreError> {
        let next = self.latest.checked_add(1).filter(|next| *next < LAST);
        next.ok_or(StoreError::BadNumber { file: File::Log(self.latest) })
    }

    /// The header of the next block.
    fn header(&self) -> Header {
        let Self { generation, next, .. } = *self;
        // Only one group is under way: all blocks in front of it are durable.
        Header { identity: self.superblock.identity, generation, sequence: next, acked: next, last: false }
    }
}

/// Bytes of the file of a log of so many blocks.
pub(super) fn file_bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(2 * BLOCK as u64)
}

impl Shared {
    /// Makes a group durable at the log's end, or in a new log. `touched` is what becomes of it.
    pub(super) async fn record(&self, log: &mut Log, group: &[Change], touched: &Touched) -> Result<(), StoreError> {
        let mut writer = Writer::default();
        group.iter().for_each(|change| change.record(&mut writer));
        // seeded: log_passing: self.counted(&writer, group) <= self.options.cap / FILES => true
        let may_be_read = self.counted(&writer, group) <= self.options.cap / FILES;
        // seeded: log_broken: !log.broken => true
        // seeded: log_full: log.next + writer.blocks() <= log.blocks => true
        if !log.broken && log.next + writer.blocks() <= log.blocks && may_be_read {
            match self.append(log, writer).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    log.broken = true;
                    // seeded: limbo: log.limbo.push(group.to_vec()) => ()
                    log.limbo.push(group.to_vec());
                    // The file that lost its name has the group: it counts when the file is restored.
                    if self.gone.get().is_some() {
                        return Err(error);
                    }
                }
            }
        }
        self.rotate(log, group, touched).await
    }

    /// Bytes that a reader counts at most while it takes in a group, which may make objects and remove them again. A new log
    /// says only what is left in the end.
    fn counted(&self, writer: &Writer, group: &[Change]) -> u64 {
        let map = self.map();
        let objects = map.objects.len() as u64 * (OBJECT_BYTES - META_BYTES);
        map.bytes + objects + writer.records() + group.len() as u64 * OBJECT_BYTES
    }

    /// What a refused write or sync of the log, or of the superblock, means: one that lost its name is lost for good.
    fn lost(&self, file: File, error: StoreError) -> StoreError {
        match error {
            StoreError::Fault(fault) if fault.reason == Reason::Gone => {
                StoreError::LogGone { file: *self.gone.get_or_init(|| file) }
            }
            other => other,
        }
    }

    /// Writes a group behind the log's end, durably.
    async fn append(&self, log: &mut Log, writer: Writer) -> Result<(), StoreError> {
        let blocks = writer.blocks();
        let bytes = writer.finish(log.header());
        let file = log.file();
        self.write(log, log.next, &bytes).await.map_err(|error| self.lost(file, error))?;
        // seeded: log_sync: self.sync(log.file()).await => Ok(())
        self.sync(log.file()).await.map_err(|error| self.lost(file, error))?;
        log.next += blocks;
        if log.whole {
            let noted = log.superblock.note(&*self.disk, &mut log.frames[0], log.next).await;
            noted.map_err(|error| self.lost(File::Superblock, error))?;
        }
        Ok(())
    }

    /// Writes blocks to both copies.
    async fn write(&self, log: &mut Log, first: u64, blocks: &[u8]) -> Result<(), StoreError> {
        let (file, mirror) = (log.file(), log.blocks * BLOCK as u64);
        let mut offset = first * BLOCK as u64;
        for part in blocks.chunks(FRAME) {
            let [a, b] = &mut log.frames;
            // seeded: mirror_write: offset + mirror => offset
            let both = zip(self.write_copy(a, file, offset, part), self.write_copy(b, file, offset + mirror, part));
            let (first, second) = both.await;
            // seeded: log_either_copy: first.and(second) => first.or(second)
            first.and(second)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    async fn write_copy(
        &self,
        own: &mut Option<Frame>,
        file: File,
        offset: u64,
        part: &[u8],
    ) -> Result<(), StoreError> {
        let mut frame = own.take().ok_or(StoreError::short("write", file, offset))?;
        frame[..part.len()].copy_from_slice(part);
        let answer = ask(&*self.disk, Order::Write { file, offset, bytes: part.len(), frame }).await;
        *own = answer.frame;
        match answer.result? {
            // seeded: log_short_write: moved == part.len() => true
            moved if moved == part.len() => Ok(()),
            _ => Err(StoreError::short("write", file, offset)),
        }
    }

    /// Lets what was written to a file survive a power cut.
    pub(super) fn sync(&self, file: File) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let answer = ask(&*self.disk, Order::Sync { file });
        async { answer.await.result.map(drop).map_err(Into::into) }
    }

    /// Begins a log of the next generation, which says everything: `touched` in place of what is in the map.
    async fn rotate(&self, log: &mut Log, group: &[Change], touched: &Touched) -> Result<(), StoreError> {
        // What there is of one that never was whole goes first: the next one takes its room.
        if !log.whole {
            // seeded: superblock_assured: log.superblock.assure(&*self.disk, &mut log.frames[0]).await? => ()
            log.superblock.assure(&*self.disk, &mut log.frames[0]).await?;
            log.garbage.push((log.file(), log.bytes()));
            log.blocks = 0;
        }
        self.sweep(log).await;
        // What could not be removed stands where the next one would.
        if !log.garbage.is_empty() {
            // seeded: cap_of_garbage: self.space.fits(file_bytes(log.ahead))? => ()
            self.space.fits(file_bytes(log.ahead))?;
        }
        let (writer, bytes) = {
            let map = self.map();
            (map.snapshot(touched), map.bytes_after(touched))
        };
        debug_assert!(writer.blocks() * 2 <= log.ahead, "the next log was provided for");
        let spare = log.spare.take();
        self.space.laid_by(0);
        let generation = spare.map_or_else(|| log.following(), Ok)?;
        // From here on the old one is not written any more, whatever comes of the new one.
        if log.whole {
            // seeded: log_anchor: log.anchor = Some((log.file(), log.bytes())) => log.garbage.push((log.file(), log.bytes()))
            log.anchor = Some((log.file(), log.bytes()));
        }
        (log.generation, log.latest, log.blocks, log.next) = (generation, log.latest.max(generation), log.ahead, 0);
        (log.whole, log.broken) = (false, true);
        self.begin(log, (writer, group), spare.is_some()).await?;
        (log.whole, log.broken) = (true, false);
        log.limbo.clear();
        log.garbage.extend(log.anchor.take());
        self.sweep(log).await;
        log.ahead = self.blocks_for(bytes);
        self.space.made(log.reserve(log.ahead));
        self.lay_by(log).await;
        Ok(())
    }

    /// Sees to it that the next log can be made when there are records of so many bytes.
    ///
    /// # Errors
    /// [`StoreError::Full`], the disk's: then it is as it was.
    pub(super) async fn provide(&self, log: &mut Log, bytes: u64) -> Result<(), StoreError> {
        let blocks = self.blocks_for(bytes);
        if blocks <= log.ahead {
            return Ok(());
        }
        // Who finds no room while the smaller file and the larger one are there waits, and then looks again.
        let _growing = self.growing.lock().await;
        self.sweep(log).await;
        let small = log.spare.map(|generation| (File::Log(generation), file_bytes(log.ahead)));
        // seeded: beside: small.map_or(0, |(_, bytes)| bytes) => 0
        let kept = self.space.keep(log.reserve(blocks), small.map_or(0, |(_, bytes)| bytes))?;
        let ahead = std::mem::replace(&mut log.ahead, blocks);
        // The smaller file goes when the larger one is there.
        let Some((file, bytes)) = small else { return Ok(()) };
        if let Err(error) = self.make_spare(log).await {
            log.ahead = ahead;
            self.space.keep_free(kept);
            self.space.uncount(bytes);
            return Err(error);
        }
        log.garbage.push((file, bytes));
        self.sweep(log).await;
        Ok(())
    }

    /// Makes the file of the next log ahead. Where that cannot be, it is made when it is needed.
    pub(super) async fn lay_by(&self, log: &mut Log) {
        // seeded: cap_of_spare: !self.space.is_over() => true
        if log.spare.is_none() && !self.space.is_over() {
            let _ = self.make_spare(log).await;
        }
    }

    async fn make_spare(&self, log: &mut Log) -> Result<(), StoreError> {
        let generation = log.following()?;
        let bytes = file_bytes(log.ahead);
        // Also one that cannot be made: what is left of it has the number.
        log.latest = generation;
        self.make(File::Log(generation), bytes).await?;
        log.spare = Some(generation);
        self.space.laid_by(bytes);
        Ok(())
    }

    /// Blocks of a log for records of so many bytes: as many again for groups, in steps of what the options say.
    pub(super) fn blocks_for(&self, bytes: u64) -> u64 {
        (blocks_for(bytes) * 2).next_multiple_of(self.options.log_bytes / (2 * BLOCK as u64))
    }

    /// Makes the log's file, unless it is there already, and writes the snapshot, of which the group is a part.
    async fn begin(&self, log: &mut Log, (writer, group): (Writer, &[Change]), made: bool) -> Result<(), StoreError> {
        let (file, bytes) = (log.file(), log.bytes());
        // Of a file that is not there, nothing is to be removed.
        let blocks = std::mem::take(&mut log.blocks);
        self.space.count_log(bytes);
        if !made && let Err(error) = self.make(file, bytes).await {
            // seeded: not_made: self.space.not_made(bytes) => ()
            self.space.not_made(bytes);
            return Err(error);
        }
        log.blocks = blocks;
        let begun = match self.append(log, writer).await {
            // seeded: log_name_sync: self.sync_names().await => Ok(())
            Ok(()) => self.sync_names().await,
            refused => refused,
        };
        let begun = match begun {
            Ok(()) => self.name(log).await,
            refused => refused,
        };
        if begun.is_err() {
            // seeded: limbo_of_a_new_log: log.limbo.push(group.to_vec()) => ()
            log.limbo.push(group.to_vec());
        }
        begun
    }

    /// Names the log, which is durable, in the superblock: from now on it is damage when it says less.
    async fn name(&self, log: &mut Log) -> Result<(), StoreError> {
        let evidence = Evidence { generation: log.generation, blocks: log.blocks, durable: log.next };
        let raised = log.superblock.raise(&*self.disk, &mut log.frames[0], evidence).await;
        raised.map_err(|error| self.lost(File::Superblock, error))
    }

    /// Lets names survive a power cut.
    pub(super) async fn sync_names(&self) -> Result<(), StoreError> {
        let unnamed = self.space.unnamed();
        let synced = ask(&*self.disk, Order::SyncNames).await.result;
        self.space.names_ended(&unnamed, synced.is_ok());
        synced.map(drop).map_err(Into::into)
    }

    /// Makes a file. Of one that cannot be made nothing is left, or what may be left is counted until it can be removed.
    pub(super) async fn make(&self, file: File, bytes: u64) -> Result<(), StoreError> {
        let Err(fault) = ask(&*self.disk, Order::Create { file, bytes }).await.result else { return Ok(()) };
        // One that is there already is not ours to remove; where nothing may be made, nothing was.
        if !matches!(fault.reason, Reason::Exists | Reason::Denied) {
            // seeded: stumps_counted: self.space.add_stump(file, bytes) => ()
            self.space.add_stump(file, bytes);
            self.sweep_stumps().await;
        }
        Err(fault.into())
    }

    /// Removes what may be left of files that could not be made. Whether there was any.
    pub(super) async fn sweep_stumps(&self) -> bool {
        let stumps = self.space.take_stumps();
        let many = stumps.len();
        let left = self.remove_files(stumps).await;
        let any = left.len() < many;
        self.space.keep_stumps(left);
        any
    }

    /// Removes files that are not needed any more. What cannot be removed is tried again later.
    pub(super) async fn sweep(&self, log: &mut Log) {
        log.garbage.extend(self.space.take_stumps());
        log.garbage = self.remove_files(std::mem::take(&mut log.garbage)).await;
    }

    /// Removes files, with their bytes. Those that are left.
    async fn remove_files(&self, files: Vec<(File, u64)>) -> Vec<(File, u64)> {
        // Another program is at work in the directory: its files may have our names.
        // seeded: gone_keeps_files: self.gone.get().is_some() => false
        if self.gone.get().is_some() {
            return files;
        }
        let mut left = Vec::new();
        for (file, bytes) in files {
            match ask(&*self.disk, Order::Remove { file }).await.result {
                Ok(_) => self.space.uncount(bytes),
                Err(_) => left.push((file, bytes)),
            }
        }
        left
    }
}
