//! Failures on demand: the n-th call from now, or each call with a probability.
//!
//! Promises upward: the same failures for the same seed; a call that fails changes nothing but this record.
//! Asks from below: [`Random`].

use crate::Random;
use terrace_core::SourceError;

/// Code that injected failures carry: 999, CUDA's "unknown error".
pub(super) const INJECTED: i32 = 999;

/// Which calls of a source shall fail. Only calls that would have succeeded count.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Calls that came by so far.
    attempts: u64,
    /// Numbers of calls that shall fail; each is greater than `attempts`.
    planned: Vec<u64>,
    /// The generator, and the failure threshold that it is compared with.
    random: Option<(Random, u64)>,
    /// Failures delivered.
    struck: u64,
}

impl Faults {
    /// Lets the `n`-th call from now fail (1 is the next one; 0 is taken as 1). Several may be planned.
    pub fn fail_call(&mut self, n: u64) {
        self.planned.push(self.attempts.saturating_add(n.max(1)));
    }

    /// Lets every call fail with `probability` (0 to 1), drawn from `seed`.
    pub fn fail_randomly(&mut self, seed: u64, probability: f64) {
        // A float-to-integer cast saturates: 1.0 becomes u64::MAX, and NaN becomes 0 (never).
        let threshold = (probability.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        self.random = Some((Random::new(seed), threshold));
    }

    /// No more failures.
    pub fn stop(&mut self) {
        self.planned.clear();
        self.random = None;
    }

    /// Failures delivered so far.
    pub fn struck(&self) -> u64 {
        self.struck
    }

    /// Counts one call; fails when this one was to fail.
    pub(super) fn call(&mut self) -> Result<(), SourceError> {
        self.attempts += 1;
        let mut fails = false;
        if !self.planned.is_empty() {
            let now = self.attempts;
            fails = self.planned.contains(&now);
            self.planned.retain(|&at| at > now);
        }
        if let Some((random, threshold)) = &mut self.random {
            fails |= random.next() < *threshold;
        }
        if fails {
            self.struck += 1;
            return Err(SourceError::Failed { code: INJECTED });
        }
        Ok(())
    }
}
