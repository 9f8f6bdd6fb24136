//! Events.
//!
//! Upward: an event stands for the newest place in a stream where it was recorded; recorded while a stream captures, it
//! stands for a place in the graph and cannot be asked about.
//! From below: the order of operations.

use super::{Node, Work};
use crate::abi::Outcome;
use crate::abi::codes::{
    CAPTURED_EVENT, INVALID_HANDLE, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE,
};
use crate::machine::{Fault, World};
use crate::order::{Clock, Lane};
use std::time::Instant;

/// A place in a stream.
#[derive(Clone)]
pub struct Recorded {
    /// The stream.
    pub lane: Lane,
    /// The recording's number among its operations.
    pub sequence: u64,
    /// What is sure to be done when it is.
    pub clock: Clock,
}

/// An event.
pub struct Event {
    /// Its context.
    pub context: u64,
    /// `CU_EVENT_BLOCKING_SYNC` is 1, `CU_EVENT_DISABLE_TIMING` is 2.
    pub flags: u32,
    /// Where it was recorded last.
    pub recorded: Option<Recorded>,
    /// In which graph it was recorded last, and what comes before it there.
    pub captured: Option<(u64, Clock)>,
    /// Counts recordings.
    pub serial: u64,
    /// When the newest recording was reached.
    pub time: Option<Instant>,
}

impl World {
    /// An event that is live.
    pub fn event(&mut self, event: u64, call: &str) -> Outcome<&mut Event> {
        if self.events.get(event).is_none() {
            let text = format!("{call} on {}", self.events.fate(event));
            self.report.add(Fault::BadHandle, text);
        }
        self.events.get_mut(event).ok_or(INVALID_HANDLE)
    }

    /// The event stands for operation `sequence` of a stream from now on. Gives that operation's work.
    pub fn record(&mut self, event: u64, lane: Lane, sequence: u64) -> Work {
        let clock = self.races.clock(lane);
        let Some(found) = self.events.get_mut(event) else { return Work::Nothing };
        found.serial += 1;
        (found.recorded, found.captured, found.time) = (Some(Recorded { lane, sequence, clock }), None, None);
        Work::Record(event, found.serial)
    }

    /// The event stands for a place in a graph from now on.
    pub fn record_captured(&mut self, event: u64, capture: u64, clock: Clock) {
        let Some(found) = self.events.get_mut(event) else { return };
        found.serial += 1;
        (found.recorded, found.captured, found.time) = (None, Some((capture, clock)), None);
    }

    /// The place an event stands for, for calls that ask whether it was reached. Asking about a graph spoils it.
    pub fn reached(&mut self, event: u64, call: &str) -> Outcome<Option<Recorded>> {
        let found = self.event(event, call)?;
        if let Some((capture, _)) = found.captured {
            self.captures.invalidate(capture);
            return Err(CAPTURED_EVENT);
        }
        Ok(found.recorded.clone())
    }

    /// `cuStreamWaitEvent`: what the stream does next comes after the event.
    pub fn wait_event(&mut self, lane: Lane, event: u64) -> Outcome {
        let found = self.event(event, "cuStreamWaitEvent")?;
        let (recorded, captured) = (found.recorded.clone(), found.captured.clone());
        let capture = self.streams.all.get(&lane).and_then(|stream| stream.capture);
        match (capture, recorded, captured) {
            (_, None, None) => Ok(()),
            (capture, _, Some((other, clock))) => self.join_capture(lane, capture, other, &clock),
            (Some(capture), Some(_), _) => {
                self.captures.invalidate(capture);
                Err(STREAM_CAPTURE_ISOLATION)
            }
            (None, Some(place), _) => {
                self.races.join(lane, &place.clock);
                let node = Node::mark("cuStreamWaitEvent", Work::Nothing);
                self.submit(lane, Node { waits: vec![(place.lane, place.sequence)], ..node }).map(drop)
            }
        }
    }

    /// A stream waits for a place in a graph: it takes part in the capture from now on.
    fn join_capture(&mut self, lane: Lane, mine: Option<u64>, other: u64, clock: &Clock) -> Outcome {
        if mine.is_some_and(|mine| mine != other) {
            mine.into_iter().chain([other]).for_each(|capture| self.captures.invalidate(capture));
            return Err(STREAM_CAPTURE_MERGE);
        }
        if self.streams.legacy.values().any(|legacy| *legacy == lane) {
            self.captures.invalidate(other);
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        // The graph is finished: its places are no places any more.
        let Some(capture) = self.captures.live.get_mut(other) else { return Err(STREAM_CAPTURE_ISOLATION) };
        capture.races.join(lane, clock);
        capture.lanes.insert(lane);
        self.streams.all.get_mut(&lane).into_iter().for_each(|stream| stream.capture = Some(other));
        Ok(())
    }
}
