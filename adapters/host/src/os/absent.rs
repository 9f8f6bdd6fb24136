//! Stand-ins for calls that only Linux has: they do nothing and return a result that says so.

use super::{Relocation, SharedMemory, purge};
use core::ptr::NonNull;

/// Purges whole pages, as [`purge`] does: without [`relocate`] no mapping needs to be merged again.
///
/// # Safety
/// As for [`purge`].
pub unsafe fn replace(at: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { purge(at, bytes) }
}

/// Returns `false`: this system takes no advice on huge pages from every program.
///
/// # Safety
/// Always safe.
pub unsafe fn advise_huge(_: NonNull<u8>, _: usize, _: bool) -> bool {
    false
}

/// Returns `false`: the system chooses NUMA nodes by itself.
///
/// # Safety
/// Always safe.
pub unsafe fn bind(_: NonNull<u8>, _: usize, _: i32, _: u64) -> bool {
    false
}

/// Refuses: this system cannot move pages.
///
/// # Safety
/// Always safe.
pub unsafe fn relocate(_: NonNull<u8>, _: NonNull<u8>, _: usize) -> Relocation {
    Relocation::Refused
}

/// Does nothing: this system has no call that makes other threads pass a barrier.
pub fn register_barrier() {}

/// Returns `false`: see [`register_barrier`].
pub fn barrier() -> bool {
    false
}

/// Maps nothing: this system has no memory that is sealed.
pub fn map_shared(_: i32, _: usize) -> SharedMemory {
    SharedMemory::Closed
}

/// Returns 0: no row of live counters is owned by it.
pub fn process() -> u32 {
    0
}

/// Leaves the name as it is.
pub fn program_name(_: &mut [u8]) {}

/// Returns `None`: this system does not list its mappings in a file.
#[cfg(feature = "track")]
pub fn mapping_of(_: usize) -> Option<core::ops::Range<usize>> {
    None
}
