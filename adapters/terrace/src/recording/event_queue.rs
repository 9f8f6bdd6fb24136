//! Events on their way from the threads of a program to the thread that writes them.
//!
//! Promises upward: no event is lost, and events leave in the order in which they came, with times that never go back; memory
//! is bounded: a caller waits while the queue is full. Recording an event allocates nothing.
//! Asks from below: a thread that takes events until the queue is closed.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use terrace_core::event::Event;
use terrace_track::{EventSink, Origin};

/// Most events in the queue, and as many are with the thread that writes them: 64 Ki of 80 bytes, 5 MiB twice.
pub(super) const QUEUED_MAX: usize = 1 << 16;

/// Events that are not written yet.
pub(super) struct EventQueue {
    begun: Instant,
    state: Mutex<QueuedEvents>,
    /// Notified when the queue is half full, or closed.
    filled: Condvar,
    /// Notified when the queue is empty again, or closed.
    drained: Condvar,
}

struct QueuedEvents {
    events: Vec<(Origin, Event)>,
    /// Number of events that came so far.
    count: u64,
    is_closed: bool,
}

impl EventQueue {
    pub(super) fn new() -> Self {
        let state = QueuedEvents { events: Vec::with_capacity(QUEUED_MAX), count: 0, is_closed: false };
        let (filled, drained) = (Condvar::new(), Condvar::new());
        Self { begun: Instant::now(), state: Mutex::new(state), filled, drained }
    }

    fn state(&self) -> MutexGuard<'_, QueuedEvents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all events, in exchange for an empty list, once there are many or the queue is closed. False at the end.
    pub(super) fn take(&self, batch: &mut Vec<(Origin, Event)>) -> bool {
        batch.clear();
        let waits = |state: &mut QueuedEvents| state.events.len() < QUEUED_MAX / 2 && !state.is_closed;
        let mut state = self.filled.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut state.events, batch);
        drop(state);
        self.drained.notify_all();
        !batch.is_empty()
    }

    /// Takes no more events: callers go on at once. What is in the queue can still be taken.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Whether events are still taken, and the number of those that came so far.
    pub(super) fn progress(&self) -> (bool, u64) {
        let state = self.state();
        (!state.is_closed, state.count)
    }
}

impl EventSink for EventQueue {
    fn record(&self, origin: Origin, event: Event) {
        let waits = |state: &mut QueuedEvents| state.events.len() == QUEUED_MAX && !state.is_closed;
        let mut state = self.drained.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return;
        }
        // Under the lock, so that the times in the file never go back.
        let time_us = self.begun.elapsed().as_micros() as u64;
        state.events.push((origin, Event { time_us, ..event }));
        state.count += 1;
        let is_due = state.events.len() == QUEUED_MAX / 2;
        drop(state);
        if is_due {
            self.filled.notify_one();
        }
    }
}
