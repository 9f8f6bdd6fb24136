//! Raw reads and writes: what the disk can do alone, and with checksums of the bytes.

use crate::Error;
use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_file::{Frame, FramePool, SlabFile};

/// Bytes to move.
pub const FILE: u64 = 1 << 30;

/// Threads of the loop with threads.
pub const THREADS: usize = 16;

/// What a loop does.
#[derive(Clone, Copy)]
pub struct Work {
    pub write: bool,
    /// Whether it takes a checksum of each piece.
    pub checked: bool,
    pub bytes: usize,
}

impl Work {
    /// Takes the checksum, before a write or after a read.
    fn look(self, frame: &Frame) {
        if self.checked {
            std::hint::black_box(crc32fast::hash(frame));
        }
    }
}

/// A file, and memory to move.
pub struct Raw {
    slab: SlabFile,
    frames: FramePool,
}

impl Raw {
    pub fn new(path: &Path) -> Result<Self, Error> {
        let raw = Self { slab: SlabFile::create(&path.join("raw"), FILE)?, frames: FramePool::new(256 << 20)? };
        println!("{}: direct {}, alignment {}", raw.slab.name(), raw.slab.is_direct(), raw.slab.align());
        Ok(raw)
    }

    /// Runs the loop on one thread, with `depth` requests on a ring.
    pub fn ring(&self, work: Work, depth: usize) -> Result<(), Error> {
        let bytes = work.bytes;
        let mut ring = IoUring::new(64)?;
        let mut frames: Vec<Frame> = (0..depth).map(|_| self.frames.take(bytes)).collect::<Result<_, _>>()?;
        let (pieces, mut next, mut done) = (FILE / bytes as u64, 0, 0);
        let file = types::Fd(self.slab.as_fd().as_raw_fd());
        let mut free: Vec<usize> = (0..depth).collect();
        while done < pieces {
            while let Some(at) = (next < pieces).then(|| free.pop()).flatten() {
                let (frame, offset) = (&mut frames[at], next * bytes as u64);
                let entry = match work.write {
                    true => {
                        fill(frame, next);
                        work.look(frame);
                        opcode::Write::new(file, frame.as_ptr(), bytes as u32).offset(offset).build()
                    }
                    false => opcode::Read::new(file, frame.as_mut_ptr(), bytes as u32).offset(offset).build(),
                };
                // SAFETY: the frame lives until the completion.
                unsafe { ring.submission().push(&entry.user_data(at as u64)) }?;
                next += 1;
            }
            ring.submit_and_wait(1)?;
            for completion in ring.completion() {
                assert_eq!(completion.result(), bytes as i32);
                let at = completion.user_data() as usize;
                if !work.write {
                    work.look(&frames[at]);
                }
                free.push(at);
                done += 1;
            }
        }
        Ok(())
    }

    /// Runs the loop on threads, with one call each.
    pub fn threads(&self, work: Work) -> Result<(), Error> {
        let bytes = work.bytes;
        let (next, pieces) = (AtomicU64::new(0), FILE / bytes as u64);
        crate::each(THREADS, || {
            let mut frame = self.frames.take(bytes).expect("there is room");
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces {
                    return;
                }
                let offset = piece * bytes as u64;
                let moved = match work.write {
                    true => {
                        fill(&mut frame, piece);
                        work.look(&frame);
                        rustix::io::pwrite(&self.slab, &frame, offset)
                    }
                    false => rustix::io::pread(&self.slab, &mut frame[..], offset),
                };
                assert_eq!(moved, Ok(bytes));
                if !work.write {
                    work.look(&frame);
                }
            }
        });
        Ok(())
    }
}

fn fill(frame: &mut Frame, piece: u64) {
    frame[..8].copy_from_slice(&piece.to_le_bytes());
}
