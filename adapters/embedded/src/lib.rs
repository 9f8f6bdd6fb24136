//! The terrace heap for firmware.
//!
//! ```no_run,standalone_crate
//! # #[cfg(feature = "critical-section")] mod firmware {
//! use terrace_embedded::{Heap, heap_arena};
//!
//! #[global_allocator]
//! static HEAP: Heap = Heap::empty();
//!
//! fn main() {
//!     heap_arena!(HEAP, 32 * 1024).expect("this line runs once");
//!     let line = Box::new(7);
//!     assert_eq!(*line, 7);
//!     assert_eq!(HEAP.stats().total, 32 * 1024);
//! }
//! # }
//! # fn main() {}
//! ```
//!
//! Blocks have no headers, every call takes a bounded number of instructions, and neighbours merge at once:
//! [`terrace_core::heap`] says how. This crate adds what firmware needs around it.
//!
//! ```text
//!   #[global_allocator]     collections         interrupts
//!        global              allocator           free_later
//!           |                   |                    |
//!           +---------+---------+                    v
//!                     v                           queue          heapless, in place of the lock
//!                  locked  <------ two a call -------+
//!                     |            counters, hooks
//!                   lock           critical section, spin lock, or yours
//!                     |
//!            terrace_core::heap    one region or several: arena
//! ```
//!
//! # When the linker says `undefined symbol: _critical_section_1_0_acquire`
//!
//! (or, from GNU ld, `undefined reference to '_critical_section_1_0_acquire'`): [`Heap`] masks interrupts through the
//! [`critical-section`](https://docs.rs/critical-section) crate, and nothing in the program says how that is done on this
//! chip. Your chip's support crate does, once it is told to; add **one** of these to your `Cargo.toml`:
//!
//! | chip | line |
//! | --- | --- |
//! | Cortex-M, one core | `cortex-m = { version = "0.7", features = ["critical-section-single-core"] }` |
//! | RISC-V, one hart | `riscv = { version = "0.16", features = ["critical-section-single-hart"] }` |
//! | RP2040 | `rp2040-hal = { version = "0.11", features = ["critical-section-impl"] }` |
//! | ESP32 | `esp-hal` has it already |
//! | tests on a computer | `critical-section = { version = "1.2", features = ["std"] }` |
//!
//! and, if nothing else names that crate, `use cortex_m as _;` in `main.rs`. On a chip without one (AArch64, x86-64) use
//! [`SpinHeap`], or write a [`Lock`] of your own: a trait with one function.
//!
//! # Which lock
//!
//! | | who may allocate and free | how |
//! | --- | --- | --- |
//! | [`Heap`] | threads, and interrupts below NMI | interrupts are masked for one bounded step at a time |
//! | [`SpinHeap`] | several cores; **not** interrupts | cores wait for each other; an interrupt would wait for its own core |
//! | either with [`FreeQueue`] | and interrupts may [free](LockedHeap::free_later) | through a queue, without the lock |
//! | `LockedHeap<parking_lot::Mutex<()>>` | threads of an operating system | as the mutex does it |
//!
//! # Features
//!
//! `critical-section` (on): [`Heap`]. `spin`: [`SpinHeap`], on targets with compare-and-swap. `allocator-api2`:
//! `Allocator for &LockedHeap`. `defmt`: `Format` for statistics and errors; without it there is none of its code.
//! `embedded-hal`: RAM and flash behind an SPI bus.
// Links to what the features leave out lead to what it would be.
#![cfg_attr(not(feature = "critical-section"), doc = "", doc = "[`Heap`]: LockedHeap")]
#![cfg_attr(not(all(feature = "spin", target_has_atomic = "8")), doc = "", doc = "[`SpinHeap`]: LockedHeap")]
#![no_std]

#[cfg(feature = "allocator-api2")]
mod allocator;
mod arena;
mod error;
#[cfg(feature = "defmt")]
mod format;
mod global;
mod lock;
mod locked;
mod queue;
#[cfg(feature = "embedded-hal")]
pub mod spi;
mod state;
mod stats;

pub use arena::Arena;
#[doc(hidden)]
pub use arena::{ArenaBytes, ArenaTaken};
pub use error::{BadFree, InitError};
#[cfg(feature = "critical-section")]
pub use lock::CriticalSection;
pub use lock::{Lock, Locked};
pub use locked::LockedHeap;
pub use queue::{FreeQueue, NoQueue, Pending, Queue, QueueFull};
#[doc(hidden)]
pub use stats::Room;
pub use stats::{Counters, Stats};
/// The heap without a lock, for a part of a program that has one to itself: [`terrace_core::heap::Heap`].
pub use terrace_core::heap::Heap as PlainHeap;
pub use terrace_core::heap::{
    Checked, Config, Fast, HeaderHeap, HeapUsage, Narrow, Packed, Records, RegionError, Small, Wide,
};
pub use terrace_core::{FreeError, Violation};

/// A heap whose lock is a critical section: for one core, or for several where the target's implementation says so.
///
/// Only with feature `critical-section`, the default.
#[cfg(feature = "critical-section")]
pub type Heap<C = Fast, const REGIONS: usize = 1, Q = NoQueue> = LockedHeap<CriticalSection, C, REGIONS, Q>;

/// A heap that several cores wait for in turn. Not for interrupts: see [`LockedHeap::free_later`].
///
/// Only with feature `spin`, and on targets with compare-and-swap.
#[cfg(all(feature = "spin", target_has_atomic = "8"))]
pub type SpinHeap<C = Fast, const REGIONS: usize = 1, Q = NoQueue> = LockedHeap<spin::Mutex<()>, C, REGIONS, Q>;
