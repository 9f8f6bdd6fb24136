//! Calls that only Linux has: elsewhere they do nothing, and the result says so.

use super::{Relocation, purge};
use core::ptr::NonNull;

/// Purges whole pages, as [`purge`] does: no mapping ever stands alone here.
///
/// # Safety
/// As for [`purge`].
pub unsafe fn replace(at: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { purge(at, bytes) }
}

/// There is no advice for huge pages that every program may give.
///
/// # Safety
/// None is needed.
pub unsafe fn advise_huge(_: NonNull<u8>, _: usize, _: bool) -> bool {
    false
}

/// Nodes are chosen by the system.
///
/// # Safety
/// None is needed.
pub unsafe fn bind(_: NonNull<u8>, _: usize, _: i32, _: u64) -> bool {
    false
}

/// Pages cannot be moved.
///
/// # Safety
/// None is needed.
pub unsafe fn relocate(_: NonNull<u8>, _: NonNull<u8>, _: usize) -> Relocation {
    Relocation::Refused
}

/// There is no barrier that other threads take part in.
pub fn register_barrier() {}

/// See [`register_barrier`].
pub fn barrier() -> bool {
    false
}
