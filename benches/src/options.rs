//! Options that every benchmark has.
//!
//! Promises upward: results that are kept lie apart from those of a try. Asks from below: the working tree's layout.

use std::path::{Path, PathBuf};

/// Where a benchmark's results go: the folder asked for; else with the results that are kept or, after a quick run, with
/// what was built.
pub fn folder(asked: Option<&Path>, benchmark: &str, quick: bool) -> PathBuf {
    match (asked, quick) {
        (Some(folder), _) => folder.into(),
        (None, true) => built(benchmark),
        (None, false) => Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(benchmark),
    }
}

/// Where a benchmark leaves what nobody keeps.
pub fn built(benchmark: &str) -> PathBuf {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    benches.parent().unwrap_or(benches).join("target/bench").join(benchmark)
}
