//! The time of day of records: a clock that costs nanoseconds, or one that the user brings.
//!
//! Promises upward: time never goes back on a coarse clock; its resolution is known.
//! Asks from below: `CLOCK_MONOTONIC_COARSE` on Linux (Miri has none of its steps), [`Instant`](std::time::Instant) elsewhere.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

/// A clock that the user brings: time since a beginning that never changes, and never less than before.
pub type UserClock = Box<dyn Fn() -> Duration + Send + Sync>;

/// Where the time of records comes from.
pub(crate) enum TimeSource {
    /// The system's cheapest monotonic clock.
    #[cfg(feature = "std")]
    Coarse,
    User(UserClock),
}

impl TimeSource {
    #[inline]
    pub(crate) fn now(&self) -> Duration {
        match self {
            #[cfg(feature = "std")]
            Self::Coarse => coarse_now(),
            Self::User(clock) => clock(),
        }
    }

    /// The step by which the clock advances; zero where that is not known.
    pub(crate) fn resolution(&self) -> Duration {
        match self {
            #[cfg(feature = "std")]
            Self::Coarse => coarse_resolution(),
            Self::User(_) => Duration::ZERO,
        }
    }
}

#[cfg(all(feature = "std", target_os = "linux", not(miri)))]
fn coarse_now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(all(feature = "std", target_os = "linux", not(miri)))]
fn coarse_resolution() -> Duration {
    let step = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Duration::try_from(step).unwrap_or_default()
}

#[cfg(all(feature = "std", not(all(target_os = "linux", not(miri)))))]
fn coarse_now() -> Duration {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(std::time::Instant::now).elapsed()
}

#[cfg(all(feature = "std", not(all(target_os = "linux", not(miri)))))]
fn coarse_resolution() -> Duration {
    Duration::ZERO
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            #[cfg(feature = "std")]
            Self::Coarse => "Coarse",
            Self::User(_) => "User",
        })
    }
}
