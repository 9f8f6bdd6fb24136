//! What an order does: rightly, or as its fault says.
//!
//! Promises upward: what was answered is what happened, but for faults that lie ([`Fault::lies`]); of what lies, the sectors
//! are marked.

use super::dice::Dice;
use super::fault::{Fault, Fired};
use super::image::{Image, SECTOR, Way};
use super::log::{Kind, Line};
use super::names::Inode;
use super::{Queued, State};
use terrace_file::{ALIGN, DiskRequest, DiskResponse, FileFault, FileFaultReason, Frame, ResponseSender, StoreFile};

/// Longest time that a slow order takes, or that the disk is gone, in orders.
const LONG: u64 = 40;

/// The system's numbers.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

fn refusal(line: &Line, code: i32) -> FileFault {
    let call = match line.kind {
        Kind::Create => "create",
        Kind::Remove => "remove",
        Kind::List => "list",
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::SyncDirectory | Kind::Sync => "sync",
    };
    let reason = match code {
        EIO => FileFaultReason::Device,
        ENOSPC => FileFaultReason::Full,
        EEXIST => FileFaultReason::Exists,
        ENOENT => FileFaultReason::Gone,
        EINVAL => FileFaultReason::Unsupported,
        _ => FileFaultReason::Other,
    };
    let file = line.file.map_or("the directory".into(), |file| file.to_string());
    FileFault { call, file, offset: line.offset, code, reason }
}

/// The disk is not there.
pub(super) fn missing(call: &'static str, file: String) -> FileFault {
    FileFault { call, file, offset: 0, code: EIO, reason: FileFaultReason::Device }
}

/// What an order moved, or its error.
type Moved = Result<usize, i32>;

impl State {
    /// Does an order and says what to answer; `None` when it is slow and goes back into the queue.
    pub(super) fn complete(
        &mut self,
        mut queued: Queued,
        dice: &mut dyn Dice,
    ) -> Option<(ResponseSender, DiskResponse)> {
        let mut line = Line::of(self.index, &queued.order);
        line.fault = self.fault_for(&line, queued.slowed);
        if let Some(fault) = line.fault {
            self.fired.push(Fired { fault, line });
            self.marks.fired += 1;
        }
        if line.fault == Some(Fault::Slow) {
            (queued.not_before, queued.slowed) = (self.index + 1 + dice.below(LONG), true);
            self.queue.push(queued);
            return None;
        }
        if line.fault == Some(Fault::Gone) && self.gone_until <= self.index {
            self.gone_until = self.index + 1 + dice.below(LONG);
        }
        let submitted = queued.submitted;
        let (moved, frame) = self.perform(&line, queued.order, submitted, dice);
        line.answer = moved.ok();
        self.log.line(line);
        self.index += 1;
        self.watch();
        Some((queued.reply, DiskResponse { result: moved.map_err(|code| refusal(&line, code)), frame }))
    }

    /// What goes wrong with this order.
    fn fault_for(&mut self, line: &Line, slowed: bool) -> Option<Fault> {
        if line.index < self.gone_until {
            return Some(Fault::Gone);
        }
        let due = |planned: &super::Planned| planned.is_due(line) && !(slowed && planned.fault == Fault::Slow);
        let at = self.plan.iter().position(due)?;
        Some(self.plan.swap_remove(at).fault)
    }

    /// The list of files is refused: that counts as an order, so that the disk comes back.
    pub(super) fn fail_list(&mut self) {
        let (fault, answer) = (Some(Fault::Gone), None);
        let line = Line { index: self.index, kind: Kind::List, file: None, offset: 0, bytes: 0, fault, answer };
        self.fired.push(Fired { fault: Fault::Gone, line });
        self.marks.fired += 1;
        self.log.line(line);
        self.index += 1;
    }

    /// The bound on bytes.
    fn watch(&mut self) {
        let used = self.used();
        self.peak = self.peak.max(used);
        if used > self.bound {
            let bound = std::mem::replace(&mut self.bound, u64::MAX);
            self.blame(format_args!("{used} bytes of files, {bound} allowed"));
        }
    }

