//! Files that are whole or absent.
//!
//! Promises upward: no half-written file under the name that was asked for, whatever fails.
//! Asks from below: a file system that renames in one step.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file that appears under its name only when it is whole: written beside it, then renamed; removed when dropped.
/// What is no regular file (a pipe, `/dev/null`) is written directly.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl Partial {
    /// Plans a file at `path` and creates the one to write into.
    ///
    /// # Errors
    /// The system's, when the place cannot be written.
    pub fn create(path: &Path) -> io::Result<(Self, File)> {
        let temporary = match path.file_name() {
            _ if Self::is_special(path) => None,
            Some(_) if path.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Some(name) => {
                let name = format!(".{}.{}.partial", name.to_string_lossy(), std::process::id());
                Some(path.with_file_name(name))
            }
            None => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let file = File::create(temporary.as_deref().unwrap_or(path))?;
        Ok((Self { path: path.into(), temporary }, file))
    }

    /// Finds out whether a file at `path` could be created; leaves nothing behind.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn probe(path: &Path) -> io::Result<()> {
        // Opening and closing a pipe would tell its reader that everything has come.
        if Self::is_special(path) { Ok(()) } else { Self::create(path).map(|_| ()) }
    }

    fn is_special(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir())
    }

    /// Gives the file its name, replacing what had it.
    ///
    /// # Errors
    /// The system's; nothing is left behind then.
    pub fn keep(mut self) -> io::Result<()> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing can be done about a file that does not go away, and nothing depends on it.
            let _ = fs::remove_file(temporary);
        }
    }
}
