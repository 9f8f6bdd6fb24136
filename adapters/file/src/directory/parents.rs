//! Creates the directory of a store together with its parents.
//!
//! Promises upward: the name of each directory that was created or found is durable; a sync that fails is an error.
//! Asks from below: `fsync` of a directory.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::io::{ErrorKind, Result};
use std::path::Path;

/// Creates a directory and its missing parents, and syncs the parent of each, even if another program has just created
/// the directory.
pub(super) fn create(path: &Path, sync: &dyn Fn(&Path) -> rustix::io::Result<()>) -> Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Return the error if this user may not search the path: looking at its parents would tell nothing more.
    if !path.try_exists()? || !path.is_dir() {
        // `.` ends the recursion: it counts as its own parent, and cannot be created.
        if above != path {
            create(above, sync)?;
        }
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            outcome => outcome,
        }?;
    }
    // seeded: parent_sync: sync(above) => Ok(())
    match sync(above) {
        // No error if this user may not open the parent, or the parent's file system is read-only or cannot sync
        // directories.
        Err(Errno::ACCESS | Errno::INVAL | Errno::ROFS) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Syncs a directory, which makes the names of the files in it durable.
pub(super) fn sync(path: &Path) -> rustix::io::Result<()> {
    let directory = open(path)?;
    // unseeded: parent_fsync: what it does is seen after a power cut only
    retry_on_intr(|| rustix::fs::fsync(&directory))
}

/// Opens a directory.
pub(super) fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CLOEXEC | OFlags::RDONLY | OFlags::DIRECTORY;
    retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_name_of_each_directory_is_synced_after_it_was_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let (root, synced) = (directory.path(), RefCell::new(Vec::new()));
        let sync = |above: &Path| {
            let names = std::fs::read_dir(above).expect("it is there").count();
            synced.borrow_mut().push((above.to_path_buf(), names));
            super::sync(above)
        };
        create(&root.join("a/b"), &sync).expect("made");
        let all = synced.take();
        assert_eq!(all[1..], [(root.to_path_buf(), 1), (root.join("a"), 1)]);
        create(&root.join("a/b"), &sync).expect("it is there");
        assert_eq!(synced.take(), [(root.join("a"), 1)], "another program may have made it");
    }

    #[test]
    fn a_name_that_cannot_be_synced_is_told_unless_it_is_not_for_this_user_to_sync() {
        let directory = tempfile::tempdir().expect("a directory");
        for (code, told) in [
            (Errno::ACCESS, false),
            (Errno::INVAL, false),
            (Errno::ROFS, false),
            (Errno::IO, true),
            (Errno::NOSPC, true),
        ] {
            let path = directory.path().join(code.raw_os_error().to_string());
            for what in ["made", "found"] {
                let refused = create(&path, &|above| if above == directory.path() { Err(code) } else { Ok(()) });
                assert!(path.is_dir());
                assert_eq!(refused.is_err(), told, "{what}, {code:?}: {refused:?}");
            }
        }
    }
}
