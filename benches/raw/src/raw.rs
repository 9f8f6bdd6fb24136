//! Reads and writes past the page cache: what the disk can do alone, and with a look at the bytes.
//!
//! Promises upward: each loop keeps as many requests in flight as it is told to, until none is left; an error ends it, with no
//! request in flight.
//! Asks from below: `SlabFile`, a file of allocated space; `FramePool`, memory aligned as the device demands.

use crate::{Blocks, Error, Latencies, each};
use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use terrace_file::{Frame, FramePool, SlabFile};

/// Threads of the loop with threads.
pub const THREADS: usize = 16;

/// What a loop does with the bytes of a block, before it writes or after it has read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    Nothing,
    /// Takes the checksum that the store takes.
    Checksum,
    /// Takes that checksum, and compares what was read with what was written.
    All,
}

/// What a loop does.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Whether it writes.
    pub write: bool,
    /// What it looks at.
    pub look: Look,
    /// What is in the blocks.
    pub blocks: &'a Blocks,
    /// The blocks to move, by number, in this order.
    pub order: &'a [u64],
}

impl Work<'_> {
    fn checksum(&self, bytes: &[u8]) {
        if self.look != Look::Nothing {
            std::hint::black_box(crc32fast::hash(bytes));
        }
    }

    /// Makes a block that is to be written.
    fn before(&self, frame: &mut Frame, block: u64) {
        if self.write {
            self.blocks.stamp(frame, block);
            self.checksum(frame);
        }
    }

    /// Ends a request of the ring, whose result is a number of bytes or an error.
    fn completed(&self, slot: &Slot, result: i32, latencies: &mut Latencies) -> Result<(), Error> {
        let moved = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))?;
        self.after(slot, moved, latencies)
    }

    /// Looks at a block that was moved; counts its latency, in which the checksum has a part, as it has in the store's.
    fn after(&self, slot: &Slot, moved: usize, latencies: &mut Latencies) -> Result<(), Error> {
        if moved != self.blocks.bytes() {
            return Err(format!("block {}: {moved} bytes were moved", slot.block).into());
        }
        if !self.write {
            self.checksum(&slot.frame);
        }
        latencies.end(slot.begun);
        match (self.write, self.look) {
            (false, Look::All) => self.blocks.check(&slot.frame, slot.block),
            _ => Ok(()),
        }
    }
}

/// Memory of one request, and which block it moves since when.
struct Slot {
    frame: Frame,
    block: u64,
    begun: Instant,
}

/// A file whose space is allocated, and memory to move.
#[derive(Debug)]
pub struct RawFile {
    slab: SlabFile,
    frames: FramePool,
    /// Memory that no request has, the one that has waited longest first. It is touched already: a page that is touched for
    /// the first time takes longer than its I/O.
    spare: Mutex<VecDeque<Frame>>,
}

