//! Waiting by polling with exponential backoff.
//!
//! Promises upward: every wait ends. It sleeps `first` nanoseconds, then twice as long each time but at most `max`, and
//! gives up when it has slept `total` nanoseconds.
//! Asks from below: a [`Delay`]: a closure, a timer of `embedded-hal`, the system.

use crate::sync::spin_hint;

/// A way to sleep: `|ns| timer.delay_ns(ns)` is one for every `embedded_hal::delay::DelayNs`.
pub trait Delay {
    /// Sleeps for at least `nanoseconds`.
    fn delay(&mut self, nanoseconds: u32);
}

impl<F: FnMut(u32)> Delay for F {
    fn delay(&mut self, nanoseconds: u32) {
        self(nanoseconds);
    }
}

/// A delay that does not sleep: it spins, with a hint to the processor.
///
/// The total of [`Backoff`] then counts polls, not time: each poll counts as the sleep that it replaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDelay;

impl Delay for NoDelay {
    fn delay(&mut self, _: u32) {
        spin_hint();
    }
}

/// Exponential backoff, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Nanoseconds of the first sleep; 0 counts as 1.
    pub first: u32,
    /// Nanoseconds of the longest sleep.
    pub max: u32,
    /// Nanoseconds of all sleeps of one wait together.
    pub total: u64,
}

impl Backoff {
    /// Polls once, without a sleep.
    pub const NONE: Self = Self { first: 1, max: 1, total: 0 };

    /// Sleeps of 1 us (about the cost of a poll over a bus) up to 1 ms, one second in total.
    pub const SECOND: Self = Self { first: 1_000, max: 1_000_000, total: 1_000_000_000 };

    /// Polls until there is a result, with sleeps in between, up to their total.
    ///
    /// Returns the number of sleeps, and the result if there was one.
    ///
    /// # Errors
    /// The error of a poll, at once.
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

    /// Begins a wait; returns its sleeps.
    pub(super) fn sleeps(self) -> BackoffDelays {
        let max = self.max.max(1);
        BackoffDelays { next: self.first.clamp(1, max), max, left: self.total, times: 0 }
    }
}

/// The sleeps of one wait, in nanoseconds.
pub(super) struct BackoffDelays {
    /// The next sleep, from 1 to `max`.
    next: u32,
    max: u32,
    /// What remains of the total.
    left: u64,
    times: u64,
}

impl BackoffDelays {
    /// Sleeps once; returns false if nothing remains of the total.
    pub(super) fn sleep(&mut self, delay: &mut impl Delay) -> bool {
        // If `left` does not fit into 32 bits, it is larger than `next`.
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
