//! Waiting by looking again: how often, how long, and by whose clock.
//!
//! Promises upward: a wait ends. It sleeps `first` nanoseconds, twice as long each time, at most `max`, and gives up
//! when it has slept `in_all`.
//! Asks from below: a [`Delay`]: a closure, a timer of `embedded-hal`, the system.

use crate::sync::spin_hint;

/// BackoffDelays. `|ns| timer.delay_ns(ns)` is one for every `embedded_hal::delay::DelayNs`.
pub trait Delay {
    /// Lets at least that many nanoseconds pass.
    fn delay(&mut self, nanoseconds: u32);
}

impl<F: FnMut(u32)> Delay for F {
    fn delay(&mut self, nanoseconds: u32) {
        self(nanoseconds);
    }
}

/// Does not sleep: looks again at once, and tells the processor so.
///
/// Backoff then counts looks, not time: each is taken for the sleep it stands for.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDelay;

impl Delay for NoDelay {
    fn delay(&mut self, _: u32) {
        spin_hint();
    }
}

/// How long to wait. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first sleep; 0 counts as 1.
    pub first: u32,
    /// The longest sleep.
    pub max: u32,
    /// All sleeps together.
    pub total: u64,
}

impl Backoff {
    /// Looks once.
    pub const NONE: Self = Self { first: 1, max: 1, total: 0 };

    /// From 1 microsecond (what a look over a bus costs, more or less) to 1 millisecond, one second in all.
    pub const SECOND: Self = Self { first: 1_000, max: 1_000_000, total: 1_000_000_000 };

    /// Looks, and sleeps between looks, until there is something or it has slept enough.
    ///
    /// How often it slept, and what there was.
    ///
    /// # Errors
    /// What looking says, at once.
    pub fn wait<T, E>(
        self,
        delay: &mut impl Delay,
        mut look: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<(u64, Option<T>), E> {
        let mut sleeps = self.sleeps();
        loop {
            let there = look()?;
            if there.is_some() || !sleeps.sleep(delay) {
                return Ok((sleeps.times, there));
            }
        }
    }

    /// No delay yet.
    pub(super) fn sleeps(self) -> BackoffDelays {
        let max = self.max.max(1);
        BackoffDelays { next: self.first.clamp(1, max), max, left: self.total, times: 0 }
    }
}

/// The sleeps of one wait.
pub(super) struct BackoffDelays {
    /// From 1 to `max`.
    next: u32,
    max: u32,
    /// What is left of all.
    left: u64,
    times: u64,
}

impl BackoffDelays {
    /// Sleeps once; false when nothing is left to sleep.
    pub(super) fn sleep(&mut self, delay: &mut impl Delay) -> bool {
        // What is above 32 bits is above `next`.
        let now = self.next.min(u32::try_from(self.left).unwrap_or(u32::MAX));
        if now == 0 {
            return false;
        }
        delay.delay(now);
        self.left -= u64::from(now);
        self.next = self.next.saturating_mul(2).min(self.max);
        self.times += 1;
        true
    }
}
