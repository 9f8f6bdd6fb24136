//! Which CUDA driver is used: the system's, or one that is named by path.
//!
//! Promises upward: a library that was asked for by path is the one that devices use, or there is an error that names it.
//! Asks from below: the system's loader. It keeps a library under the name that the library has for itself; a driver is
//! called `libcuda.so`, so whoever looks for that name later gets the one that is there already.

use crate::failure::Failure;
use clap::Args;
use std::path::{Path, PathBuf};

/// Which driver to use.
#[derive(Args, Clone, Debug, Default)]
pub struct DriverArgs {
    /// A library to load as the CUDA driver, before the system's is looked for; for tests with a simulated one.
    #[arg(long = "driver", value_name = "PATH", hide = true)]
    pub path: Option<PathBuf>,
}

impl DriverArgs {
    /// Loads the library that was named, if any was, for as long as the process lives.
    pub fn load(&self) -> Result<(), Failure> {
        self.path.as_deref().map_or(Ok(()), load)
    }
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::Device(format!("--driver {}", path.display()), format!("{why}; give the path of a CUDA driver's library"))
}

#[cfg(unix)]
fn load(path: &Path) -> Result<(), Failure> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // A name without a slash would be searched for in the system's folders.
    let path = std::fs::canonicalize(path).map_err(|error| unusable(path, error))?;
    // SAFETY: loading runs the library's initialisers: the user named it to have it run.
    #[allow(unsafe_code, reason = "a library's initialisers may do anything")]
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
    // Never unloaded: what devices get from it is used until the end.
    std::mem::forget(library.map_err(|error| unusable(&path, error))?);
    Ok(())
}

#[cfg(not(unix))]
fn load(path: &Path) -> Result<(), Failure> {
    Err(unusable(path, "only Unix loads a driver by path"))
}
