//! The library: built once, loaded once.
//!
//! Upward: [`path`], [`loaded`]; [`built`] for libraries beside it.
//! From below: cargo, in a target folder of its own, so that it does not wait for the cargo that runs the tests.

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The environment variable that names a library to load in place of the one that is built: for child processes that
/// use a copy of [`without_symbols`](super::without_symbols).
pub const VARIABLE: &str = "TERRACE_SIMCUDA_LIBRARY";

const PACKAGE: &str = "terrace-simcuda";
const FILE: &str = "libterrace_simcuda.so";

static PATH: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os(VARIABLE) {
    Some(path) => PathBuf::from(path),
    None => built(PACKAGE, FILE),
});

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let path = path();
    // SAFETY: the library's start runs nothing but Rust's; it is not unloaded, so what it gives stays good.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.unwrap_or_else(|error| panic!("{} does not load: {error}", path.display()))
});

/// Where the library is.
pub fn path() -> &'static Path {
    &PATH
}

/// The library, loaded for as long as the process lives.
pub fn loaded() -> &'static Library {
    &LIBRARY
}

/// The folder for the library and its copies.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/simcuda-lib")
}

/// Builds a package as it is, with the flags of no other build; returns its library.
pub fn built(package: &str, file: &str) -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--quiet", "--package", package, "--target-dir"]).arg(folder());
    let others =
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR"];
    for name in others {
        cargo.env_remove(name);
    }
    let output = cargo.output().unwrap_or_else(|error| panic!("cargo does not start: {error}"));
    assert!(output.status.success(), "{package} does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    let path = folder().join("debug").join(file);
    path.canonicalize().unwrap_or_else(|error| panic!("{} is not there: {error}", path.display()))
}
