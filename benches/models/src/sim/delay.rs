//! A fence that opens a fixed number of events after it was recorded.
//!
//! Promises upward: ready exactly when `clock >= ticket + delay`; tickets of every owner open in the order given.
//! Asks from below: someone advances the clock, one step an event. [`terrace_core::Fence::wait`] cannot wait: only
//! events move this clock.

use std::cell::Cell;
use std::rc::Rc;
use terrace_core::{Fence, FenceState, Owner};

/// Work that stays in flight for `delay` events. Clones share the clock.
///
/// ```
/// use terrace_core::{Fence, FenceState, Owner};
/// use terrace_models::Delay;
///
/// let mut fence = Delay::new(2);
/// let clock = fence.clock();
/// let ticket = fence.record(Owner(1));
/// clock.set(clock.get() + 1);
/// assert_eq!(fence.poll(Owner(1), ticket), FenceState::Pending);
/// clock.set(clock.get() + 1);
/// assert_eq!(fence.poll(Owner(1), ticket), FenceState::Ready);
/// ```
#[derive(Clone, Debug)]
pub struct Delay {
    clock: Rc<Cell<u64>>,
    delay: u64,
}

impl Delay {
    /// A fence with a clock of its own, at 0; `delay` is counted in events.
    pub fn new(delay: u64) -> Self {
        Self::on(Rc::new(Cell::new(0)), delay)
    }

    /// A fence on a clock that others share; `delay` is counted in events.
    pub fn on(clock: Rc<Cell<u64>>, delay: u64) -> Self {
        Self { clock, delay }
    }

    /// The clock: whoever replays sets it to the number of events seen.
    pub fn clock(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.clock)
    }
}

impl Fence for Delay {
    fn record(&mut self, _: Owner) -> u64 {
        self.clock.get()
    }

    fn poll(&mut self, _: Owner, ticket: u64) -> FenceState {
        if self.clock.get() >= ticket.saturating_add(self.delay) { FenceState::Ready } else { FenceState::Pending }
    }
}
