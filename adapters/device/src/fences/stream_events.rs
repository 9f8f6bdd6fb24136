//! Events and tickets of one stream.
//!
//! Promises upward: each event gets the next ticket; work that is marked as done stays so.
//! Asks from below: nothing.

use crate::backend::{RawEvent, RawStream};
use std::collections::VecDeque;
use terrace_core::Violation;
use terrace_core::error::ensure;

/// Whether events can still be recorded on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    /// Events can be recorded; each covers all work put on the stream before it.
    Open,
    /// The driver denied twice that the stream exists: waiting for its work means waiting for the whole device.
    Denied,
    /// The stream is about to be destroyed, or was: no event can be recorded.
    Closed,
}

/// Events and tickets of one stream.
#[derive(Debug)]
pub(super) struct StreamEvents {
    pub(super) raw: RawStream,
    /// The ticket of the event that was recorded last.
    pub(super) recorded: u64,
    /// All work up to this ticket is done; at most `recorded`.
    pub(super) done: u64,
    /// Events not seen to complete, with tickets from `done + 1` to `recorded`; a ticket without an event is left out.
    events: VecDeque<(u64, RawEvent)>,
    pub(super) standing: StreamState,
    /// Whether a graph is being captured on the stream.
    pub(super) capturing: bool,
}

impl StreamEvents {
    pub(super) fn new(raw: RawStream) -> Self {
        Self { raw, recorded: 0, done: 0, events: VecDeque::new(), standing: StreamState::Open, capturing: false }
    }

    /// Adds an event, which gets the next ticket.
    pub(super) fn push(&mut self, event: RawEvent) {
        self.recorded += 1;
        self.events.push_back((self.recorded, event));
    }

    /// Marks all work put on the stream so far as done, as if one more event had been recorded and had completed.
    pub(super) fn idle(&mut self) -> Vec<RawEvent> {
        self.recorded += 1;
        self.reached(self.recorded)
    }

    /// The oldest event that was not seen to complete, with its ticket.
    pub(super) fn oldest(&self) -> Option<(u64, RawEvent)> {
        self.events.front().copied()
    }

    /// The first event that covers a ticket; `None` if none does, or it was seen to complete.
    pub(super) fn event(&self, ticket: u64) -> Option<RawEvent> {
        self.events.iter().find(|(covers, _)| *covers >= ticket).map(|(_, event)| *event)
    }

    /// Marks all work up to a ticket as done; returns its events, to be recorded again.
    pub(super) fn reached(&mut self, ticket: u64) -> Vec<RawEvent> {
        self.done = self.done.max(ticket);
        let count = self.events.partition_point(|(covers, _)| *covers <= ticket);
        self.events.drain(..count).map(|(_, event)| event).collect()
    }

    /// The events that were not seen to complete, oldest first.
    pub(super) fn pending(&self) -> impl Iterator<Item = RawEvent> {
        self.events.iter().map(|&(_, event)| event)
    }

    /// Checks that tickets are in order; `owner` names the stream in a violation.
    pub(super) fn check(&self, owner: u32) -> Result<(), Violation> {
        let owner = u64::from(owner);
        ensure(self.done <= self.recorded, "no event is done before it was recorded", owner)?;
        let mut last = self.done;
        for &(ticket, _) in &self.events {
            ensure(ticket > last, "pending events have rising tickets above the last one done", owner)?;
            last = ticket;
        }
        ensure(last <= self.recorded, "no pending event has a ticket that was never issued", owner)
    }

    /// Whether events can be recorded on the stream.
    pub(super) fn is_open(&self) -> bool {
        self.standing == StreamState::Open
    }

    /// Whether the stream gets no more work.
    pub(super) fn is_closed(&self) -> bool {
        self.standing == StreamState::Closed
    }

    /// The ticket that covers all work put on the stream so far.
    pub(super) fn next(&self) -> u64 {
        self.recorded + u64::from(!self.is_closed())
    }

    /// Whether all work put on the stream is done.
    pub(super) fn is_idle(&self) -> bool {
        self.done >= self.recorded
    }
}
