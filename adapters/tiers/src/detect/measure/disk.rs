//! Measures a disk in one of its directories.
//!
//! Promises upward: writes one file that never has a name (or loses it at once, where the file system has no unnamed
//! files), so that nothing is left behind however the process ends; uses at most 256 MiB and 1 % of the free space;
//! takes about two seconds: each phase has its time, and then waits for its requests in flight. Reads only what it
//! wrote: other blocks are not on the disk.
//! Asks from below: a directory that this user may write.
//!
//! Data just written may still lie in the disk's own cache: a rotating disk with 256 MiB of cache can look like flash.
//! Each block is read once and in an unpredictable order, which is all that two seconds allow; where that is wrong, the
//! user declares the kind.

use super::load::{Workload, run};
use super::{DiskFigures, Phase, splitmix64};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_core::AllocError;
use terrace_file::{FileFault, FramePool, IoRequest, Op, SlabFile, perform};

/// Most bytes that the measurement writes: 65536 blocks of 4 KiB. This is four times as many as a fast disk reads in
/// the 0.3 seconds of random reads at queue depth 1, and more than most disks cache.
const MOST: u64 = 256 << 20;

/// Most bytes that the measurement writes if direct I/O is not possible. The page cache takes all of them at once, and
/// a slow card needs three seconds to sync them, at 20 MiB a second.
const CACHED: u64 = 64 << 20;

/// Fewest bytes that give meaningful figures: 4096 blocks of 4 KiB.
const LEAST: u64 = 16 << 20;

/// The file takes at most one part in this many of the free space.
const SHARE: u64 = 100;

const BLOCK: u64 = 4096;
const PIECE: u64 = 1 << 20;

/// Pieces of 1 MiB in flight at once: enough to keep any disk busy.
const PIECES: u32 = 4;

/// Time that a phase runs; all five take 1.8 seconds together. A rotating disk does 40 random reads in 0.3 seconds,
/// enough for a median.
fn time(phase: Phase) -> Duration {
    Duration::from_millis(match phase {
        Phase::Write => 600,
        Phase::Sequential => 200,
        Phase::Random | Phase::Deep => 300,
        Phase::Read => 400,
    })
}

/// Why a disk could not be measured.
#[derive(Debug)]
pub enum DiskMeasureError {
    /// A hundredth of the free space is too little to measure with.
    Full {
        /// Free bytes.
        free_bytes: u64,
    },
    /// No file can be created in the directory.
    Directory(PathBuf, std::io::Error),
    /// A system call on the measured file failed.
    File(FileFault),
    /// The system refused memory or threads.
    System(std::io::Error),
}

impl fmt::Display for DiskMeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { free_bytes } => {
                let (free, least) = (free_bytes >> 20, (LEAST * SHARE) >> 20);
                write!(f, "only {free} MiB are free, measuring takes a hundredth and wants {least} MiB: free some")
            }
            Self::Directory(path, error) => {
                write!(f, "{}: no file can be made: {error}; give a directory that you may write", path.display())
            }
            Self::File(fault) => fault.fmt(f),
            Self::System(error) => write!(f, "the system refused: {error}; try again when it is less busy"),
        }
    }
}

impl std::error::Error for DiskMeasureError {}

impl From<FileFault> for DiskMeasureError {
    fn from(fault: FileFault) -> Self {
        Self::File(fault)
    }
}

impl From<std::io::Error> for DiskMeasureError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

impl From<AllocError> for DiskMeasureError {
    fn from(error: AllocError) -> Self {
        Self::System(std::io::Error::other(error))
    }
}

/// State that the phases of a measurement share.
struct DiskMeasurement {
    /// The measured file. As it has no name, it is opened a second time through its descriptor in `/proc`, and kept
    /// open here.
    slab: Arc<SlabFile>,
    frames: FramePool,
    /// Bytes written to the file, from offset 0 on.
    written: u64,
    /// Offsets of the blocks left to read, in random order. Each block is read once, so that no cache holds it.
    blocks: VecDeque<u64>,
}

/// Measures the disk that a directory lies on; calls `progress` before each phase.
///
/// # Errors
/// [`DiskMeasureError`] says why, and what to do. The file is removed even then.
pub fn disk(directory: &Path, mut progress: impl FnMut(Phase)) -> Result<DiskFigures, DiskMeasureError> {
    let mut disk = DiskMeasurement::new(directory).map_err(|error| name(error, directory))?;
    disk.measure(&mut progress).map_err(|error| name(error, directory))
}

