//! What the fuzz targets above the core share: traces read to their end, stores over a simulated disk, and the seeded bugs of
//! `terrace_fuzz_core`.
//!
//! Promises upward: without `TERRACE_SEEDED_BUG` in the environment nothing here changes anything.
//! Asks from below: the readers of traces, the file tier.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod store;

use terrace::engine::event::Event;
use terrace::recording::{Reader, Texts, TraceError};
pub use terrace_fuzz_core::{FaultyIndex, FaultySource, Forgetful, bug};

/// Reads a trace up to its end or its one error; `None` where `each` says that it has seen enough.
pub fn read_trace(bytes: &[u8], mut each: impl FnMut(&Event, &Texts) -> bool) -> Option<Result<(), TraceError>> {
    let mut reader = match Reader::new("input", bytes) {
        Ok(reader) => reader,
        Err(error) => return Some(Err(error)),
    };
    while let Some(entry) = reader.next() {
        match entry {
            Ok(entry) if each(&entry.event, reader.texts()) => {}
            Ok(_) => return None,
            Err(error) => {
                assert!(reader.next().is_none(), "nothing comes after an error");
                return Some(Err(error));
            }
        }
    }
    Some(Ok(()))
}
