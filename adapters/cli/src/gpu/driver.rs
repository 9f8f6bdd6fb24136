//! The CUDA driver: the system's, or a library that the user names by path.
//!
//! Promises upward: devices use the named library, or there is an error that names it.
//! Asks from below: the dynamic linker. It records a library by the library's own name (soname), `libcuda.so` for a driver: a
//! later search for that name finds the library that is already loaded.

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
    /// Loads the named library, if there is one, for the life of the process.
    pub fn load(&self) -> Result<(), Failure> {
        self.path.as_deref().map_or(Ok(()), load)
    }
}

/// The error for a library that cannot be used.
fn unusable(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::Device(format!("--driver {}", path.display()), format!("{why}; give the path of a CUDA driver's library"))
}

#[cfg(unix)]
fn load(path: &Path) -> Result<(), Failure> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // Make the path absolute: the dynamic linker searches its own folders for a name without a slash.
    let path = std::fs::canonicalize(path).map_err(|error| unusable(path, error))?;
    // SAFETY: loading runs the library's initialisers, and the user named it to be loaded.
    #[allow(unsafe_code, reason = "a library's initialisers may do anything")]
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
    // Never unload the library: devices keep pointers to its functions.
    std::mem::forget(library.map_err(|error| unusable(&path, error))?);
    Ok(())
}

#[cfg(not(unix))]
fn load(path: &Path) -> Result<(), Failure> {
    Err(unusable(path, "only Unix loads a driver by path"))
}