/// Names the directory in an error, as the file has no meaningful name.
fn name(error: DiskMeasureError, directory: &Path) -> DiskMeasureError {
    match error {
        DiskMeasureError::File(fault) => {
            DiskMeasureError::File(FileFault { file: format!("a file in {}", directory.display()), ..fault })
        }
        other => other,
    }
}

impl DiskMeasurement {
    fn new(directory: &Path) -> Result<Self, DiskMeasureError> {
        let at = |error: std::io::Error| DiskMeasureError::Directory(directory.into(), error);
        let space = rustix::fs::statvfs(directory).map_err(|error| at(error.into()))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        let file = tempfile::tempfile_in(directory).map_err(at)?;
        let slab = SlabFile::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
        let bytes = size(free_bytes, slab.is_direct()).ok_or(DiskMeasureError::Full { free_bytes })?;
        // Preallocation may fail: where the file system does not support it, the writes allocate the space.
        let _ = fallocate(&slab, FallocateFlags::empty(), 0, bytes);
        let frames = FramePool::new((u64::from(PIECES) * PIECE) as usize)?;
        Ok(Self { slab: Arc::new(slab), frames, written: bytes, blocks: VecDeque::new() })
    }

    fn measure(&mut self, progress: &mut impl FnMut(Phase)) -> Result<DiskFigures, DiskMeasureError> {
        progress(Phase::Write);
        let write_bytes_per_s = self.write()?;
        progress(Phase::Random);
        self.forget(Advice::Random);
        let mut random = self.one_by_one(Phase::Random)?;
        progress(Phase::Sequential);
        self.forget(Advice::Random);
        let sequential = per_second(&self.one_by_one(Phase::Sequential)?);
        progress(Phase::Deep);
        self.forget(Advice::Random);
        let blocks = std::mem::take(&mut self.blocks);
        let (deep, _) = self.many(Phase::Deep, Op::Read, BLOCK, 16, blocks)?;
        progress(Phase::Read);
        self.forget(Advice::Sequential);
        let pieces = (0..self.written / PIECE).map(|piece| piece * PIECE).collect();
        let (read, engine) = self.many(Phase::Read, Op::Read, PIECE, PIECES, pieces)?;
        let one = per_second(&random);
        random.sort_unstable();
        Ok(DiskFigures {
            file_bytes: self.written,
            direct: self.slab.is_direct(),
            engine,
            write_bytes_per_s,
            read_bytes_per_s: (read * PIECE as f64) as u64,
            random_4k_read_p50_ns: random.get(random.len() / 2).copied().unwrap_or(0),
            random_4k_qd1_iops: one as u64,
            sequential_4k_qd1_iops: sequential as u64,
            random_4k_qd16_iops: deep as u64,
            random_over_sequential: one / sequential,
            depth_scaling: deep / one,
        })
    }

    /// Writes until the phase's time is over or the file has its full size, then syncs the file; returns bytes a
    /// second.
    fn write(&mut self) -> Result<u64, DiskMeasureError> {
        let begin = Instant::now();
        let pieces = (0..self.written / PIECE).map(|piece| piece * PIECE).collect();
        {
            // Fills the frames with incompressible bytes, for the writes to use; the load generator changes each block
            // before each write.
            let mut state = 3;
            let frames: Result<Vec<_>, _> = (0..PIECES).map(|_| self.frames.take(PIECE as usize)).collect();
            for word in frames?.iter_mut().flat_map(|frame| frame.chunks_exact_mut(8)) {
                word.copy_from_slice(&splitmix64(&mut state).to_ne_bytes());
            }
        }
        let filled = begin.elapsed();
        let work = self.work(Phase::Write, Op::Write, PIECE, PIECES, pieces);
        // Pieces are submitted in ascending order and every submitted piece completes, so the bytes written are
        // contiguous from offset 0.
        self.written = run(work, &self.frames)?.done * PIECE;
        let sync = IoRequest { token: 0, op: Op::Sync, slab: Arc::clone(&self.slab), offset: 0, bytes: 0, frame: None };
        perform(sync).result?;
        let seconds = (begin.elapsed() - filled).as_secs_f64();
        self.blocks = shuffled(self.written / BLOCK);
        Ok((self.written as f64 / seconds.max(1e-9)) as u64)
    }

