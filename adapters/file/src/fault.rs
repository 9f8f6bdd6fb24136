//! The error of a call on a file.
//!
//! Promises upward: each error names the call, the file, the offset and the system's code, and has a
//! [`FileFaultReason`], by which alone callers decide, for example whether to retry.

use std::fmt;
use std::io;

/// The kind of a failure: callers must decide by it alone, for example whether to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileFaultReason {
    /// The disk or the user's quota is full.
    Full,
    /// The file would exceed the size limit of the file system or of this process (`ulimit -f`).
    TooLarge,
    /// The device failed, at this offset or altogether.
    Device,
    /// The file ends before the requested range does.
    UnexpectedEnd,
    /// The bytes that were read are not those that were written.
    Corrupt,
    /// The system denies the call: permissions, or a read-only file system.
    Denied,
    /// This system or file system does not implement the call.
    Unsupported,
    /// Another process, or another store of this process, uses the file or directory.
    Busy,
    /// The system is out of descriptors, threads or memory.
    Exhausted,
    /// A file of that name exists.
    Exists,
    /// No file has that name, or the name is now another file's.
    Gone,
    /// The file is not a regular file of this user with a single link.
    ///
    /// It is a symbolic link, has several hard links (as in a copy of a directory by hard links), or belongs to another
    /// user (as on a file system mounted with a fixed owner).
    Untrusted,
    /// The path is not a directory, or is a symbolic link that leads nowhere.
    NotADirectory,
    /// The disk dropped the request without a response.
    Closed,
    /// The call was made in a forked child of the process that opened the file.
    Forked,
    /// Any other failure.
    Other,
}

/// The name that errors give to the call which allocates a file's space.
pub(crate) const RESERVE: &str = "fallocate";

/// A failed call on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// The name of the call.
    pub call: &'static str,
    /// The name of the file.
    pub file: String,
    /// Offset in the file at which the call's range begins, in bytes; 0 if the call has no range.
    pub offset: u64,
    /// The system's error code (`errno`); 0 if there is none.
    pub code: i32,
    /// The kind of the failure.
    pub reason: FileFaultReason,
}

/// The kind of failure that a system error code (`errno`) stands for.
pub(crate) fn reason_of(code: i32) -> FileFaultReason {
    use rustix::io::Errno as E;
    // 0 marks an error of this library, without a system error code; `Errno` cannot represent it.
    if code == 0 {
        return FileFaultReason::Other;
    }
    match E::from_raw_os_error(code) {
        E::NOSPC | E::DQUOT => FileFaultReason::Full,
        E::FBIG => FileFaultReason::TooLarge,
        E::IO | E::NXIO | E::NODEV | E::STALE => FileFaultReason::Device,
        E::ACCESS | E::PERM | E::ROFS => FileFaultReason::Denied,
        E::NOSYS | E::OPNOTSUPP | E::INVAL => FileFaultReason::Unsupported,
        E::BUSY => FileFaultReason::Busy,
        E::AGAIN | E::MFILE | E::NFILE | E::NOMEM => FileFaultReason::Exhausted,
        E::EXIST => FileFaultReason::Exists,
        E::NOENT => FileFaultReason::Gone,
        E::LOOP | E::ISDIR => FileFaultReason::Untrusted,
        E::NOTDIR => FileFaultReason::NotADirectory,
        _ => FileFaultReason::Other,
    }
}

impl FileFault {
    /// The error of a call in a forked child of the process that opened the file.
    pub(crate) fn forked(call: &'static str) -> Self {
        Self { call, file: "what the parent opened".into(), offset: 0, code: 0, reason: FileFaultReason::Forked }
    }

    /// The error of a system call; `code` is its `errno`, or 0.
    pub(crate) fn new(call: &'static str, file: &str, offset: u64, code: i32) -> Self {
        Self { call, file: file.into(), offset, code, reason: reason_of(code) }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, file, offset, code, reason } = self;
        let what = match reason {
            FileFaultReason::Full => "the disk is full, or the quota is: free space, or lower the cap",
            FileFaultReason::TooLarge => {
                "the file would be larger than this file system or the limit of this process allows: raise the limit \
                 (ulimit -f), or lower the cap"
            }
            FileFaultReason::Device => "the device failed; look at the system's log",
            FileFaultReason::UnexpectedEnd => "the file ends there",
            FileFaultReason::Corrupt => "what was read is not what was written",
            FileFaultReason::Denied => "not allowed: look at the rights and at how it is mounted",
            FileFaultReason::Unsupported if *call == RESERVE => {
                "this file system cannot reserve space: use a directory on ext4, xfs, btrfs or tmpfs"
            }
            FileFaultReason::Unsupported => "not supported here",
            FileFaultReason::Busy => {
                "in use by another program, or by another store or manager of this one: close that first, or use another directory"
            }
            FileFaultReason::Exists => "there is one already",
            FileFaultReason::Gone if *call == "create directory" => {
                "nothing can be made there: give a path below a directory that you may write"
            }
            FileFaultReason::Gone => "there is no file of that name, or it is another one now",
            FileFaultReason::Untrusted => {
                "not a regular file of this user with a single link: move a symbolic link, a pipe or a directory away; of a \
                 file with other links, use a copy of the directory without hard links, or remove the other links; for \
                 another user's, run as that user, or chown it"
            }
            FileFaultReason::Exhausted => {
                "the system has no more of that to give: descriptors, threads or memory; raise the limit (ulimit -n, -u)"
            }
            FileFaultReason::NotADirectory => "not a directory: use another path",
            FileFaultReason::Closed => "closed",
            FileFaultReason::Forked => "not usable in a forked child: open a directory of its own in the child",
            FileFaultReason::Other => "failed",
        };
        write!(f, "{call} of {file} at {offset}: {what}")?;
        match code {
            0 => Ok(()),
            code => write!(f, " ({})", io::Error::from_raw_os_error(*code)),
        }
    }
}

impl std::error::Error for FileFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn what_the_system_has_no_more_of_is_not_in_use_by_another_program() {
        for error in [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let fault = FileFault::new("start a thread", "the system", 0, error.raw_os_error());
            assert_eq!(fault.reason, FileFaultReason::Exhausted, "{fault}");
            assert!(fault.to_string().contains("ulimit -n"), "{fault}");
        }
    }

    #[test]
    fn a_file_that_may_not_be_so_large_is_no_full_disk() {
        let fault = FileFault::new(RESERVE, "a file", 0, Errno::FBIG.raw_os_error());
        assert_eq!(fault.reason, FileFaultReason::TooLarge, "{fault}");
        assert!(fault.to_string().contains("ulimit -f"), "{fault}");
    }

    #[test]
    fn each_kind_of_untrusted_file_has_its_advice() {
        let fault =
            FileFault { reason: FileFaultReason::Untrusted, ..FileFault::new("open", "a file", 0, 0) }.to_string();
        for advice in ["move a symbolic link", "without hard links", "chown"] {
            assert!(fault.contains(advice), "{fault}");
        }
    }
}
