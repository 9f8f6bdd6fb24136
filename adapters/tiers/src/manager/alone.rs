//! Leases one after the other: of buffers that are evicted again and again before they are leased, one is at a time.
//!
//! Promises upward: who is alone and goes on stays alone until the lease is taken; a future that is not polled holds
//! nobody up: as soon as what it waits for has ended, another takes its place, whichever is polled first.
//!
//! Invariant: `due` only where there is a `holder`, who waits for nothing but to be polled.

use super::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_file::{Executor, JoinHandle, Notify};
use terrace_guard::Process;

/// Who is alone.
#[derive(Debug, Default)]
pub(super) struct Alone {
    state: Mutex<State>,
    /// Told when the place is free, or may be taken.
    free: Notify,
}

#[derive(Debug, Default)]
struct State {
    holder: Option<u64>,
    due: bool,
    /// The last number that was given: a holder has another one for each step.
    last: u64,
}

impl State {
    /// Gives the place to a number that was never given before.
    fn next_holder(&mut self) -> Option<u64> {
        self.last += 1;
        (self.holder, self.due) = (Some(self.last), false);
        self.holder
    }
}

/// Whether who leases goes on for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// A thread that waits polls its future whenever it is woken.
    Blocks,
    /// Whoever has a future may keep it without polling it.
    MayStop,
}

impl Alone {
    /// For who may want to be alone later.
    pub(super) fn seat(self: &Arc<Self>, going: Going) -> Seat {
        Seat { alone: Arc::clone(self), going, number: None, process: Process::current() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this holder waited for has ended: should it not be polled, another need not wait for it.
    fn is_due(&self, number: u64) {
        let mut state = self.state();
        if state.holder == Some(number) {
            state.due = true;
            drop(state);
            self.free.notify();
        }
    }
}

/// One that leases. Dropped, it is not alone any more.
pub(super) struct Seat {
    alone: Arc<Alone>,
    going: Going,
    /// Its number, since it was alone.
    number: Option<u64>,
    process: Process,
}

impl Seat {
    /// Waits until it is alone. Returns at once in a forked child, where it is not: there no holder goes on.
    pub(super) async fn take(&mut self) {
        // Looked at in each round: the wait ends at once in a child.
        while self.process.is_current() {
            let alone = Arc::clone(&self.alone);
            // Listened for before looking, so that nothing is missed.
            let free = alone.free.listen();
            if self.number.is_some() || self.try_take() {
                return;
            }
            free.await;
        }
    }

    fn try_take(&mut self) -> bool {
        let mut state = self.alone.state();
        if state.holder.is_some() && !state.due {
            return false;
        }
        self.number = state.next_holder();
        true
    }

    /// Waits for the end of a task. When another took the place meanwhile, it is not alone any more.
    pub(super) async fn during(&mut self, tasks: &Executor, step: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
        let step = match (self.number, self.going) {
            (Some(number), Going::MayStop) => {
                let (alone, own) = (Arc::clone(&self.alone), tasks.clone());
                tasks.spawn(async move {
                    let ended = step.await;
                    // Afterwards: who waits for the step is woken first.
                    drop(own.spawn(async move { alone.is_due(number) }));
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

    /// Goes on: alone still, or not any more.
    fn stay(&mut self) {
        let mut state = self.alone.state();
        let alone = self.number.is_some() && self.number == state.holder;
        // The word that the last step has ended may still come, with the old number.
        self.number = if alone { state.next_holder() } else { None };
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let mut state = self.alone.state();
        if self.number.is_some() && state.holder == self.number {
            (state.holder, state.due) = (None, false);
            drop(state);
            self.alone.free.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    /// Whether another takes the place of one that has not been polled since its step has ended; and whether it knows.
    fn is_overtaken(going: Going) -> (bool, bool) {
        let (alone, tasks) = (Arc::new(Alone::default()), Executor::new());
        let [mut first, mut second] = [going, Going::MayStop].map(|going| alone.seat(going));
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
        assert!(alone.seat(going).try_take(), "nobody is left");
        (overtaken, !alone_still)
    }

    /// The word that a step has ended comes when its holder is at the next one.
    #[test]
    fn who_goes_on_keeps_the_place() {
        let (alone, tasks) = (Arc::new(Alone::default()), Executor::new());
        let [mut first, mut second] = [(); 2].map(|()| alone.seat(Going::MayStop));
        assert!(first.try_take());
        let mut step = Box::pin(first.during(&tasks, tasks.spawn(async { Ok(()) })));
        let mut context = Context::from_waker(Waker::noop());
        // Run one at a time: the step, then who waits for it; the word is left.
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
        assert_eq!(is_overtaken(Going::Blocks), (false, false));
        assert_eq!(is_overtaken(Going::MayStop), (true, true));
    }
}
