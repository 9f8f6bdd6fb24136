//! Which names there are.
//!
//! Promises upward: names of all users, in both ways, sorted, also those that other programs made look like ours.
//! Asks from below: `/proc/net/unix`, `/dev/shm`.

use crate::error::ShmError;
use crate::file::is_held;
use crate::layout::Way;
use crate::memory::no_proc;
use crate::name::{BufferName, FILE_PREFIX, FOLDER, SOCKET_PREFIX};
use std::fs;
use std::io::{self, ErrorKind};

/// The flag of a socket that listens, as `/proc/net/unix` shows it.
const LISTENS: &str = "00010000";

/// The type of a stream socket there: sockets of other types have names of their own.
const STREAM: &str = "0001";

/// A name that the system shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SharedName {
    /// The buffer's name.
    pub name: String,
    /// The user whose name it is.
    pub uid: u32,
    /// How it has the name.
    pub way: Way,
    /// Whether a process holds it: true for sockets; for a file of another user, `None`.
    pub alive: Option<bool>,
}

/// Lists the names of all shared buffers: of all users, in both ways. Reads two lists of the system.
///
/// # Errors
/// [`NoProc`](ShmError::NoProc); [`System`](ShmError::System) where `/dev/shm` cannot be read.
///
/// # Example
/// ```
/// use terrace_shm::{SharedBuffer, list};
/// let name = format!("listed-{}", std::process::id());
/// let buffer = SharedBuffer::create(&name, 1)?;
/// assert!(list()?.iter().any(|found| found.name == name && found.alive == Some(true)));
/// # Ok::<(), terrace_shm::ShmError>(())
/// ```
pub fn list() -> Result<Vec<SharedName>, ShmError> {
    let sockets = fs::read("/proc/net/unix").map_err(|error| {
        let error = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        no_proc(error, "reading /proc/net/unix")
    })?;
    let mut names = sockets_in(&String::from_utf8_lossy(&sockets));
    names.extend(files().map_err(|error| ShmError::System { what: "reading /dev/shm", error })?);
    names.sort();
    names.dedup();
    Ok(names)
}

/// The listening sockets of a text in the form of `/proc/net/unix`.
fn sockets_in(text: &str) -> Vec<SharedName> {
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let name = fields.get(7)?.strip_prefix('@')?.strip_prefix(SOCKET_PREFIX)?;
        (fields[3..5] == [LISTENS, STREAM]).then(|| BufferName::split(name, '/'))?
    };
    let named =
        |(uid, name): (u32, BufferName)| SharedName { name: name.text(), uid, way: Way::Memfd, alive: Some(true) };
    text.lines().filter_map(listening).map(named).collect()
}

fn files() -> io::Result<Vec<SharedName>> {
    let entries = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        told => told?,
    };
    let named = |entry: io::Result<fs::DirEntry>| {
        let file = entry.ok()?.file_name();
        let (uid, name) = BufferName::split(file.to_str()?.strip_prefix(FILE_PREFIX)?, '.')?;
        let alive = is_held(&name.path(uid));
        Some(SharedName { name: name.text(), uid, way: Way::File, alive })
    };
    Ok(entries.filter_map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_with_our_prefix_are_names() {
        let text = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1 @terrace-shm/7/a\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 2 @terrace-shm/7/b\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 3 @terrace-shm/x/c\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 4 @terrace-shm/7/../d\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 5 @terrace-shm/7/e\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 6\n";
        let names: Vec<_> = sockets_in(text).into_iter().map(|found| (found.name, found.uid)).collect();
        assert_eq!(names, [("a".to_string(), 7)]);
    }
}