impl RawFile {
    /// Creates the file, with `memory` bytes for all requests in flight.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path, bytes: u64, memory: usize) -> Result<Self, Error> {
        Ok(Self { slab: SlabFile::create(path, bytes)?, frames: FramePool::new(memory)?, spare: Mutex::default() })
    }

    /// Prepares memory for so many blocks. If that is more than a loop has requests, its requests take turns in all of it, as
    /// those of a program do that keeps what it reads; else each has the same memory again and again.
    ///
    /// # Errors
    /// There is less memory.
    pub fn warm(&self, blocks: &Blocks, count: usize) -> Result<(), Error> {
        let work = Work { write: true, look: Look::Nothing, blocks, order: &[] };
        let slots = (0..count).map(|_| self.slot(&work)).collect::<Result<Vec<_>, _>>()?;
        self.keep(slots);
        Ok(())
    }

    fn spare(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.spare.lock().expect("no panic")
    }

    fn keep(&self, slots: impl IntoIterator<Item = Slot>) {
        self.spare().extend(slots.into_iter().map(|slot| slot.frame));
    }

    /// Begins with a block, in the memory that was not used for longest.
    fn begin(&self, work: &Work<'_>, slot: &mut Slot, block: u64) {
        (slot.block, slot.begun) = (block, Instant::now());
        let mut spare = self.spare();
        if let Some(next) = spare.pop_front() {
            spare.push_back(std::mem::replace(&mut slot.frame, next));
        }
        drop(spare);
        work.before(&mut slot.frame, block);
    }

    /// How the file is read and written, in words.
    pub fn access(&self) -> String {
        format!("direct {}, alignment {}", self.slab.is_direct(), self.slab.align())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(rustix::fs::fdatasync(&self.slab)?)
    }

    /// Memory of a request. What it has from an earlier one is blocks, all of which have the same but for their numbers.
    fn slot(&self, work: &Work<'_>) -> Result<Slot, Error> {
        let (mut spare, bytes) = (self.spare(), work.blocks.bytes());
        // One file has blocks of one size at a time.
        let frame = match spare.pop_front().filter(|frame| frame.len() == bytes) {
            Some(frame) => frame,
            None => {
                spare.clear();
                let mut frame = self.frames.take(bytes)?;
                frame.copy_from_slice(&work.blocks.blank());
                frame
            }
        };
        Ok(Slot { frame, block: 0, begun: Instant::now() })
    }

    fn entry(&self, work: &Work<'_>, slot: &mut Slot) -> Entry {
        let (bytes, file) = (work.blocks.bytes() as u32, types::Fd(self.slab.as_fd().as_raw_fd()));
        let offset = slot.block * u64::from(bytes);
        match work.write {
            true => opcode::Write::new(file, slot.frame.as_ptr(), bytes).offset(offset).build(),
            false => opcode::Read::new(file, slot.frame.as_mut_ptr(), bytes).offset(offset).build(),
        }
    }

    /// Runs the loop on one thread, with `depth` requests on a ring.
    ///
    /// # Errors
    /// The system's; wrong bytes.
    pub fn ring(&self, work: Work<'_>, depth: usize) -> Result<Latencies, Error> {
        let mut ring = IoUring::new(depth as u32)?;
        let mut slots = (0..depth).map(|_| self.slot(&work)).collect::<Result<Vec<_>, _>>()?;
        let (mut free, mut order) = ((0..depth).collect::<Vec<_>>(), work.order.iter());
        let (mut latencies, mut result) = (Latencies::default(), Ok(()));
        loop {
            while let Some(&at) = free.last().filter(|_| result.is_ok())
                && let Some(&block) = order.next()
            {
                let slot = &mut slots[at];
                self.begin(&work, slot, block);
                let entry = self.entry(&work, slot).user_data(at as u64);
                // SAFETY: the slot lives, and is not touched, until its completion: the loop ends only when all are free.
                unsafe { ring.submission().push(&entry) }?;
                free.pop();
            }
            if free.len() == depth {
                self.keep(slots);
                return result.map(|()| latencies);
            }
            ring.submit_and_wait(1)?;
            for completion in ring.completion() {
                let at = completion.user_data() as usize;
                result = result.and(work.completed(&slots[at], completion.result(), &mut latencies));
                free.push(at);
            }
        }
    }

    /// Runs the loop on threads, with one call each.
    ///
    /// # Errors
    /// The system's; wrong bytes.
    pub fn threads(&self, work: Work<'_>) -> Result<Latencies, Error> {
        let next = AtomicUsize::new(0);
        let run = || -> Result<Latencies, Error> {
            let (mut slot, mut latencies) = (self.slot(&work)?, Latencies::default());
            while let Some(&block) = work.order.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.begin(&work, &mut slot, block);
                let offset = block * work.blocks.bytes() as u64;
                let moved = match work.write {
                    true => rustix::io::pwrite(&self.slab, &slot.frame, offset),
                    false => rustix::io::pread(&self.slab, &mut slot.frame[..], offset),
                }?;
                work.after(&slot, moved, &mut latencies)?;
            }
            self.keep([slot]);
            Ok(latencies)
        };
        each(THREADS, run).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;

    /// Both loops write, and both read what either wrote; blocks of another salt are found.
    #[test]
    fn what_one_loop_writes_the_other_reads() {
        let folder = tempfile::tempdir().unwrap();
        let (blocks, other) = (Blocks::new(4 * PAGE, 1), Blocks::new(4 * PAGE, 2));
        let file = RawFile::create(&folder.path().join("raw"), 100 * 4 * PAGE as u64, 2 << 20).unwrap();
        file.warm(&blocks, 8).unwrap();
        let order: Vec<u64> = (0..100).collect();
        let work = |write, blocks| Work { write, look: Look::All, blocks, order: &order };
        for _ in 0..2 {
            file.threads(work(true, &other)).unwrap();
            assert!(file.threads(work(false, &blocks)).is_err());
            file.threads(work(true, &blocks)).unwrap();
            file.sync().unwrap();
            file.threads(work(false, &blocks)).unwrap();
        }
        match file.ring(work(false, &blocks), 8) {
            Ok(latencies) => assert!(latencies.quantile(0.5) > 0),
            Err(error) => return println!("SKIP what_one_loop_writes_the_other_reads: no io_uring: {error}"),
        }
        file.ring(work(true, &other), 8).unwrap();
        assert!(file.ring(work(false, &blocks), 8).is_err());
        file.threads(work(false, &other)).unwrap();
    }
}
