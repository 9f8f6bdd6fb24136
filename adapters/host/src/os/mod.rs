//! What the allocator needs of an operating system: one small file for each, the same functions in all.
//!
//! Promises upward, for every system:
//! - [`map`], [`map_at`], [`reserve`], [`commit`], [`unmap`], [`purge`], [`replace`], [`relocate`],
//!   [`advise_huge`], [`bind`]: address space and the memory under it
//! - [`wait`], [`wake`]: a thread sleeps until a word changes; [`register_barrier`], [`barrier`]: one for all threads
//! - [`milliseconds`]: a clock that costs a few nanoseconds and never goes back
//! - [`errno`], [`set_errno`]; [`write_stderr`], [`abort`]: a line on standard error without an allocation; the end
//! - [`physical_bytes`], [`address_limit`], [`memory_limit`], [`page_bytes`], [`random`]: what this machine and process are
//! - [`variable`], [`each_variable`]: the environment, without an allocation
//! - [`spawn`], [`at_fork`], [`Key`]: threads; [`handler_stack`]: where signal handlers run
//!
//! Asks from below: `libc`. Nothing here allocates, panics, or touches a thread-local variable with a destructor.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use linux::*;

#[cfg(target_vendor = "apple")]
mod apple;
#[cfg(target_vendor = "apple")]
pub use apple::*;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod absent;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub use absent::*;

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub use unix::*;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub use windows::*;

/// The result of moving memory from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux moves anything"))]
pub enum Relocation {
    /// The memory was moved.
    Moved {
        /// Whether there are zeros at the old place: another thread of the program may have mapped something there in between.
        restored: bool,
    },
    /// The memory is where it was. The new place must not be used: its contents are not known.
    Refused,
}

/// Sets `errno` to "no memory" and returns null.
#[cold]
pub fn out_of_memory() -> *mut u8 {
    set_errno(ENOMEM);
    core::ptr::null_mut()
}
