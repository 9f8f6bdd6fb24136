//! macOS: mappings, waiting, the clock. NUMA policies, advice on huge pages and moving pages are missing (see
//! `absent`).

use super::unix::READ_WRITE;
use super::{errno, set_errno};
use core::ptr::NonNull;
use terrace_core::sync::{AtomicU32, Ordering::Relaxed};

/// Maps `bytes` zeros at `address`, or fails.
///
/// macOS takes the address as a hint; if it maps elsewhere, this unmaps the mapping and fails.
pub fn map_at(address: usize, bytes: usize) -> Option<NonNull<u8>> {
    let mapped = super::unix::map_with(address, bytes, 0, READ_WRITE)?;
    if mapped.addr().get() == address {
        return Some(mapped);
    }
    // SAFETY: mapped just above, and used by nothing.
    unsafe { super::unmap(mapped, bytes) };
    None
}

/// Purges whole pages: they read as zeros from now on.
///
/// Maps fresh pages over them, since macOS's `madvise` keeps their contents.
///
/// # Safety
/// `map` or `map_at` must have mapped the pages, and their contents must not be needed any more.
pub unsafe fn purge(at: NonNull<u8>, bytes: usize) -> bool {
    let errno = errno();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED;
    // SAFETY: the caller's promise: whole pages of ours.
    let mapped = unsafe { libc::mmap(at.as_ptr().cast(), bytes, READ_WRITE, flags, -1, 0) };
    set_errno(errno);
    mapped != libc::MAP_FAILED
}

/// Sleeps up to `milliseconds`, at most 50; 0 only yields. Returns at once if `word` is not `seen`.
///
/// macOS has no public call to wait on a word, so callers poll.
pub fn wait(word: &AtomicU32, seen: u32, milliseconds: u32) {
    if word.load(Relaxed) != seen {
        return;
    }
    if milliseconds == 0 {
        super::yield_now();
        return;
    }
    let time = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(milliseconds.min(50)) * 1_000_000 };
    // SAFETY: `time` is a local variable, which lives through the call.
    unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) };
}

/// Does nothing: waiting threads poll the word.
pub fn wake(_: &AtomicU32, _: i32) {}

/// Milliseconds since a fixed moment before the process began.
pub fn milliseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is local and writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Bits that differ from process to process.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the bytes are local and writable.
    unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), bytes.len()) };
    u64::from_ne_bytes(bytes)
}

/// Whether this process has rights that its user lacks (setuid).
pub fn is_secure() -> bool {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    let real = unsafe { libc::getuid() };
    // SAFETY: the call has no precondition; it only reads a value of the system.
    real != unsafe { libc::geteuid() }
}

/// The address of the running thread's `errno`.
pub(super) fn errno_place() -> *mut i32 {
    // SAFETY: the call has no precondition.
    unsafe { libc::__error() }
}

/// Returns `usize::MAX`: macOS has no control groups.
pub fn memory_limit() -> usize {
    usize::MAX
}
