//! What a running program tells of its memory: statistics for other programs, and which allocations are live.
//!
//! Promises upward: the names of the crates behind it, by the features `live`, `metrics` and `track`.
//! Asks from below: nothing.

/// Statistics for Prometheus: a registry of allocators, devices and managers, as text and over HTTP.
#[cfg(feature = "metrics")]
pub use terrace_metrics as metrics;

/// Which memory of the program, of devices and managers is live, since when, and for what.
#[cfg(feature = "track")]
pub use terrace_track as track;

#[cfg(all(feature = "live", target_os = "linux"))]
pub mod live;
