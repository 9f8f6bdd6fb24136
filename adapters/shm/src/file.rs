//! The second way: a file in `/dev/shm`, copied in and out and never mapped.
//!
//! Promises upward: a name is always a whole buffer; a file that another process cuts short is an error, never a signal; a file
//! whose holders are all dead is removed by the next that asks for it.
//! Asks from below: `O_TMPFILE`, locks of the description.
//!
//! The lock `Life` decides: each holder has it shared. An opener that gets it exclusively knows that no holder is left, and removes
//! the file while it has the lock. One that gets it shared looks again whether the path still leads to its file.

use crate::error::ShmError;
use crate::layout::{FIXED_WORDS, HEADER_BYTES};
use crate::locks::{LockFile, LockName};
use crate::memory::{has_room, no_proc};
use crate::name::FOLDER;
use crate::socket::NameSearch;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How a file of another process is opened: without `NONBLOCK`, a pipe would wait for its other end.
const OPENING: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// How long an opener sleeps while another one removes the file.
const PAUSE: Duration = Duration::from_millis(1);

/// A file, open to read and write, and its own description's locks.
///
/// Dropping the last holder's removes the file.
#[derive(Debug)]
pub struct ShmFile {
    file: Arc<OwnedFd>,
    /// The path, once this description has `Life` shared.
    path: Option<PathBuf>,
}

impl ShmFile {
    /// Makes a file without a name, full of zeros, with `Life` shared.
    ///
    /// The file system reserves all of it now.
    pub fn create(search: &NameSearch<'_>, whole_bytes: u64) -> Result<Self, ShmError> {
        has_room(search.name, whole_bytes)?;
        let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let file = rustix::fs::open(FOLDER, flags, mode).map_err(ShmError::system("making a file in /dev/shm"))?;
        rustix::fs::fchmod(&file, mode).map_err(ShmError::system("setting a file's mode"))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, whole_bytes)
            .map_err(ShmError::system("reserving memory in /dev/shm"))?;
        let made = Self { file: Arc::new(file), path: Some(search.name.path(search.owner)) };
        made.locks().try_shared(LockName::Life)?;
        Ok(made)
    }

    /// Its locks.
    pub fn locks(&self) -> LockFile {
        LockFile::new(self.file.clone())
    }

    /// Gives the file its name. `Exists` where a living holder has it, `Squatted` where another user has.
    pub fn link(&self, search: &NameSearch<'_>) -> Result<(), ShmError> {
        let (from, to) = (format!("/proc/self/fd/{}", self.file.as_raw_fd()), search.name.path(search.owner));
        loop {
            match rustix::fs::linkat(CWD, &from, CWD, &to, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(no_proc(error, "naming a file in /dev/shm")),
            }
            match Self::open(search) {
                // It was a dead one's, and is gone.
                Err(ShmError::NotFound { .. }) => {}
                Ok(_) => return Err(ShmError::Exists { name: search.name.text() }),
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the file of living holders, with `Life` shared.
    ///
    /// `NotFound` where there are none; then the file is removed too.
    pub fn open(search: &NameSearch<'_>) -> Result<Self, ShmError> {
        let (path, deadline) = (search.name.path(search.owner), Instant::now() + search.patience);
        loop {
            let mut file = Self { file: Arc::new(open_checked(search, &path)?), path: None };
            let locks = file.locks();
            if locks.try_exclusive(LockName::Life)? {
                file.is_ours(search)?;
                file.remove(&path).map_err(ShmError::system("removing the file of dead holders"))?;
                return Err(search.not_found());
            }
            if locks.try_shared(LockName::Life)? && is_same(&path, file.as_fd()) {
                file.path = Some(path);
                return Ok(file);
            }
            if Instant::now() > deadline {
                return Err(search.silent());
            }
            sleep(PAUSE);
        }
    }

    /// Removes the file, unless the name is another file's by now. Caller must hold `Life` exclusively.
    fn remove(&self, path: &Path) -> Result<(), Errno> {
        if is_same(path, self.as_fd()) { rustix::fs::unlink(path) } else { Ok(()) }
    }

    /// Whether a file without holders may be removed: it begins as ours do, or is what a cut left of one.
    fn is_ours(&self, search: &NameSearch<'_>) -> Result<(), ShmError> {
        let mut magic = [0; 8];
        let read = rustix::io::pread(self.as_fd(), &mut magic[..], 0).map_err(ShmError::system("reading a file"))?;
        match magic[..read] == b"TERRASHM"[..read] {
            true => Ok(()),
            false => Err(search.foreign("a file of another program")),
        }
    }

    /// Reads bytes from a position, all of them; `CutShort` tells bytes that the file has.
    pub fn read(&self, mut bytes: &mut [u8], mut position: u64) -> Result<(), Cut> {
        while !bytes.is_empty() {
            match rustix::io::pread(self.as_fd(), &mut *bytes, position) {
                Ok(0) => return Err(Cut::Short(self.length())),
                Ok(read) => {
                    bytes = &mut bytes[read..];
                    position += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Cut::System(error)),
            }
        }
        Ok(())
    }

    /// Writes bytes at a position, all of them.
    pub fn write(&self, mut bytes: &[u8], mut position: u64) -> Result<(), Cut> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(self.as_fd(), bytes, position) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    position += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Cut::System(error)),
            }
        }
        Ok(())
    }

    /// The words of the header that never change.
    pub fn fixed_words(&self) -> Result<[u32; FIXED_WORDS], Cut> {
        let mut words = [0; FIXED_WORDS];
        self.read(bytemuck::bytes_of_mut(&mut words), 0)?;
        Ok(words.map(u32::from_le))
    }

    /// Bytes that the file has now.
    pub fn length(&self) -> u64 {
        rustix::fs::fstat(self.as_fd()).map_or(0, |stat| stat.st_size as u64)
    }
}

