//! One manager for the whole process, for programs whose parts share it without handing it on.
//!
//! Promises upward: all callers get the same manager, which the first one makes; a failure makes none, and the next caller tries
//! again.
//! Asks from below: a configuration, which [`Builder::load`](crate::config::Builder::load) fills; the manager's builder.

use crate::config::{Builder, Config, ConfigError};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_tiers::{Error, Manager, ManagerBuilder};

static MANAGER: Mutex<Option<Manager>> = Mutex::new(None);

/// Why there is no manager for the process.
#[derive(Debug)]
pub enum ProcessManagerError {
    /// The configuration cannot be taken.
    Config(ConfigError),
    /// The manager cannot be built.
    Manager(Error),
}

impl fmt::Display for ProcessManagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "the process's manager: {error}"),
            Self::Manager(error) => write!(f, "the process's manager: {error}"),
        }
    }
}

impl std::error::Error for ProcessManagerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Manager(error) => Some(error),
        }
    }
}

fn manager_of_process() -> MutexGuard<'static, Option<Manager>> {
    MANAGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's manager, which the first call builds of the configuration that it loads.
///
/// The configuration is that of the file that `TERRACE_CONFIG` names and of the other variables, see [`config`](crate::config);
/// without either, half of the memory that is available and no files. Callers that come meanwhile wait.
///
/// It ends with [`end_manager`]. A process that exits does not end it: named buffers then have what was made durable, as after a
/// kill. In a forked child its calls fail with [`Error::Forked`].
///
/// # Errors
/// The configuration cannot be taken, or the manager not be built, for example because another process has its directory; the next
/// call tries again.
///
/// # Example
/// ```
/// let buffer = terrace::process::manager()?.allocate(4096)?;
/// buffer.write(0, b"anywhere in the program")?;
/// assert_eq!(terrace::process::manager()?.list().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn manager() -> Result<Manager, ProcessManagerError> {
    let mut made = manager_of_process();
    if let Some(manager) = &*made {
        return Ok(manager.clone());
    }
    let config = Config::builder().load().and_then(Builder::build).map_err(ProcessManagerError::Config)?;
    let manager = ManagerBuilder::from(&config).build().map_err(ProcessManagerError::Manager)?;
    *made = Some(manager.clone());
    Ok(manager)
}

/// Makes a manager the process's, in place of one that [`manager`] would build.
///
/// # Errors
/// There is one already: the manager comes back.
pub fn set_manager(manager: Manager) -> Result<(), Manager> {
    let mut made = manager_of_process();
    match &*made {
        Some(_) => Err(manager),
        None => {
            *made = Some(manager);
            Ok(())
        }
    }
}

/// Ends the process's manager; returns whether there was one.
///
/// Its threads and its directories are free again when the last handle and the last buffer are dropped; a later call of
/// [`manager`] builds another.
pub fn end_manager() -> bool {
    // Dropped after the lock is released: the end waits for what is under way.
    let ended = manager_of_process().take();
    ended.is_some()
}
