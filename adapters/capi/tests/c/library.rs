//! The library under test.
//!
//! Upward: [`shared`] and [`archive`], built once as the README says, without flags of the tests' own build.
//! From below: cargo, in a target folder of its own, so that it does not wait for the cargo that runs the tests.

use crate::job::Job;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The package, and the names of its files.
pub const PACKAGE: &str = "terrace-capi";
const SHARED: &str = "libterrace_malloc.so";
pub const ARCHIVE: &str = "libterrace_malloc.a";
/// A word that this library's `malloc_stats` prints.
pub const STATS_WORD: &str = "terrace";

/// The folder of the libraries; `None`: `TERRACE_MALLOC_LIBRARY` names a shared library to test, which has no archive.
static BUILT: LazyLock<Option<PathBuf>> = LazyLock::new(|| match std::env::var_os("TERRACE_MALLOC_LIBRARY") {
    Some(_) => None,
    None => Some(build()),
});

/// Builds the package; returns the libraries' folder.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("capi");
    let job = Job::new(Path::new(env!("CARGO"))).within(Path::new(env!("CARGO_MANIFEST_DIR")));
    let others =
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR"];
    let job = others.iter().fold(job, |job, name| job.without(name));
    let job = job.args(["build", "--release", "--quiet", "--package", PACKAGE, "--target-dir"]);
    job.args([&target]).seconds(1800).run().succeeded();
    target.join("release")
}

/// The shared library.
pub fn shared() -> PathBuf {
    match (&*BUILT, std::env::var_os("TERRACE_MALLOC_LIBRARY")) {
        (Some(folder), _) => folder.join(SHARED),
        (None, path) => PathBuf::from(path.unwrap_or_default()),
    }
}

/// The static library, where it was built here.
pub fn archive(test: &str) -> Option<PathBuf> {
    if BUILT.is_none() {
        crate::skip(test, "unset TERRACE_MALLOC_LIBRARY: there is no archive beside it");
    }
    Some(BUILT.as_ref()?.join(ARCHIVE))
}