impl Drop for ShmFile {
    fn drop(&mut self) {
        let Some(path) = self.path.take() else { return };
        // Released before the question whether others have it: of two that end at once, the second then finds none.
        let locks = self.locks();
        locks.unlock(LockName::Life);
        if locks.try_exclusive(LockName::Life).unwrap_or(false) {
            // What stays is removed by the next that asks for the name, or told there.
            _ = self.remove(&path);
        }
    }
}

impl AsFd for ShmFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Why bytes could not be read or written.
#[derive(Debug)]
pub enum Cut {
    /// The file ends before them, at this length in bytes.
    Short(u64),
    /// The system refused.
    System(Errno),
}

/// Opens a file at the name if it is a regular one of a trusted user that no other user can write.
fn open_checked(search: &NameSearch<'_>, path: &Path) -> Result<OwnedFd, ShmError> {
    let opened = rustix::fs::open(path, OPENING, Mode::empty());
    let stat = match &opened {
        Ok(file) => rustix::fs::fstat(file),
        Err(Errno::NOENT) => return Err(search.not_found()),
        Err(_) => rustix::fs::lstat(path),
    };
    let stat = stat.map_err(|error| match error {
        Errno::NOENT => search.not_found(),
        error => ShmError::system("looking at a file in /dev/shm")(error),
    })?;
    is_trusted(search, &stat)?;
    opened.map_err(ShmError::system("opening a file in /dev/shm"))
}

fn is_trusted(search: &NameSearch<'_>, stat: &Stat) -> Result<(), ShmError> {
    if stat.st_uid != search.owner && !search.users.contains(&stat.st_uid) {
        return Err(ShmError::Squatted { name: search.name.text(), uid: stat.st_uid, pid: 0 });
    }
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(search.foreign("no regular file"));
    }
    match stat.st_mode & 0o077 {
        0 => Ok(()),
        _ => Err(search.foreign("a file that other users can open")),
    }
}

/// Whether a path leads to an open file.
fn is_same(path: &Path, file: BorrowedFd<'_>) -> bool {
    let (Ok(at_path), Ok(open)) = (rustix::fs::lstat(path), rustix::fs::fstat(file)) else { return false };
    (at_path.st_dev, at_path.st_ino) == (open.st_dev, open.st_ino)
}

/// Whether any process holds a file; `None` where this user cannot open it.
pub fn is_held(path: &Path) -> Option<bool> {
    let file = rustix::fs::open(path, OPENING, Mode::empty()).ok()?;
    LockFile::new(Arc::new(file)).is_held_elsewhere(LockName::Life).ok()
}

/// Where the bytes begin in the file.
pub fn position(start: usize) -> u64 {
    (HEADER_BYTES + start) as u64
}
