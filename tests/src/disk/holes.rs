//! A simulated disk with files that are nothing but holes: of any size and in any number, they cost no memory.
//!
//! Promises upward: a hole is listed with its size, read as zeros and can be removed; bytes read of holes are counted. Orders
//! for all other files go to the simulated disk.

use super::SimDisk;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_file::{Answer, Disk, File, FileFault, Order, Reply};

/// A simulated disk, and holes.
#[derive(Debug)]
pub struct Holes {
    disk: Arc<SimDisk>,
    holes: Mutex<BTreeMap<File, u64>>,
    read: AtomicU64,
}

impl Holes {
    /// A disk with holes of these sizes. A file of the disk with the name of a hole is not seen.
    pub fn new(disk: &Arc<SimDisk>, holes: impl IntoIterator<Item = (File, u64)>) -> Arc<Self> {
        let holes = Mutex::new(holes.into_iter().collect());
        Arc::new(Self { disk: Arc::clone(disk), holes, read: AtomicU64::new(0) })
    }

    /// The holes that were not removed.
    pub fn left(&self) -> Vec<File> {
        self.holes().keys().copied().collect()
    }

    /// Bytes of holes that were read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn holes(&self) -> MutexGuard<'_, BTreeMap<File, u64>> {
        self.holes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Holes {
    fn files(&self) -> Result<Vec<(File, u64)>, FileFault> {
        let mut files: BTreeMap<File, u64> = self.disk.files()?.into_iter().collect();
        files.extend(&*self.holes());
        Ok(files.into_iter().collect())
    }

    fn submit(&self, order: Order, reply: Reply) {
        let hole = |file: &File| self.holes().get(file).copied();
        let answer = match order {
            Order::Read { file, offset, bytes, mut frame } if hole(&file).is_some() => {
                let moved = hole(&file).unwrap_or(0).saturating_sub(offset).min(bytes as u64) as usize;
                frame[..moved].fill(0);
                self.read.fetch_add(moved as u64, Ordering::Relaxed);
                Answer { result: Ok(moved), frame: Some(frame) }
            }
            Order::Remove { file } if hole(&file).is_some() => {
                self.holes().remove(&file);
                Answer::plain(Ok(()))
            }
            other => return self.disk.submit(other, reply),
        };
        drop(reply.send(answer));
    }
}