    /// What is done, and what is answered.
    pub(super) fn perform(
        &mut self,
        line: &Line,
        order: DiskRequest,
        until: u64,
        dice: &mut dyn Dice,
    ) -> (Moved, Option<Frame>) {
        if line.fault == Some(Fault::FlipDisk) && !matches!(line.kind, Kind::Read | Kind::Write) {
            self.rot_anywhere(dice);
        }
        let plain = match order {
            DiskRequest::Create { file, bytes } => self.create(line, file, bytes, dice),
            DiskRequest::Remove { file } => self.remove(line, file, dice),
            DiskRequest::SyncDirectory => self.sync_names(line, until),
            DiskRequest::Sync { file } => self.sync(line, file, until, dice),
            DiskRequest::Read { mut frame, bytes, .. } => {
                return (self.read(line, &mut frame, bytes, dice), Some(frame));
            }
            DiskRequest::Write { frame, bytes, .. } => return (self.write(line, &frame, bytes, dice), Some(frame)),
        };
        (plain.map(|()| 0), None)
    }

    fn create(&mut self, line: &Line, file: StoreFile, bytes: u64, dice: &mut dyn Dice) -> Result<(), i32> {
        if self.names.now.contains_key(&file) {
            return Err(EEXIST);
        }
        match line.fault {
            Some(Fault::Full) => return Err(ENOSPC),
            Some(Fault::Gone) => return Err(EIO),
            _ if self.used() + bytes > self.capacity => {
                self.marks.full += 1;
                return Err(ENOSPC);
            }
            // The name is made, and its size is not, or not all of it.
            Some(Fault::Error) if dice.below(2) == 0 => {
                self.make(line, file, dice.below(bytes / ALIGN as u64) * ALIGN as u64);
                return Err(EIO);
            }
            Some(Fault::Error) => return Err(EIO),
            _ => {}
        }
        self.make(line, file, bytes);
        Ok(())
    }

    fn make(&mut self, line: &Line, file: StoreFile, bytes: u64) {
        self.images.push(Image::new(bytes as usize));
        self.names.set(file, Some(self.images.len() - 1), line.index);
    }

    fn remove(&mut self, line: &Line, file: StoreFile, dice: &mut dyn Dice) -> Result<(), i32> {
        if line.fault == Some(Fault::Gone) {
            return Err(EIO);
        }
        let failed = line.fault == Some(Fault::Error);
        let there = self.names.now.contains_key(&file);
        if there && (!failed || dice.below(2) == 0) {
            self.names.set(file, None, line.index);
        }
        if failed { Err(EIO) } else { Ok(()) }
    }

    fn sync_names(&mut self, line: &Line, until: u64) -> Result<(), i32> {
        match line.fault {
            Some(Fault::Gone | Fault::SyncFails) => return Err(EIO),
            Some(Fault::SyncLost) => self.names.sync_lost(until),
            _ => self.names.sync(until),
        }
        Ok(())
    }

    fn sync(&mut self, line: &Line, file: StoreFile, until: u64, dice: &mut dyn Dice) -> Result<(), i32> {
        let image = self.image(line, file)?;
        match line.fault {
            Some(Fault::Gone) => return Err(EIO),
            Some(Fault::SyncFails) => {
                image.sync_failed(until, dice);
                return Err(EIO);
            }
            Some(Fault::SyncLost) => image.sync_lost(until),
            _ => image.sync(until),
        }
        Ok(())
    }

    fn image(&mut self, line: &Line, file: StoreFile) -> Result<&mut Image, i32> {
        match self.names.now.get(&file) {
            Some(&inode) => Ok(&mut self.images[inode]),
            None => {
                self.blame(format_args!("no such file: {line}"));
                Err(ENOENT)
            }
        }
    }

    /// The file, and the bytes of it that a transfer reaches.
    fn place(&mut self, line: &Line, room: usize, bytes: usize) -> Result<(&mut Image, usize), i32> {
        let align = ALIGN as u64;
        if bytes > room || !line.offset.is_multiple_of(align) || !(bytes as u64).is_multiple_of(align) {
            self.blame(format_args!("not aligned, or more than its frame: {line}"));
            return Err(EINVAL);
        }
        let file = line.file.ok_or(EINVAL)?;
        let len = self.image(line, file)?.now.len() as u64;
        if line.offset + bytes as u64 > len && line.kind == Kind::Write {
            self.blame(format_args!("past the end at {len:#x}: {line}"));
            return Err(EINVAL);
        }
        let reach = len.saturating_sub(line.offset).min(bytes as u64) as usize;
        Ok((self.image(line, file)?, reach))
    }

