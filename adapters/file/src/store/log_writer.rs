//! Groups at the end of the log; the next log.

use super::block::{BLOCK, BlockWriter, FRAME, SPACE_AMPLIFICATION, blocks_for, file_bytes};
use super::error::StoreError;
use super::log::Log;
use super::map::{Change, Updates};
use super::read::OBJECT_BYTES;
use super::record::META_BYTES;
use super::shared::StoreShared;
use super::superblock::DurableBound;
use crate::disk::{DiskRequest, StoreFile, ask};
use crate::fault::FileFaultReason;
use crate::frame::Frame;
use futures_lite::future::zip;

impl StoreShared {
    /// Makes a group durable at the log's end, or in a new log. `touched` is what becomes of it.
    pub(super) async fn record(&self, log: &mut Log, group: &[Change], touched: &Updates) -> Result<(), StoreError> {
        let mut writer = BlockWriter::default();
        group.iter().for_each(|change| change.record(&mut writer));
        // seeded: log_passing: self.bytes_to_read(&writer, group) <= self.options.cap / SPACE_AMPLIFICATION => true
        let may_be_read = self.bytes_to_read(&writer, group) <= self.options.cap / SPACE_AMPLIFICATION;
        // seeded: log_broken: !log.sealed => true
        // seeded: log_full: log.next + writer.blocks() <= log.blocks => true
        if !log.sealed && log.next + writer.blocks() <= log.blocks && may_be_read {
            match self.append(log, writer).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    log.sealed = true;
                    // seeded: limbo: log.in_doubt.push(group.to_vec()) => ()
                    log.in_doubt.push(group.to_vec());
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
    fn bytes_to_read(&self, writer: &BlockWriter, group: &[Change]) -> u64 {
        let map = self.map();
        let objects = map.objects.len() as u64 * (OBJECT_BYTES - META_BYTES);
        map.bytes + objects + writer.records() + group.len() as u64 * OBJECT_BYTES
    }

    /// What a refused write or sync of the log, or of the superblock, means: one that lost its name is lost for good.
    fn lost(&self, file: StoreFile, error: StoreError) -> StoreError {
        match error {
            StoreError::Fault(fault) if fault.reason == FileFaultReason::Gone => {
                StoreError::LogGone { file: *self.gone.get_or_init(|| file) }
            }
            other => other,
        }
    }

    /// Writes a group behind the log's end, durably.
    async fn append(&self, log: &mut Log, writer: BlockWriter) -> Result<(), StoreError> {
        let blocks = writer.blocks();
        let bytes = writer.finish(log.header());
        let file = log.file();
        self.write(log, log.next, &bytes).await.map_err(|error| self.lost(file, error))?;
        // seeded: log_sync: self.sync(log.file()).await => Ok(())
        self.sync(log.file()).await.map_err(|error| self.lost(file, error))?;
        log.next += blocks;
        if log.complete {
            let noted = log.superblock.write_marks(&*self.disk, &mut log.frames[0], log.next).await;
            noted.map_err(|error| self.lost(StoreFile::Superblock, error))?;
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
        file: StoreFile,
        offset: u64,
        part: &[u8],
    ) -> Result<(), StoreError> {
        let mut frame = own.take().ok_or(StoreError::short("write", file, offset))?;
        frame[..part.len()].copy_from_slice(part);
        let answer = ask(&*self.disk, DiskRequest::Write { file, offset, bytes: part.len(), frame }).await;
        *own = answer.frame;
        match answer.result? {
            // seeded: log_short_write: moved == part.len() => true
            moved if moved == part.len() => Ok(()),
            _ => Err(StoreError::short("write", file, offset)),
        }
    }

    /// Begins a log of the next generation, which says everything: `touched` in place of what is in the map.
    async fn rotate(&self, log: &mut Log, group: &[Change], touched: &Updates) -> Result<(), StoreError> {
        // What there is of one that never was whole goes first: the next one takes its room.
        if !log.complete {
            // seeded: superblock_assured: log.superblock.rewrite_if_unsure(&*self.disk, &mut log.frames[0]).await? => ()
            log.superblock.rewrite_if_unsure(&*self.disk, &mut log.frames[0]).await?;
            log.garbage.push((log.file(), log.bytes()));
            log.blocks = 0;
        }
        self.sweep(log).await;
        // What could not be removed stands where the next one would.
        if !log.garbage.is_empty() {
            // seeded: cap_of_garbage: self.space.check_room(file_bytes(log.next_blocks))? => ()
            self.space.check_room(file_bytes(log.next_blocks))?;
        }
        let (writer, bytes) = {
            let map = self.map();
            (map.snapshot(touched), map.bytes_after(touched))
        };
        debug_assert!(writer.blocks() * 2 <= log.next_blocks, "the next log was provided for");
        let spare = log.spare.take();
        self.space.set_spare(0);
        let generation = spare.map_or_else(|| log.next_generation(), Ok)?;
        // From here on the old one is not written any more, whatever comes of the new one.
        if log.complete {
            // seeded: log_anchor: log.predecessor = Some((log.file(), log.bytes())) => log.garbage.push((log.file(), log.bytes()))
            log.predecessor = Some((log.file(), log.bytes()));
        }
        (log.generation, log.latest, log.blocks, log.next) =
            (generation, log.latest.max(generation), log.next_blocks, 0);
        (log.complete, log.sealed) = (false, true);
        self.begin_log(log, (writer, group), spare.is_some()).await?;
        (log.complete, log.sealed) = (true, false);
        log.in_doubt.clear();
        log.garbage.extend(log.predecessor.take());
        self.sweep(log).await;
        log.next_blocks = self.blocks_for(bytes);
        self.space.log_created(log.reserve(log.next_blocks));
        self.make_spare_if_room(log).await;
        Ok(())
    }

    /// Sees to it that the next log can be made when there are records of so many bytes.
    ///
    /// # Errors
    /// [`StoreError::Full`], the disk's: then it is as it was.
    pub(super) async fn grow_reserve(&self, log: &mut Log, bytes: u64) -> Result<(), StoreError> {
        let blocks = self.blocks_for(bytes);
        if blocks <= log.next_blocks {
            return Ok(());
        }
        // Who finds no room while the smaller file and the larger one are there waits, and then looks again.
        let _growing = self.growing.lock().await;
        self.sweep(log).await;
        let small = log.spare.map(|generation| (StoreFile::Log(generation), file_bytes(log.next_blocks)));
        // seeded: beside: small.map_or(0, |(_, bytes)| bytes) => 0
        let kept = self.space.raise_reserve(log.reserve(blocks), small.map_or(0, |(_, bytes)| bytes))?;
        let next_blocks = std::mem::replace(&mut log.next_blocks, blocks);
        // The smaller file goes when the larger one is there.
        let Some((file, bytes)) = small else { return Ok(()) };
        if let Err(error) = self.make_spare(log).await {
            log.next_blocks = next_blocks;
            self.space.set_reserve(kept);
            self.space.uncount(bytes);
            return Err(error);
        }
        log.garbage.push((file, bytes));
        self.sweep(log).await;
        Ok(())
    }

    /// Makes the file of the next log ahead. Where that cannot be, it is made when it is needed.
    pub(super) async fn make_spare_if_room(&self, log: &mut Log) {
        // seeded: cap_of_spare: !self.space.is_over_cap() => true
        if log.spare.is_none() && !self.space.is_over_cap() {
            let _ = self.make_spare(log).await;
        }
    }

    async fn make_spare(&self, log: &mut Log) -> Result<(), StoreError> {
        let generation = log.next_generation()?;
        let bytes = file_bytes(log.next_blocks);
        // Also one that cannot be made: what is left of it has the number.
        log.latest = generation;
        self.create(StoreFile::Log(generation), bytes).await?;
        log.spare = Some(generation);
        self.space.set_spare(bytes);
        Ok(())
    }

    /// Blocks of a log for records of so many bytes: as many again for groups, in steps of what the options say.
    pub(super) fn blocks_for(&self, bytes: u64) -> u64 {
        (blocks_for(bytes) * 2).next_multiple_of(self.options.log_bytes / (2 * BLOCK as u64))
    }

    /// Makes the log's file, unless it is there already, and writes the snapshot, of which the group is a part.
    async fn begin_log(
        &self,
        log: &mut Log,
        (writer, group): (BlockWriter, &[Change]),
        made: bool,
    ) -> Result<(), StoreError> {
        let (file, bytes) = (log.file(), log.bytes());
        // Of a file that is not there, nothing is to be removed.
        let blocks = std::mem::take(&mut log.blocks);
        self.space.begin_log(bytes);
        if !made && let Err(error) = self.create(file, bytes).await {
            // seeded: not_made: self.space.log_failed(bytes) => ()
            self.space.log_failed(bytes);
            return Err(error);
        }
        log.blocks = blocks;
        let begun = match self.append(log, writer).await {
            // seeded: log_name_sync: self.sync_directory().await => Ok(())
            Ok(()) => self.sync_directory().await,
            refused => refused,
        };
        let begun = match begun {
            Ok(()) => self.name_in_superblock(log).await,
            refused => refused,
        };
        if begun.is_err() {
            // seeded: limbo_of_a_new_log: log.in_doubt.push(group.to_vec()) => ()
            log.in_doubt.push(group.to_vec());
        }
        begun
    }

    /// Names the log, which is durable, in the superblock: from now on it is damage when it says less.
    async fn name_in_superblock(&self, log: &mut Log) -> Result<(), StoreError> {
        let bound = DurableBound { generation: log.generation, blocks: log.blocks, durable: log.next };
        let raised = log.superblock.write_floor(&*self.disk, &mut log.frames[0], bound).await;
        raised.map_err(|error| self.lost(StoreFile::Superblock, error))
    }
}
