//! Worst cases: instructions of one call, counted exactly, and a search for the program that makes them many.
//!
//! ```text
//! search   programs: random states, then hill climbing          program   a list of calls; the last one is counted
//! counter  runs another process and steps through its counted call, one instruction at a time
//! emulated a board in an emulator, which counts by itself
//! ```
//!
//! Promises upward: the same seed and the same machine code give the same counts, on a loaded machine too.
//! Asks from below: Linux on x86-64, and a process that keeps the protocol of `Counter`; or an emulator, see [`Emulated`].

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod counter;
mod emulated;
mod program;
mod search;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use counter::Counter;
pub use emulated::Emulated;
pub use program::{Call, Outcome, Program};
pub use search::{Found, Kind, search, search_within};
