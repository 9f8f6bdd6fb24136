//! Files that are whole or absent.
//!
//! Promises upward: no half-written file under the name that was asked for, whatever fails; a name that was kept
//! survives a power cut; no file that was there before is written, but the one that was asked for.
//! Asks from below: a file system that renames in one step.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// Longest name of a file in bytes: 255 on every usual file system.
const NAME_MAX: usize = 255;

/// The end of a temporary name, and the random letters in front of it.
const END: &str = ".partial";
const RANDOM: usize = 12;

/// A file that appears under its name only when it is whole: written beside it, then renamed.
///
/// Removed when dropped. What is no regular file (a pipe, `/dev/null`) is written directly.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    /// The file that is written, whose name is removed when it is dropped.
    temporary: Option<(File, TempPath)>,
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
        let name = match path.file_name() {
            _ if Self::is_special(&path) => None,
            Some(_) if path.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Some(name) => Some(name.to_string_lossy().into_owned()),
            None => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let Some(name) = name else {
            let file = File::create(&path)?;
            return Ok((Self { path, temporary: None }, file));
        };
        let before = fs::metadata(&path).ok();
        if before.as_ref().is_some_and(|before| before.permissions().readonly()) {
            // Renaming over a read-only file would succeed, against the wish of the user that protected it.
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file there is read-only"));
        }
        let (file, temporary) = Self::beside(&path, &name)?;
        // From here on the temporary file is removed when something fails.
        let partial = Self { path, temporary: Some((file.try_clone()?, temporary)) };
        if let Some(before) = before {
            file.set_permissions(before.permissions())?;
        }
        Ok((partial, file))
    }

    /// A new file in the same directory: hidden, and of a name that cannot be foreseen.
    fn beside(path: &Path, name: &str) -> io::Result<(File, TempPath)> {
        let most = NAME_MAX - 2 - RANDOM - END.len();
        let cut = (0..=most.min(name.len())).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        let prefix = format!(".{}.", &name[..cut]);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(END).rand_bytes(RANDOM);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any other file: less what the user's mask takes away.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        Ok(builder.tempfile_in(directory(path))?.into_parts())
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
    pub fn keep(self) -> io::Result<()> {
        let Some((file, temporary)) = self.temporary else { return Ok(()) };
        file.sync_all()?;
        temporary.persist(&self.path)?;
        // Only files can be opened elsewhere.
        if cfg!(unix) { File::open(directory(&self.path))?.sync_all() } else { Ok(()) }
    }
}

/// The directory that a file is in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
