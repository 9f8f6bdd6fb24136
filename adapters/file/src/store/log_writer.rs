//! Groups appended to the log, and logs that follow one another.

use super::block::{BLOCK, BlockWriter, FRAME, SPACE_AMPLIFICATION, blocks_for, file_bytes};
use super::error::StoreError;
use super::log::Log;
use super::map::{Change, Updates};
use super::read::OBJECT_BYTES;
use super::record::META_BYTES;
use super::shared::StoreShared;
use super::superblock::DurableBound;
use crate::disk::{DiskRequest, StoreFile, submit};
use crate::fault::FileFaultReason;
use crate::frame::Frame;
use futures_lite::future::zip;

impl StoreShared {
    /// Makes a group of changes durable: appends it to the log, or begins a new log. `touched`: the changed objects as
    /// they are after the group.
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
                    // Another program has renamed or removed the log or the superblock: begin no new log. The changes may
                    // be in that file, and take effect if it gets its name back.
                    if self.gone.get().is_some() {
                        return Err(error);
                    }
                }
            }
        }
        self.rotate(log, group, touched).await
    }

    /// The most bytes that recovery would count at any moment of reading this log with `group` appended: the group may
    /// create objects and remove them again. Above its limit recovery refuses the log; a new log would hold only the
    /// objects that remain.
    fn bytes_to_read(&self, writer: &BlockWriter, group: &[Change]) -> u64 {
        let map = self.map();
        let objects = map.objects.len() as u64 * (OBJECT_BYTES - META_BYTES);
        map.bytes + objects + writer.records() + group.len() as u64 * OBJECT_BYTES
    }

    /// Turns the error for a file that lost its name into [`StoreError::LogGone`], and records the file in `gone`.
    fn lost(&self, file: StoreFile, error: StoreError) -> StoreError {
        match error {
            StoreError::Fault(fault) if fault.reason == FileFaultReason::Gone => {
                StoreError::LogGone { file: *self.gone.get_or_init(|| file) }
            }
            other => other,
        }
    }

    /// Writes a group at the end of the log, and syncs the log.
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

    /// Writes blocks to both copies of the log, from block number `first` on.
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
        let response = submit(&*self.disk, DiskRequest::Write { file, offset, bytes: part.len(), frame }).await;
        *own = response.frame;
        match response.result? {
            // seeded: log_short_write: moved == part.len() => true
            moved if moved == part.len() => Ok(()),
            _ => Err(StoreError::short("write", file, offset)),
        }
    }

    /// Begins a log of the next generation with a snapshot of all objects; those in `touched` replace those of the map.
    async fn rotate(&self, log: &mut Log, group: &[Change], touched: &Updates) -> Result<(), StoreError> {
        // First remove a log that never became complete: the next log takes its space.
        if !log.complete {
            // seeded: superblock_assured: log.superblock.rewrite_if_unsure(&*self.disk, &mut log.frames[0]).await? => ()
            log.superblock.rewrite_if_unsure(&*self.disk, &mut log.frames[0]).await?;
            log.garbage.push((log.file(), log.bytes()));
            log.blocks = 0;
        }
        self.sweep(log).await;
        // Files that could not be removed may take the space for the next log: check that both fit.
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
        // From here on the old log is not written again, even if the new log fails.
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

    /// Grows the reserve until the next log has room for a snapshot with `bytes` bytes of records.
    ///
    /// # Errors
    /// [`StoreError::Full`], or the error of the disk; nothing has changed then.
    pub(super) async fn grow_reserve(&self, log: &mut Log, bytes: u64) -> Result<(), StoreError> {
        let blocks = self.blocks_for(bytes);
        if blocks <= log.next_blocks {
            return Ok(());
        }
        // While both spare files exist, a task that finds no room waits for this lock, then tries again.
        let _growing = self.growing.lock().await;
        self.sweep(log).await;
        let small = log.spare.map(|generation| (StoreFile::Log(generation), file_bytes(log.next_blocks)));
        // seeded: beside: small.map_or(0, |(_, bytes)| bytes) => 0
        let kept = self.space.raise_reserve(log.reserve(blocks), small.map_or(0, |(_, bytes)| bytes))?;
        let next_blocks = std::mem::replace(&mut log.next_blocks, blocks);
        // The smaller spare file is removed once the larger one exists.
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

    /// Creates the spare file for the next log, if the cap leaves room. If that fails, the file is created when the
    /// next log begins.
    pub(super) async fn make_spare_if_room(&self, log: &mut Log) {
        // seeded: cap_of_spare: !self.space.is_over_cap() => true
        if log.spare.is_none() && !self.space.is_over_cap() {
            let _ = self.make_spare(log).await;
        }
    }

    async fn make_spare(&self, log: &mut Log) -> Result<(), StoreError> {
        let generation = log.next_generation()?;
        let bytes = file_bytes(log.next_blocks);
        // The generation is used up even if the creation fails: what is left of the file has this number.
        log.latest = generation;
        self.create(StoreFile::Log(generation), bytes).await?;
        log.spare = Some(generation);
        self.space.set_spare(bytes);
        Ok(())
    }

    /// Number of blocks of a log whose snapshot has `bytes` bytes of records: twice what the snapshot needs, so that
    /// groups can be appended, rounded up to a multiple of the option `log_bytes`.
    pub(super) fn blocks_for(&self, bytes: u64) -> u64 {
        (blocks_for(bytes) * 2).next_multiple_of(self.options.log_bytes / (2 * BLOCK as u64))
    }

    /// Creates the log's file unless it exists as a spare file (`made`), and writes the snapshot, which includes the
    /// group.
    async fn begin_log(
        &self,
        log: &mut Log,
        (writer, group): (BlockWriter, &[Change]),
        made: bool,
    ) -> Result<(), StoreError> {
        let (file, bytes) = (log.file(), log.bytes());
        // Until the file exists, the log has 0 blocks, so that removing the log subtracts no bytes from those counted.
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

    /// Names the log, now durable, in the superblock: from now on recovery takes a log that holds less for damaged.
    async fn name_in_superblock(&self, log: &mut Log) -> Result<(), StoreError> {
        let bound = DurableBound { generation: log.generation, blocks: log.blocks, durable: log.next };
        let raised = log.superblock.write_floor(&*self.disk, &mut log.frames[0], bound).await;
        raised.map_err(|error| self.lost(StoreFile::Superblock, error))
    }
}
