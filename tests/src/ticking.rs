//! A fence for tests: time passes with every question.
//!
//! Promises upward: a ticket is pending for the first `delay` questions after it was given, whoever asks, and ready from
//! then on; tickets open in the order given. So a program meets both answers, and whoever keeps asking gets on.
//! Asks from below: nothing.

use terrace_core::{Fence, FenceState, Owner};

/// Work that is done after some questions.
///
/// # Example
/// ```
/// use terrace_core::{Fence, FenceState, Owner};
/// let mut fence = terrace_tests::Ticking::new(2);
/// let ticket = fence.record(Owner(0));
/// assert_eq!(fence.poll(Owner(0), ticket), FenceState::Pending);
/// assert_eq!(fence.poll(Owner(0), ticket), FenceState::Ready);
/// ```
#[derive(Clone, Debug)]
pub struct Ticking {
    now: u64,
    delay: u64,
}

impl Ticking {
    /// A fence whose tickets open `delay` questions later.
    pub const fn new(delay: u64) -> Self {
        Self { now: 0, delay }
    }
}

impl Fence for Ticking {
    fn record(&mut self, _: Owner) -> u64 {
        self.now
    }

    fn poll(&mut self, _: Owner, ticket: u64) -> FenceState {
        self.now += 1;
        if self.now >= ticket.saturating_add(self.delay) { FenceState::Ready } else { FenceState::Pending }
    }
}
