//! What the fuzz targets share: seeded bugs, chosen when a target starts.
//!
//! A target that cannot fail holds nothing. So each target names bugs (`// seeded-env: NAME`) that it must find from
//! nothing within a minute. They sit between the structure and what it asks from below: an index that loses a
//! gap, records that lose a write, a source that gives the same bytes twice. The structure then goes wrong, and the
//! model beside it, or the structure's own `check()`, has to say so.
//!
//! Promises upward: without `TERRACE_SEEDED_BUG` in the environment nothing here changes anything.
//! Asks from below: nothing.
#![forbid(unsafe_code)]

mod faulty;
#[cfg(target_os = "linux")]
pub mod store;

pub use faulty::{FaultyIndex, FaultySource, Forgetful};

use std::sync::OnceLock;
use terrace::engine::event::Event;
use terrace::recording::{Reader, Texts, TraceError};

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

/// Whether the bug `name` is switched on, by the environment variable `TERRACE_SEEDED_BUG`.
pub fn bug(name: &str) -> bool {
    static BUG: OnceLock<Option<String>> = OnceLock::new();
    BUG.get_or_init(|| std::env::var("TERRACE_SEEDED_BUG").ok()).as_deref() == Some(name)
}
