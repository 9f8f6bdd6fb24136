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
//!                   state           the heap and its counters
//!                     |
//!            terrace_core::heap     one region or several: static_memory
//! ```
#![no_std]

#[cfg(feature = "allocator-api2")]
mod allocator;
mod error;
#[cfg(feature = "defmt")]
mod format;
mod free_queue;
mod global;
mod lock;
mod locked_heap;
#[cfg(feature = "embedded-hal")]
pub mod spi;
mod state;
mod static_memory;
mod stats;

pub use error::{BadFree, InitError};
pub use free_queue::{DeferQueue, DeferredFree, FreeQueue, NoQueue, QueueFull};
#[cfg(feature = "critical-section")]
pub use lock::CriticalSection;
pub use lock::{Lock, Locked};
pub use locked_heap::LockedHeap;
pub use static_memory::StaticMemory;
#[doc(hidden)]
pub use static_memory::{StaticBytes, StaticClaim};
#[doc(hidden)]
pub use stats::LowWaterMark;
pub use stats::{HeapCounters, HeapStats};
pub use terrace_core::heap::{
    Checked, Fast, HeaderHeap, HeapConfig, HeapUsage, Narrow, Packed, Records, RegionError, RegionHeap, Small, Wide,
};
pub use terrace_core::{FreeError, Violation};

/// A heap behind a critical section.
///
/// For one core, or for several if the target's implementation of `critical-section` locks out the other cores.
/// Only with feature `critical-section`, the default.
#[cfg(feature = "critical-section")]
pub type FirmwareHeap<C = Fast, const REGIONS: usize = 1, Q = NoQueue> = LockedHeap<CriticalSection, C, REGIONS, Q>;

/// A heap behind a spin lock, for several cores.
///
/// Interrupt handlers must not take the lock: see [`LockedHeap::free_later`].
///
/// Only with feature `spin`, and on targets with compare-and-swap.
#[cfg(all(feature = "spin", target_has_atomic = "8"))]
pub type SpinHeap<C = Fast, const REGIONS: usize = 1, Q = NoQueue> = LockedHeap<spin::Mutex<()>, C, REGIONS, Q>;
