//! What goes wrong when processes share memory.
//!
//! Promises upward: each error says which buffer was asked for, what stood in the way, and what to do.
//! Asks from below: nothing.

use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// Why a shared buffer cannot be created, opened or leased.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// The name breaks the rule for names.
    #[error(
        "{name:?} names no shared buffer: a name has 1 to 80 bytes of A-Z a-z 0-9 . _ - and does not begin with a dot"
    )]
    Name {
        /// The name, cut after 100 characters.
        name: String,
    },
    /// No process holds a buffer of this name.
    #[error(
        "{name}: no process of user {uid} holds a shared buffer of this name; create it, or start its creator first"
    )]
    NotFound {
        /// The buffer's name.
        name: String,
        /// The user whose names were searched.
        uid: u32,
    },
    /// A buffer of this name exists.
    #[error("{name}: a shared buffer of this name exists; open it, or choose another name")]
    Exists {
        /// The buffer's name.
        name: String,
    },
    /// A process of another user holds the name.
    #[error("{name}: user {uid} holds this name{}, and is not allowed; choose another name, or allow that user", process(*pid))]
    Squatted {
        /// The buffer's name.
        name: String,
        /// The user that holds it.
        uid: u32,
        /// The process that took the name; 0 where the system does not tell.
        pid: u32,
    },
    /// The buffer's holders do not allow this process's user.
    #[error("{name}: its creator does not allow user {uid}; add `allow_user({uid})` where it is created")]
    Refused {
        /// The buffer's name.
        name: String,
        /// The user of this process.
        uid: u32,
    },
    /// What has the name is no shared buffer.
    #[error("{name}: what holds this name is no shared buffer: {what}; choose another name")]
    Foreign {
        /// The buffer's name.
        name: String,
        /// What was found.
        what: &'static str,
    },
    /// No holder answered in time.
    #[error("{name}: its holders did not answer within {waited:?}; they may be stopped, or the program is another one")]
    Silent {
        /// The buffer's name.
        name: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The buffer's header holds what no holder writes.
    #[error("{name}: the header is damaged ({what}); drop the buffer in all processes, and create it again")]
    Damaged {
        /// The buffer's name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The buffer has another size than the caller expects.
    #[error("{name}: {asked} bytes were expected, the buffer has {found}; use the size its creator chose")]
    OtherSize {
        /// The buffer's name.
        name: String,
        /// Bytes that the caller expects.
        asked: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// The buffer was created for elements of another type.
    #[error("{name}: elements of {asked} were expected, the buffer was created for {found}; use the same type and tag")]
    OtherType {
        /// The buffer's name.
        name: String,
        /// Size, alignment and tag that the caller expects.
        asked: String,
        /// Those that it has.
        found: String,
    },
    /// The size is 0, or more than the address space has.
    #[error("{name}: a shared buffer cannot have {bytes} bytes; ask for 1 to {}", i64::MAX / 2)]
    Size {
        /// The buffer's name.
        name: String,
        /// Bytes asked for.
        bytes: u64,
    },
    /// The machine has less memory left.
    #[error(
        "{name}: {bytes} bytes were asked for, the machine has {available} left; ask for less, or end other programs"
    )]
    NoMemory {
        /// The buffer's name.
        name: String,
        /// Bytes asked for, with the header.
        bytes: u64,
        /// Bytes of memory and swap that are left.
        available: u64,
    },
    /// A range or an offset lies beyond the end.
    #[error("bytes {start}..{end} lie outside 0..{bytes}; shorten the range")]
    OutOfRange {
        /// First byte asked for.
        start: u64,
        /// End of what was asked for.
        end: u64,
        /// Bytes there are.
        bytes: u64,
    },
    /// A range does not hold whole, aligned elements of the type.
    #[error(
        "bytes {start}..{end} are no whole elements of {size} bytes aligned to {align}; align the range (at most 4096)"
    )]
    Misaligned {
        /// First byte asked for.
        start: u64,
        /// End of what was asked for.
        end: u64,
        /// Bytes of an element.
        size: usize,
        /// Its alignment in bytes.
        align: usize,
    },
    /// A process died, or panicked, inside a write lease.
    #[error(
        "{name}: process {pid} ended inside a write lease, so that the bytes may be half new; rewrite them under \
             `write_after_crash`, or accept them with `recover`"
    )]
    Torn {
        /// The buffer's name.
        name: String,
        /// The process.
        pid: u32,
    },
    /// Other lessees did not release the buffer in time.
    #[error("{name}: leased by others for {waited:?}; try again, or wait longer")]
    Busy {
        /// The buffer's name.
        name: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// Another process cut the file short.
    #[error("{name}: another process cut its file to {found} bytes, of {bytes}; remove it, and create it again")]
    CutShort {
        /// The buffer's name.
        name: String,
        /// Bytes that the file must have, with its header.
        bytes: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// The table of holders is full.
    #[error("{name}: {slots} holders have it open, and there is no room for more; drop one")]
    Full {
        /// The buffer's name.
        name: String,
        /// Holders that a buffer has at most.
        slots: usize,
    },
    /// The buffer belongs to the parent of this forked process.
    #[error("{name}: opened before this process was forked; open it again here")]
    Forked {
        /// The buffer's name.
        name: String,
    },
    /// `/proc` is not mounted.
    #[error("/proc/self/fd is missing: a shared buffer needs /proc; mount it")]
    NoProc,
    /// More users are allowed than the way can carry.
    #[error("{name}: {users} users are allowed, this way carries {most}; use `Way::Memfd`, and fewer users")]
    Users {
        /// The buffer's name.
        name: String,
        /// Users that were allowed.
        users: usize,
        /// The most there can be.
        most: usize,
    },
    /// A call of the system failed.
    #[error("{what}: {error}")]
    System {
        /// What the call was for.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl ShmError {
    /// The error of a system's call.
    pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::System { what, error: error.into() }
    }
}

fn process(pid: u32) -> String {
    if pid == 0 { String::new() } else { format!(" (process {pid})") }
}
