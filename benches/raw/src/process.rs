//! What contestants in processes of their own have: their memory, their files, an order, and what they report.
//!
//! Promises upward: figures of this process. Asks from below: `/proc/self/status`.

use crate::{Error, Moved, THREADS, each};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a contestant in a process of its own reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Puts of all blocks.
    pub put: Moved,
    /// Gets of all blocks.
    pub get: Moved,
    /// Bytes resident before the contestant was built.
    pub before: u64,
    /// Most bytes resident.
    pub peak: u64,
}

/// A figure of this process's memory in bytes: `VmRSS:`, what is resident, or `VmHWM:`, the most that was.
///
/// # Errors
/// The system does not have it.
pub fn resident(key: &str) -> Result<u64, Error> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| format!("/proc/self/status has no {key}").into())
}

/// Calls `fdatasync` on each file of a directory, on sixteen threads: one after another they would wait for a flush of the disk each,
/// where a single file needs one.
///
/// # Errors
/// The system's.
pub fn sync_files(directory: &Path) -> Result<(), Error> {
    let entries = std::fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let next = AtomicUsize::new(0);
    let sync = || -> Result<(), Error> {
        while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            if entry.file_type()?.is_file() {
                std::fs::File::open(entry.path())?.sync_data()?;
            }
        }
        Ok(())
    };
    each(THREADS, sync).into_iter().collect()
}

/// The same in another order, which a seed draws.
pub fn shuffled(mut order: Vec<u64>, seed: u64) -> Vec<u64> {
    let mut state = seed;
    for last in (1..order.len()).rev() {
        // Knuth's generator; its upper bits are good enough for an order.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_drawn_by_chance_has_every_block_once() {
        let order = shuffled((0..100).collect(), 1);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(order != sorted && sorted == (0..100).collect::<Vec<_>>());
        assert_ne!(order, shuffled((0..100).collect(), 2));
    }

    #[test]
    fn this_process_has_memory() {
        let (now, most) = (resident("VmRSS:").unwrap(), resident("VmHWM:").unwrap());
        assert!(now > 100 << 10 && most >= now / 2);
        assert!(resident("VmNone:").is_err());
    }
}
