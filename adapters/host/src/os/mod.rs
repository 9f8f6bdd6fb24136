//! The operating system's calls that the allocator needs: one small file for each system, the same functions in all.
//!
//! Promises upward, for every system:
//! - [`map`], [`map_at`], [`reserve`], [`commit`], [`unmap`], [`purge`], [`replace`], [`relocate`],
//!   [`advise_huge`], [`bind`]: address space and the memory under it
//! - [`wait`], [`wake`]: a thread sleeps until a word changes; [`register_barrier`], [`barrier`]: a barrier in all
//!   threads
//! - [`milliseconds`]: a clock that costs a few nanoseconds and never goes back
//! - [`errno`], [`set_errno`]; [`write_stderr`], [`abort`]: a line on standard error without an allocation; the
//!   process's end
//! - [`physical_bytes`], [`address_limit`], [`memory_limit`], [`page_bytes`], [`random`]: facts of this machine and
//!   process
//! - [`variable`], [`each_variable`]: the environment, without an allocation
//! - [`map_shared`], [`process`], [`program_name`]: memory that another process made; which process this is
//! - [`spawn`], [`at_fork`], [`Key`]: threads, forks; [`handler_stack`]: the stack on which a signal handler runs
//!
//! Asks from below: `libc`. Nothing here allocates, panics, or touches a thread-local variable with a destructor.

use core::sync::atomic::AtomicU64;

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

/// The result of [`relocate`], which moves pages to another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux moves anything"))]
pub enum Relocation {
    /// The pages were moved.
    Moved {
        /// Whether zeros were mapped at the old address again; `false` if another thread mapped something there in
        /// between.
        restored: bool,
    },
    /// The pages were not moved. The new address must not be used: the kernel may have unmapped it.
    Refused,
}

/// The result of [`map_shared`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code, reason = "only Linux maps any"))]
pub enum SharedMemory {
    /// The memory, for as long as the process lives; other processes write the words too.
    Words(&'static [AtomicU64]),
    /// The descriptor is not open.
    Closed,
    /// The descriptor is no memory that is sealed against shrinking, is smaller, or cannot be mapped.
    Foreign,
}

/// Sets `errno` to `ENOMEM` and returns null.
#[cold]
pub fn out_of_memory() -> *mut u8 {
    set_errno(ENOMEM);
    core::ptr::null_mut()
}
