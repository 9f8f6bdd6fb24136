//! Writes files that appear whole or not at all.
//!
//! Promises upward: there is never a half-written file under the requested name, whatever fails; after
//! [`Partial::keep`] the file survives a power cut; no other existing file is written.
//! Asks from below: a file system that renames in one step.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// Longest name of a file in bytes: 255 on every usual file system.
const NAME_MAX: usize = 255;

/// Suffix of a temporary file's name, and the number of random letters before the suffix.
const END: &str = ".partial";
const RANDOM: usize = 12;

/// A file that appears under its name only when it is whole: written beside it, then renamed.
///
/// If this is dropped before [`Partial::keep`], the temporary file is removed. A path that is no regular file (a pipe,
/// `/dev/null`) is written directly.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    /// The temporary file, and its path, whose drop removes the file.
    temporary: Option<(File, TempPath)>,
}

impl Partial {
    /// Creates the temporary file for a file at `path`.
    ///
    /// # Errors
    /// The system's error, if the file cannot be created there.
    pub fn create(path: &Path) -> io::Result<(Self, File)> {
        // A link is followed: the file behind it is replaced, the link stays.
        let linked = if Self::names_device(path) { None } else { fs::canonicalize(path).ok() };
        // Absolute: the program may go to another directory before the file is kept.
        let path = linked.map_or_else(|| std::path::absolute(path), Ok)?;
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
        // From here on dropping `partial` removes the temporary file if something fails.
        let partial = Self { path, temporary: Some((file.try_clone()?, temporary)) };
        if let Some(before) = before {
            file.set_permissions(before.permissions())?;
        }
        Ok((partial, file))
    }

    /// Creates a file in the same directory, hidden and with an unpredictable name.
    fn beside(path: &Path, name: &str) -> io::Result<(File, TempPath)> {
        let most = NAME_MAX - 2 - RANDOM - END.len();
        let cut = (0..=most.min(name.len())).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        let prefix = format!(".{}.", &name[..cut]);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(END).rand_bytes(RANDOM);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The mode of any new file, from which the system takes the user's umask.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        Ok(builder.tempfile_in(directory(path))?.into_parts())
    }

    /// Checks whether a file at `path` could be created; leaves nothing behind.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn probe(path: &Path) -> io::Result<()> {
        // Opening and closing a pipe would signal the end of the data to its reader.
        if Self::is_special(path) { Ok(()) } else { Self::create(path).map(|_| ()) }
    }

    fn names_device(path: &Path) -> bool {
        path.starts_with("/dev") && !path.starts_with("/dev/shm")
    }

    fn is_special(path: &Path) -> bool {
        // `/dev/stdout` may lead to a regular file, but a name in `/dev` must not be replaced; those in `/dev/shm` are files.
        fs::metadata(path).is_ok_and(|data| !data.is_dir() && (!data.is_file() || Self::names_device(path)))
    }

    /// Renames the temporary file to its final name, replacing an existing file.
    ///
    /// # Errors
    /// The system's error; the temporary file is then removed.
    pub fn keep(self) -> io::Result<()> {
        let Some((file, temporary)) = self.temporary else { return Ok(()) };
        file.sync_all()?;
        temporary.persist(&self.path)?;
        // Syncs the directory, which makes the name durable. Systems other than Unix cannot open directories.
        match cfg!(unix).then(|| File::open(directory(&self.path))) {
            // It may be written but not read: the file is there, and its name as durable as can be.
            Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Some(opened) => opened?.sync_all(),
            None => Ok(()),
        }
    }
}

/// The directory that a file is in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
