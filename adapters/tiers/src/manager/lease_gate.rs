//! Serialises lessees under thrashing: of those whose buffers are evicted before they lease them, one proceeds at a
//! time.
//!
//! Promises upward: a holder that is polled keeps the gate until its lease is taken; a future that is not polled blocks
//! no other: as soon as the step it waits for has ended, another lessee may take the gate, whichever is polled first.
//!
//! Invariant: `due` implies a `holder`, which waits only to be polled.

use super::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_file::{Executor, JoinHandle, Notify};
use terrace_guard::Process;

/// A gate that one lessee holds at a time.
#[derive(Debug, Default)]
pub(super) struct LeaseGate {
    state: Mutex<State>,
    /// Notified when the gate is free, or when another lessee may take it over.
    free: Notify,
}

#[derive(Debug, Default)]
struct State {
    holder: Option<u64>,
    due: bool,
    /// The last number assigned to a holder, which gets a new number for each step.
    last: u64,
}

impl State {
    /// Gives the gate to a holder with a new number; returns that number.
    fn next_holder(&mut self) -> Option<u64> {
        self.last += 1;
        (self.holder, self.due) = (Some(self.last), false);
        self.holder
    }
}

/// What polls a lessee's future: this decides whether the future may stop being polled while it holds the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lessee {
    /// A blocked thread, which polls its future whenever it is woken.
    Thread,
    /// A future, which its owner may keep without polling it.
    Future,
}

impl LeaseGate {
    /// Returns a pass for a lessee that may need the gate later; does not take the gate.
    pub(super) fn pass(self: &Arc<Self>, lessee: Lessee) -> GatePass {
        GatePass { gate: Arc::clone(self), lessee, number: None, process: Process::current() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a holder's step as ended: from now on until the holder is polled, another lessee may take the gate over.
    fn is_due(&self, number: u64) {
        let mut state = self.state();
        if state.holder == Some(number) {
            state.due = true;
            drop(state);
            self.free.notify();
        }
    }
}

/// A lessee's access to the gate. Dropping it releases the gate.
pub(super) struct GatePass {
    gate: Arc<LeaseGate>,
    lessee: Lessee,
    /// The lessee's number while it holds the gate.
    number: Option<u64>,
    process: Process,
}

impl GatePass {
    /// Waits until this pass holds the gate. In a forked child it returns at once without the gate, as no holder runs
    /// there.
    pub(super) async fn take(&mut self) {
        // Checked in each round, as `free` is ready at once in a forked child.
        while self.process.is_current() {
            let gate = Arc::clone(&self.gate);
            // Listens before it tries, so that no notification is missed.
            let free = gate.free.listen();
            if self.number.is_some() || self.try_take() {
                return;
            }
            free.await;
        }
    }

    fn try_take(&mut self) -> bool {
        let mut state = self.gate.state();
        if state.holder.is_some() && !state.due {
            return false;
        }
        self.number = state.next_holder();
        true
    }

    /// Waits for the end of a step. If another lessee takes the gate over during the step, this pass loses the gate.
    pub(super) async fn during(&mut self, tasks: &Executor, step: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
        let step = match (self.number, self.lessee) {
            (Some(number), Lessee::Future) => {
                let (gate, own) = (Arc::clone(&self.gate), tasks.clone());
                tasks.spawn(async move {
                    let ended = step.await;
                    // The step is marked as ended in a separate task, which runs after the waiter of the step has been
                    // woken.
                    drop(own.spawn(async move { gate.is_due(number) }));
                    ended
                })
            }
            _ => step,
        };
        let ended = step.in_child(|| Err(Error::Forked)).await;
        if self.process.is_current() {
            self.stay();
        }
        ended
    }

    /// After a step: keeps the gate, or loses it to the lessee that took over.
    fn stay(&mut self) {
        let mut state = self.gate.state();
        let gate = self.number.is_some() && self.number == state.holder;
        // The task that marks the last step as ended may still run: its number is outdated then, so it has no effect.
        self.number = if gate { state.next_holder() } else { None };
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let mut state = self.gate.state();
        if self.number.is_some() && state.holder == self.number {
            (state.holder, state.due) = (None, false);
            drop(state);
            self.gate.free.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    /// Whether another lessee can take the gate over from one that was not polled since its step ended, and whether
    /// that one notices.
    fn is_overtaken(lessee: Lessee) -> (bool, bool) {
        let (gate, tasks) = (Arc::new(LeaseGate::default()), Executor::new());
        let [mut first, mut second] = [lessee, Lessee::Future].map(|lessee| gate.pass(lessee));
        assert!(first.try_take() && !second.try_take());
        let mut during = Box::pin(first.during(&tasks, tasks.spawn(async { Ok(()) })));
        let mut poll = || during.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending() && !second.try_take(), "its step is under way");
        assert!(tasks.run(Duration::MAX));
        let overtaken = second.try_take();
        assert_eq!(poll(), Poll::Ready(Ok(())));
        drop(during);
        let alone_still = first.number.is_some();
        drop((first, second));
        assert!(gate.pass(lessee).try_take(), "nobody is left");
        (overtaken, !alone_still)
    }

    /// The task that marks a step as ended runs when the holder already waits for its next step.
    #[test]
    fn who_goes_on_keeps_the_place() {
        let (gate, tasks) = (Arc::new(LeaseGate::default()), Executor::new());
        let [mut first, mut second] = [(); 2].map(|()| gate.pass(Lessee::Future));
        assert!(first.try_take());
        let mut step = Box::pin(first.during(&tasks, tasks.spawn(async { Ok(()) })));
        let mut context = Context::from_waker(Waker::noop());
        // Runs one task at a time: first the step, then its waiter. The task that marks the step as ended is left over.
        while step.as_mut().poll(&mut context).is_pending() {
            assert!(tasks.run_one(0));
        }
        drop(step);
        let mut step = Box::pin(first.during(&tasks, tasks.spawn(std::future::pending())));
        assert!(step.as_mut().poll(&mut context).is_pending());
        assert!(tasks.run(Duration::MAX), "the word");
        assert!(!second.try_take(), "the next step is under way");
    }

    #[test]
    fn a_thread_that_waits_keeps_its_place_and_a_future_does_while_it_is_polled() {
        assert_eq!(is_overtaken(Lessee::Thread), (false, false));
        assert_eq!(is_overtaken(Lessee::Future), (true, true));
    }
}
