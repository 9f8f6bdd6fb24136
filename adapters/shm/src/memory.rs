//! Sealed memory: a memfd that no process can cut short, mapped.
//!
//! Promises upward: the mapping stays whole for as long as the value lives, so that reading it ends no process; the memory was
//! reserved when it was created.
//! Asks from below: memfd, seals (Linux 3.17).

use crate::error::ShmError;
use crate::layout::{HEADER_BYTES, HEADER_WORDS};
use crate::name::BufferName;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// The seals without which memory is not mapped: its size stays as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The header and the bytes, mapped to read and write.
#[derive(Debug)]
pub struct SealedMemory {
    /// The description that every holder has. It carries no lock: one that a dead holder took through it would stay.
    file: Arc<OwnedFd>,
    /// All of `file`, whose seals keep it from shrinking; at least [`HEADER_BYTES`].
    map: MmapRaw,
}

impl SealedMemory {
    /// Makes memory full of zeros; the kernel reserves all of it now, so that no later access lacks memory.
    pub fn create(name: &BufferName, whole_bytes: u64) -> Result<Self, ShmError> {
        has_room(name, whole_bytes)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(format!("terrace-shm/{}", name.as_str()), flags);
        let file = file.map_err(ShmError::system("making memory"))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, whole_bytes)
            .map_err(ShmError::system("reserving memory"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS | SealFlags::SEAL).map_err(ShmError::system("sealing memory"))?;
        Self::map(file)
    }

    /// Maps memory that another process made.
    pub fn open(name: &BufferName, file: OwnedFd) -> Result<Self, ShmError> {
        let foreign = |what| ShmError::Foreign { name: name.text(), what };
        // What is no memfd has no seals.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| foreign("the descriptor it sends is no memfd"))?;
        let size = rustix::fs::fstat(&file).map_err(ShmError::system("sizing memory"))?.st_size;
        match seals.contains(SEALS) {
            false => Err(foreign("its memory is not sealed, so that reading it could end this process")),
            true if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) => {
                Err(foreign("its memory is sealed against writing"))
            }
            true if size <= HEADER_BYTES as i64 => Err(foreign("its memory is too small for a header")),
            true => Self::map(file),
        }
    }

    fn map(file: OwnedFd) -> Result<Self, ShmError> {
        let map = MmapOptions::new().map_raw(file.as_raw_fd());
        let map = map.map_err(|error| ShmError::System { what: "mapping memory", error })?;
        Ok(Self { file: Arc::new(file), map })
    }

    /// The description to pass on.
    pub fn file(&self) -> Arc<OwnedFd> {
        self.file.clone()
    }

    /// Bytes that are mapped, with the header.
    pub fn whole_bytes(&self) -> usize {
        self.map.len()
    }

    /// The words of the header.
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping begins with HEADER_BYTES bytes, aligned to a page, for as long as `self`, and cannot shrink. Each
        // access to them in any process that keeps the format is an atomic one of this size.
        unsafe { slice::from_raw_parts(self.map.as_ptr().cast(), HEADER_WORDS) }
    }

    /// Bytes behind the header.
    ///
    /// # Safety
    /// Caller must hold a lease on the buffer, and `range` must lie within its bytes.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the range lies within the mapping, by the caller's promise.
        let start = unsafe { self.map.as_ptr().add(HEADER_BYTES + range.start) };
        // SAFETY: as above; the lease keeps every holder that keeps the rules from writing meanwhile.
        unsafe { slice::from_raw_parts(start, range.len()) }
    }

    /// Bytes behind the header, to write.
    ///
    /// # Safety
    /// Caller must hold the write lease on the buffer, make no other slice of its bytes while this one lives, and `range` must lie
    /// within its bytes.
    #[expect(clippy::mut_from_ref, reason = "the write lease is the exclusive borrow")]
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: the range lies within the mapping, by the caller's promise.
        let start = unsafe { self.map.as_mut_ptr().add(HEADER_BYTES + range.start) };
        // SAFETY: as above; the write lease keeps every holder that keeps the rules from reading and writing meanwhile.
        unsafe { slice::from_raw_parts_mut(start, range.len()) }
    }
}

impl AsFd for SealedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens the file behind a descriptor again: a description of its own.
pub fn reopen(file: BorrowedFd<'_>) -> Result<OwnedFd, ShmError> {
    use rustix::fs::{Mode, OFlags};
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|error| no_proc(error, "opening memory again through /proc/self/fd"))
}

/// Fails where the machine has less memory left than is asked for.
///
/// Reserving it would have the kernel kill processes. What other processes reserve at the same moment is not seen.
pub fn has_room(name: &BufferName, bytes: u64) -> Result<(), ShmError> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|_| ShmError::NoProc)?;
    let available =
        kibibytes(&text, "MemAvailable:").saturating_add(kibibytes(&text, "SwapFree:")).saturating_mul(1024);
    match bytes <= available {
        true => Ok(()),
        false => Err(ShmError::NoMemory { name: name.text(), bytes, available }),
    }
}

/// A line of `/proc/meminfo`; 0 for one that is not there.
fn kibibytes(text: &str, line: &str) -> u64 {
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.split_ascii_whitespace().next()?.parse().ok());
    found.unwrap_or(0)
}

/// The error of a call that goes through `/proc/self/fd`.
pub fn no_proc(error: Errno, what: &'static str) -> ShmError {
    match error {
        Errno::NOENT | Errno::NOTDIR => ShmError::NoProc,
        error => ShmError::System { what, error: error.into() },
    }
}
