//! A simulated disk with files that are nothing but holes: of any size and in any number, they cost no memory.
//!
//! Promises upward: a hole is listed with its size, read as zeros and can be removed; bytes read of holes are counted. Orders
//! for all other files go to the simulated disk.

use super::SimDisk;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_file::{Disk, DiskRequest, DiskResponse, FileFault, ResponseSender, StoreFile};

/// A simulated disk, and holes.
#[derive(Debug)]
pub struct Holes {
    disk: Arc<SimDisk>,
    holes: Mutex<BTreeMap<StoreFile, u64>>,
    read: AtomicU64,
}

impl Holes {
    /// A disk with holes of these sizes. A file of the disk with the name of a hole is not seen.
    pub fn new(disk: &Arc<SimDisk>, holes: impl IntoIterator<Item = (StoreFile, u64)>) -> Arc<Self> {
        let holes = Mutex::new(holes.into_iter().collect());
        Arc::new(Self { disk: Arc::clone(disk), holes, read: AtomicU64::new(0) })
    }

    /// The holes that were not removed.
    pub fn left(&self) -> Vec<StoreFile> {
        self.holes().keys().copied().collect()
    }

    /// Bytes of holes that were read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn holes(&self) -> MutexGuard<'_, BTreeMap<StoreFile, u64>> {
        self.holes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Holes {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        let mut files: BTreeMap<StoreFile, u64> = self.disk.files()?.into_iter().collect();
        files.extend(&*self.holes());
        Ok(files.into_iter().collect())
    }

    fn submit(&self, order: DiskRequest, reply: ResponseSender) {
        let hole = |file: &StoreFile| self.holes().get(file).copied();
        let answer = match order {
            DiskRequest::Read { file, offset, bytes, mut frame } if hole(&file).is_some() => {
                let moved = hole(&file).unwrap_or(0).saturating_sub(offset).min(bytes as u64) as usize;
                frame[..moved].fill(0);
                self.read.fetch_add(moved as u64, Ordering::Relaxed);
                DiskResponse { result: Ok(moved), frame: Some(frame) }
            }
            DiskRequest::Remove { file } if hole(&file).is_some() => {
                self.holes().remove(&file);
                DiskResponse::without_frame(Ok(()))
            }
            other => return self.disk.submit(other, reply),
        };
        drop(reply.send(answer));
    }
}
