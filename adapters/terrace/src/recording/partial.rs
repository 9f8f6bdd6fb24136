//! Files that are whole or absent.
//!
//! Promises upward: no half-written file under the name that was asked for, whatever fails.
//! Asks from below: a file system that renames in one step.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Longest name of a file in bytes: 255 on every usual file system.
const NAME_MAX: usize = 255;

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
        // A link is followed: the file behind it is replaced, the link stays.
        let linked = if path.starts_with("/dev") { None } else { fs::canonicalize(path).ok() };
        let path = linked.unwrap_or_else(|| path.into());
        let temporary = match path.file_name() {
            _ if Self::is_special(&path) => None,
            Some(_) if path.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Some(name) => Some(path.with_file_name(Self::temporary_name(&name.to_string_lossy()))),
            None => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let before = fs::metadata(&path).ok().filter(|_| temporary.is_some());
        if before.as_ref().is_some_and(|before| before.permissions().readonly()) {
            // Renaming over it would go through; whoever protected it did not mean that.
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file there is read-only"));
        }
        let file = File::create(temporary.as_deref().unwrap_or(&path))?;
        // From here on the temporary file is removed when something fails.
        let partial = Self { path, temporary };
        if let Some(before) = before {
            file.set_permissions(before.permissions())?;
        }
        Ok((partial, file))
    }

    /// A hidden name of this process, at most `NAME_MAX` bytes like the name itself.
    fn temporary_name(name: &str) -> String {
        let end = format!(".{}.partial", std::process::id());
        let most = NAME_MAX - 1 - end.len();
        let cut = (0..=most.min(name.len())).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        format!(".{}{end}", &name[..cut])
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
        // `/dev/stdout` may lead to a regular file, but a name in `/dev` is not to be replaced.
        fs::metadata(path).is_ok_and(|data| !data.is_dir() && (!data.is_file() || path.starts_with("/dev")))
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
