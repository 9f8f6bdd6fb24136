//! Atomics, or loom's models of them under `cfg(loom)`.
//!
//! Promises upward: the same names in both cases, so that loom checks every lock-free path of the core as it is written.
//! Callers lend memory of these types (to [`Pool`](crate::pool::Pool) or [`Inbox`](crate::inbox::Inbox), for example).
//! Asks from below: compare-and-swap. Targets without it (Cortex-M0) enable feature `critical-section`, which makes
//! each operation a short critical section; without the feature they fail to compile, with a message that says so.
//!
//! Counters and links are `usize` and `u32`: widths that every supported target can compare and swap.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

#[cfg(not(loom))]
pub use portable_atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// Tells the processor that this thread spins until another thread acts.
///
/// Under the model checker, runs another thread.
#[inline]
pub fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}

/// Whether a seeded bug is in, by which a test shows what it finds. No build of a program has one.
///
/// Under the model checker the environment variable `TERRACE_SEEDED_BUG` names it. One of them can be compiled in, for a sanitizer.
#[doc(hidden)]
#[inline(always)]
pub fn seeded(bug: &str) -> bool {
    #[cfg(loom)]
    return model::seeded(bug);
    #[cfg(not(loom))]
    return cfg!(terrace_seeded_bug = "exchange_give_relaxed") && bug == "exchange_give_relaxed";
}

#[cfg(loom)]
mod model {
    extern crate std;

    /// Whether the process was started with this bug.
    pub fn seeded(bug: &str) -> bool {
        static CHOSEN: std::sync::OnceLock<std::string::String> = std::sync::OnceLock::new();
        CHOSEN.get_or_init(|| std::env::var("TERRACE_SEEDED_BUG").unwrap_or_default()) == bug
    }
}