    fn work(&self, phase: Phase, op: Op, bytes: u64, depth: u32, offsets: VecDeque<u64>) -> Workload {
        Workload { op, slab: Arc::clone(&self.slab), bytes: bytes as usize, offsets, depth, time: time(phase) }
    }

    /// Runs a workload; returns requests a second and the engine's name.
    fn many(
        &self,
        phase: Phase,
        op: Op,
        bytes: u64,
        depth: u32,
        offsets: VecDeque<u64>,
    ) -> Result<(f64, &'static str), DiskMeasureError> {
        let outcome = run(self.work(phase, op, bytes, depth, offsets), &self.frames)?;
        Ok((outcome.done as f64 / outcome.elapsed.as_secs_f64().max(1e-9), outcome.engine))
    }

    /// Reads 4K blocks on this thread, at queue depth 1, in random or sequential order as the phase demands; returns
    /// the latencies in nanoseconds.
    fn one_by_one(&mut self, phase: Phase) -> Result<Vec<u64>, DiskMeasureError> {
        let mut times = Vec::new();
        let mut frame = Some(self.frames.take(BLOCK as usize)?);
        let begin = Instant::now();
        while times.is_empty() || begin.elapsed() < time(phase) {
            let offset = match phase {
                // Leaves at least half of the blocks unread for the phase at queue depth 16.
                Phase::Random if self.blocks.len() as u64 * 2 * BLOCK <= self.written => break,
                Phase::Random => self.blocks.pop_front().unwrap_or(0),
                _ => times.len() as u64 * BLOCK % self.written,
            };
            let slab = Arc::clone(&self.slab);
            let request =
                IoRequest { token: 0, op: Op::Read, slab, offset, bytes: BLOCK as usize, frame: frame.take() };
            let one = Instant::now();
            let completion = perform(request);
            times.push(one.elapsed().as_nanos() as u64);
            completion.result?;
            frame = completion.frame;
        }
        Ok(times)
    }

    /// Without direct I/O, drops the file's pages from the page cache and advises the kernel how the file will be read.
    fn forget(&self, how: Advice) {
        if !self.slab.is_direct() {
            // If the kernel refuses, the page cache answers the reads; their low latency shows that to `classify`.
            let _ = fadvise(&*self.slab, 0, None, Advice::DontNeed);
            let _ = fadvise(&*self.slab, 0, None, how);
        }
    }
}

/// Returns the bytes to measure with, whole pieces; `None` if the free space allows fewer than `LEAST`.
fn size(free_bytes: u64, direct: bool) -> Option<u64> {
    let most = if direct { MOST } else { CACHED };
    Some(most.min(free_bytes / SHARE) / PIECE * PIECE).filter(|&bytes| bytes >= LEAST)
}

fn per_second(times: &[u64]) -> f64 {
    times.len() as f64 * 1e9 / times.iter().sum::<u64>().max(1) as f64
}

/// Returns the offsets of `count` blocks in random order (the shuffle of Fisher and Yates).
fn shuffled(count: u64) -> VecDeque<u64> {
    let mut blocks: Vec<u64> = (0..count).map(|block| block * BLOCK).collect();
    let mut state = 11;
    for i in (1..blocks.len()).rev() {
        blocks.swap(i, (splitmix64(&mut state) % (i as u64 + 1)) as usize);
    }
    blocks.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_a_hundredth_of_what_is_free() {
        const GIB: u64 = 1 << 30;
        assert_eq!([size(1000 * GIB, true), size(1000 * GIB, false)], [Some(256 << 20), Some(64 << 20)]);
        assert_eq!([size(10 * GIB, true), size(LEAST * SHARE, true)], [Some(102 << 20), Some(LEAST)]);
        assert_eq!([size(LEAST * SHARE - 1, true), size(0, false)], [None; 2]);
        let text = DiskMeasureError::Full { free_bytes: GIB }.to_string();
        assert!(text.contains("only 1024 MiB are free") && text.contains("wants 1600 MiB"), "{text}");
    }

    #[test]
    fn random_places_are_all_places_once() {
        let mut blocks: Vec<u64> = shuffled(1000).into();
        let ascending = blocks.windows(2).filter(|pair| pair[1] == pair[0] + BLOCK).count();
        assert!(ascending < 20, "{ascending} of 999 are in order");
        blocks.sort_unstable();
        assert!(blocks.iter().enumerate().all(|(i, &block)| block == i as u64 * BLOCK) && blocks.len() == 1000);
    }
}