    fn read(&mut self, line: &Line, frame: &mut Frame, bytes: usize, dice: &mut dyn Dice) -> Moved {
        let (image, reach) = self.place(line, frame.len(), bytes)?;
        if matches!(line.fault, Some(Fault::Error | Fault::Gone)) {
            return Err(EIO);
        }
        // Behind the end there is nothing.
        let offset = (line.offset as usize).min(image.now.len());
        if line.fault == Some(Fault::FlipDisk) && reach > 0 {
            image.rot(offset + dice.below(reach as u64) as usize, dice.below(8) as u8);
        }
        let moved = if line.fault == Some(Fault::Short) { short(reach, dice) } else { reach };
        frame[..moved].copy_from_slice(&image.now[offset..offset + moved]);
        let damaged = image.damaged.range(offset / SECTOR..(offset + moved).div_ceil(SECTOR)).next().is_some();
        if line.fault == Some(Fault::FlipRead) && moved > 0 {
            frame[dice.below(moved as u64) as usize] ^= 1 << dice.below(8);
        }
        match line.file {
            Some(StoreFile::Slab(_)) => self.marks.damaged_slab_reads += u64::from(damaged),
            _ => self.marks.damaged_log_reads += u64::from(damaged),
        }
        Ok(moved)
    }

    fn write(&mut self, line: &Line, frame: &Frame, bytes: usize, dice: &mut dyn Dice) -> Moved {
        let (image, _) = self.place(line, frame.len(), bytes)?;
        let (first, bytes) = (line.offset as usize / SECTOR, &frame[..bytes]);
        match line.fault {
            Some(Fault::Gone) => return Err(EIO),
            Some(Fault::Error) => {
                image.write_some(first, bytes, line.index, || dice.below(2) == 0);
                return Err(EIO);
            }
            Some(Fault::Short) => {
                let moved = short(bytes.len(), dice);
                let mut whole = bytes[..moved].to_vec();
                // The rest of the last sector stays as it was.
                let end = first * SECTOR + moved.next_multiple_of(SECTOR);
                whole.extend_from_slice(&image.now[first * SECTOR + moved..end]);
                image.write(first, &whole, line.index, Way::Right);
                return Ok(moved);
            }
            Some(Fault::WriteLost) => image.write(first, bytes, line.index, Way::Lost),
            Some(Fault::Misdirected) => {
                image.write(first, bytes, line.index, Way::Lost);
                self.misdirect((line, first), bytes, dice);
            }
            _ => image.write(first, bytes, line.index, Way::Right),
        }
        if line.fault == Some(Fault::FlipDisk) && !bytes.is_empty() {
            let byte = line.offset + dice.below(bytes.len() as u64);
            self.place(line, frame.len(), 0)?.0.rot(byte as usize, dice.below(8) as u8);
        }
        Ok(bytes.len())
    }

    /// The write lands at another place, of any file that is large enough.
    fn misdirect(&mut self, (line, meant): (&Line, usize), bytes: &[u8], dice: &mut dyn Dice) {
        let Some(inode) = self.any_file(dice) else { return };
        let image = &mut self.images[inode];
        let Some(last) = image.sectors().checked_sub(bytes.len() / SECTOR) else { return };
        let first = dice.below(last as u64 + 1) as usize;
        let same = line.file.and_then(|file| self.names.now.get(&file)) == Some(&inode);
        if !(same && first == meant) {
            image.write(first, bytes, line.index, Way::Stray);
        }
    }

    fn any_file(&self, dice: &mut dyn Dice) -> Option<Inode> {
        let which = dice.below(self.names.now.len().max(1) as u64) as usize;
        self.names.now.values().nth(which).copied()
    }

    /// A bit of any file turns.
    fn rot_anywhere(&mut self, dice: &mut dyn Dice) {
        let Some(inode) = self.any_file(dice) else { return };
        let image = &mut self.images[inode];
        if !image.now.is_empty() {
            image.rot(dice.below(image.now.len() as u64) as usize, dice.below(8) as u8);
        }
    }
}

/// Fewer bytes than asked for: whole sectors or not, at least one byte.
fn short(bytes: usize, dice: &mut dyn Dice) -> usize {
    let fewer = dice.below(bytes.max(1) as u64) as usize;
    match dice.below(2) {
        0 => (fewer / SECTOR * SECTOR).max(SECTOR.min(bytes)),
        _ => fewer.max(1.min(bytes)),
    }
}
