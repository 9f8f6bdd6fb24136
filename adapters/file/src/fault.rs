//! What a file says when it refuses.
//!
//! Promises upward: every failure names the call, the file, the place and the system's reason, and says what kind it is:
//! whether anything can be done decides by that.

use std::fmt;
use std::io;

/// What kind of failure a reason is: all that is decided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileFaultReason {
    /// The disk, or the user's share of it, is full.
    Full,
    /// The file would be larger than the file system, or this process, may have one (`ulimit -f`).
    TooLarge,
    /// The device could not do it: the place is bad, or the device is.
    Device,
    /// The file ends there.
    UnexpectedEnd,
    /// What was read is not what was written.
    Corrupt,
    /// Not for this user, or not on this file system.
    Denied,
    /// This system cannot do that at all.
    Unsupported,
    /// Somebody else has it.
    Busy,
    /// The system has no more descriptors, threads or memory to give.
    Exhausted,
    /// There is one already.
    Exists,
    /// There is none of that name, or the name is another file's now.
    Gone,
    /// A link, no regular file, a file with other links (as a copy of a directory by hard links leaves them), or another user's
    /// (as a file system shows them that is mounted for one user).
    Untrusted,
    /// It is no directory, or a link that leads nowhere.
    NotADirectory,
    /// It is closed.
    Closed,
    /// This is a forked child of the process that opened it.
    Forked,
    /// Anything else.
    Other,
}

/// What errors call the reservation of a file's space.
pub(crate) const RESERVE: &str = "fallocate";

/// A refused call on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// What was called.
    pub call: &'static str,
    /// Which file, as errors name it.
    pub file: String,
    /// The first byte, where there is one.
    pub offset: u64,
    /// The system's number; 0 when it has none.
    pub code: i32,
    /// What kind it is.
    pub reason: FileFaultReason,
}

/// What kind a number of the system's is.
pub(crate) fn reason_of(code: i32) -> FileFaultReason {
    use rustix::io::Errno as E;
    // Errors of the library's own have none; `Errno` has no place for 0.
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
    /// A refusal in a child of the process that opened it.
    pub(crate) fn forked(call: &'static str) -> Self {
        Self { call, file: "what the parent opened".into(), offset: 0, code: 0, reason: FileFaultReason::Forked }
    }

    /// A refusal with the system's number.
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
            FileFaultReason::Busy => "in use by another program",
            FileFaultReason::Exists => "there is one already",
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
