//! What all fuzz targets share: seeded bugs, chosen when a target starts.
//!
//! A target that cannot fail holds nothing. So each target names bugs (`// seeded-env: NAME`) that it must find from
//! nothing within a minute. They sit between the structure and what it asks from below: an index that loses a
//! gap, records that lose a write, a source that gives the same bytes twice. The structure then goes wrong, and the
//! model beside it, or the structure's own `check()`, has to say so.
//!
//! Promises upward: without `TERRACE_SEEDED_BUG` in the environment nothing here changes anything.
//! Asks from below: the core alone, so that a target of the core builds in seconds.
#![forbid(unsafe_code)]

mod faulty;

pub use faulty::{FaultyIndex, FaultySource, Forgetful};

use std::sync::OnceLock;

/// Whether the bug `name` is switched on, by the environment variable `TERRACE_SEEDED_BUG`.
pub fn bug(name: &str) -> bool {
    static BUG: OnceLock<Option<String>> = OnceLock::new();
    BUG.get_or_init(|| std::env::var("TERRACE_SEEDED_BUG").ok()).as_deref() == Some(name)
}
