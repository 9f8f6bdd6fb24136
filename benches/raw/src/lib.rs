//! Raw loops on a disk, and what is compared with them.
//!
//! | file | what it is |
//! | --- | --- |
//! | `blocks` | contents of blocks, each of which differs from all others |
//! | `cost` | seconds, processor time and latencies |
//! | `process` | memory and files of a process, and what a contestant in one of its own reports |
//! | `raw` | reads and writes past the page cache: by a ring, and by threads |
//!
//! Promises upward: a loop moves each block that it is told to, in that order, and looks at all of its bytes if asked to; a block
//! with wrong bytes is an error.
//! Asks from below: `terrace-file`, for aligned memory and for a file of allocated space.

#![cfg(target_os = "linux")]

mod blocks;
mod cost;
mod process;
mod raw;

pub use blocks::{Blocks, PAGE};
pub use cost::{Cost, Latencies, Moved, processor, timed};
pub use process::{Peer, resident, shuffled, sync_files};
pub use raw::{Look, RawFile, THREADS, Work};

/// Whatever went wrong; it may come from another thread.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Runs a function on so many threads; returns what each of them returned.
///
/// # Panics
/// If one of them does.
pub fn each<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
