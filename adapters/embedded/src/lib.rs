#![cfg_attr(any(not(doctest), feature = "critical-section"), doc = include_str!("../README.md"))]
//!
//! # The parts
//!
//! [`terrace_core::heap`] describes the heap itself. This crate adds a lock, memory, a queue and interfaces.
//!
//! ```text
//!   #[global_allocator]     collections         interrupts
//!        global              allocator           free_later
//!           |                   |                    |
//!           +---------+---------+                    v
//!                     v                       free_queue         without the lock
//!                locked_heap  <---- two a call ------+
//!                     |             hooks
//!                   lock            critical section, spin lock, or yours
//!                     |
//!                   state           counters, tasks
//!                     |
//!                  regions          capabilities, static_memory
//!                     |
//!            terrace_core::heap     one for each region
//! ```
#![no_std]

#[cfg(feature = "allocator-api2")]
mod allocator;
mod capabilities;
mod error;
#[cfg(feature = "defmt")]
mod format;
mod free_queue;
mod global;
mod inspect;
mod lock;
mod locked_heap;
mod regions;
mod setup;
#[cfg(feature = "embedded-hal")]
pub mod spi;
mod state;
mod static_memory;
mod stats;
mod tasks;

#[cfg(feature = "allocator-api2")]
pub use allocator::Within;
pub use capabilities::MemoryCaps;
pub use error::{BadFree, InitError, RefusedMemory};
pub use free_queue::{DeferQueue, DeferredFree, FreeQueue, NoQueue, QueueFull};
#[cfg(feature = "critical-section")]
pub use lock::CriticalSection;
pub use lock::{Lock, Locked};
pub use locked_heap::LockedHeap;
#[doc(hidden)]
pub use regions::{RegionOf, RegionSet};
pub use static_memory::StaticMemory;
#[doc(hidden)]
pub use static_memory::{StaticBytes, StaticClaim, offer};
#[doc(hidden)]
pub use stats::LowWaterMark;
pub use stats::{HeapCounters, HeapStats};
pub use tasks::{CurrentTask, NoTasks, TaskAccounts, TaskTable, TaskUsage};
pub use terrace_core::heap::{
    Bounded, Checked, Fast, Fastest, HeaderHeap, HeapConfig, HeapUsage, MOST_MERGED, Narrow, Native, Packed, Records,
    RegionError, RegionHeap, Small, Wide,
};
pub use terrace_core::{FreeError, Violation};

/// A heap behind a critical section.
///
/// For one core, or for several if the target's implementation of `critical-section` locks out the other cores.
/// Only with feature `critical-section`, the default.
#[cfg(feature = "critical-section")]
pub type FirmwareHeap<C = Bounded, const REGIONS: usize = 1, Q = NoQueue, T = NoTasks> =
    LockedHeap<CriticalSection, C, REGIONS, Q, T>;

/// A heap behind a spin lock, for several cores.
///
/// Interrupt handlers must not take the lock: see [`LockedHeap::free_later`].
///
/// Only with feature `spin`, and on targets with compare-and-swap.
#[cfg(all(feature = "spin", target_has_atomic = "8"))]
pub type SpinHeap<C = Bounded, const REGIONS: usize = 1, Q = NoQueue, T = NoTasks> =
    LockedHeap<spin::Mutex<()>, C, REGIONS, Q, T>;
