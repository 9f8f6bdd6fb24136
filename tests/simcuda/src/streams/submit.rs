//! Putting operations on streams.
//!
//! Upward: [`World::submit`], [`World::lane`].
//! From below: `order` for what comes before what, `memory::check` for what may be touched.

use super::{Node, Operation, Stream, Target, Work, worker};
use crate::abi::Outcome;
use crate::abi::codes::{
    ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_VALUE, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_DETACHED,
};
use crate::machine::context::Here;
use crate::machine::{Fault, World};
use crate::memory::check::Hand;
use crate::memory::{Arena, vmm};
use crate::order::{Clock, Conflict, Lane, Touch};

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

impl World {
    /// The stream a caller means: null and 1 are the legacy default stream, 2 is the thread's.
    pub fn lane(&mut self, here: Here, stream: u64, call: &str) -> Outcome<Lane> {
        match stream {
            0 | LEGACY => Ok(self.streams.legacy_of(here.context, here.device)),
            PER_THREAD => Ok(self.streams.of_thread(here.context, here.device)),
            _ => {
                let lane = self.named_lane(stream, call)?;
                let context = self.streams.all.get(&lane).map_or(0, |stream| stream.context);
                self.contexts.get(context).map(|_| lane).ok_or(STREAM_DETACHED)
            }
        }
    }

    /// The stream of a handle, also where its green context has ended.
    pub fn named_lane(&mut self, stream: u64, call: &str) -> Outcome<Lane> {
        self.streams.handles.get(stream).copied().ok_or_else(|| {
            let text = format!("{call} on {}", self.streams.handles.fate(stream));
            self.report.add(Fault::BadHandle, text);
            INVALID_HANDLE
        })
    }

    /// As [`World::lane`], for calls that need the stream's context to be current.
    pub fn lane_here(&mut self, here: Here, stream: u64, call: &str) -> Outcome<Lane> {
        let lane = self.lane(here, stream, call)?;
        let found = self.streams.all.get(&lane).filter(|stream| self.root(stream.context) != self.root(here.context));
        let Some(other) = found.map(|stream| stream.describe(lane)) else { return Ok(lane) };
        let text = format!("{call} on {other} of another context than the current {:#x}", here.context);
        self.report.add(Fault::WrongContext, text);
        Err(INVALID_HANDLE)
    }

    /// Puts an operation on a stream, or into the graph it captures; gives its number, 0 in a graph. A wrong touch of a
    /// copy or memset is refused; a kernel's faults when it runs.
    pub fn submit(&mut self, lane: Lane, node: Node) -> Outcome<u64> {
        let stream = self.streams.all.get(&lane).ok_or(INVALID_HANDLE)?;
        let here = Here { context: stream.context, device: stream.device };
        if let Some(capture) = stream.capture {
            return self.record_node(capture, lane, here, node);
        }
        let waits = self.default_order(lane, here.context)?;
        self.races.arrive(lane);
        let clock = self.races.clock(lane);
        let node = self.judge_node(here, lane, node, &clock)?;
        let sequence = self.races.begin(lane);
        for touch in &node.touches {
            self.enter_touch(lane, node.name, *touch);
        }
        let Node { name, touches, mut work, waits: more, .. } = node;
        if let Work::Record(event, _) = work {
            work = self.record(event, lane, sequence);
        }
        let tells = matches!(work, Work::Host(_)).then(|| self.races.clock(lane));
        let waits = waits.into_iter().chain(more).collect();
        self.enqueue(lane, Operation { name, sequence, waits, touches, work, tells })?;
        Ok(sequence)
    }

    /// Order with the legacy default stream: it comes after all blocking streams of its context, and they after it.
    fn default_order(&mut self, lane: Lane, context: u64) -> Outcome<Vec<Target>> {
        let legacy = self.streams.legacy.get(&context).copied();
        let target = |(lane, stream): (Lane, &Stream)| (lane, stream.enqueued);
        let others: Vec<Target> = if legacy == Some(lane) {
            let capturing = self.streams.blocking(context).find_map(|(_, stream)| stream.capture);
            if let Some(capture) = capturing {
                self.captures.invalidate(capture);
                return Err(STREAM_CAPTURE_IMPLICIT);
            }
            self.streams.blocking(context).map(target).collect()
        } else {
            let blocks = self.streams.all.get(&lane).is_some_and(Stream::blocks);
            let legacy = legacy.filter(|_| blocks).and_then(|legacy| Some((legacy, self.streams.all.get(&legacy)?)));
            legacy.map(target).into_iter().collect()
        };
        for (other, _) in &others {
            let clock = self.races.clock(*other);
            self.races.join(lane, &clock);
        }
        Ok(others)
    }

    /// Checks all touches of a node.
    fn judge_node(&mut self, here: Here, lane: Lane, node: Node, clock: &Clock) -> Outcome<Node> {
        let wrong = node.touches.iter().find_map(|touch| {
            let may = self.may_touch(here, node.hand, *touch, clock);
            may.and_then(|()| self.detached(lane, node.hand, *touch)).err()
        });
        let Some((fault, text)) = wrong else { return Ok(node) };
        self.report.add(fault, format!("{} on stream {lane}: {text}", node.name));
        if !node.is_kernel {
            return Err(if fault == Fault::NoAccess { ILLEGAL_ADDRESS } else { INVALID_VALUE }).inspect_err(|code| {
                if *code == ILLEGAL_ADDRESS {
                    self.lose(here.context, *code)
                }
            });
        }
        Ok(Node { touches: Vec::new(), work: Work::Fault(ILLEGAL_ADDRESS), ..node })
    }

    /// Enters a touch of the stream's newest operation, and reports what it races with.
    fn enter_touch(&mut self, lane: Lane, name: &'static str, touch: Touch) {
        let tracked = Arena::has(touch.start) || self.block_at(touch.start).is_some();
        if !tracked {
            return;
        }
        let places = self.places(touch);
        let mut conflict = None;
        for place in &places {
            conflict = conflict.or(self.races.touch(lane, name, *place));
        }
        let virtually = self.races.touch(lane, name, touch);
        if let Some(conflict) = if places.is_empty() { virtually } else { conflict } {
            self.report_race(lane, name, touch, conflict);
        }
    }

    /// The physical bytes behind a touch of mappings: whoever maps them elsewhere touches the same.
    fn places(&self, touch: Touch) -> Vec<Touch> {
        let end = touch.start + touch.bytes;
        let mut places = Vec::new();
        let mut at = touch.start;
        while let Some((start, mapping)) = self.mapping_at(at).filter(|_| at < end) {
            let past = (start + mapping.bytes).min(end);
            let place = vmm::physical(mapping.place + (at - start));
            places.push(Touch { start: place, bytes: past - at, ..touch });
            at = past;
        }
        places
    }

    /// A finding: two operations without order.
    pub fn report_race(&mut self, lane: Lane, name: &str, touch: Touch, conflict: Conflict) {
        let kind = |writes| if writes { "writes" } else { "reads" };
        let earlier = conflict.mark;
        let text = format!(
            "{name} on stream {lane} {} {:#x}+{}, not ordered after {} #{} of stream {}, which {} it",
            kind(touch.writes),
            touch.start,
            touch.bytes,
            earlier.operation,
            earlier.count,
            earlier.lane,
            kind(conflict.wrote)
        );
        self.report.add(Fault::Race, text);
    }

    fn enqueue(&mut self, lane: Lane, operation: Operation) -> Outcome {
        worker::start(self, lane)?;
        let stream = self.streams.all.get_mut(&lane).ok_or(INVALID_HANDLE)?;
        stream.enqueued = operation.sequence;
        stream.queue.push_back(operation);
        self.streams.wake();
        Ok(())
    }

    /// A node of a graph that a stream captures.
    fn record_node(&mut self, id: u64, lane: Lane, here: Here, node: Node) -> Outcome<u64> {
        if self.captures.live.get(id).is_none_or(|capture| capture.invalid) {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let clock = self.races.clock(lane);
        let node = self.judge_node(here, lane, node, &clock)?;
        let touches: Vec<Touch> = node.touches.iter().filter(|touch| Arena::has(touch.start)).copied().collect();
        let Some(capture) = self.captures.live.get_mut(id) else { return Err(STREAM_CAPTURE_INVALIDATED) };
        capture.races.begin(lane);
        let name = node.name;
        let races = touches.iter().map(|touch| (*touch, capture.races.touch(lane, name, *touch)));
        let found: Vec<(Touch, Conflict)> = races.filter_map(|(touch, conflict)| Some((touch, conflict?))).collect();
        if let Work::Record(event, _) = node.work {
            let clock = capture.races.clock(lane);
            self.record_captured(event, id, clock);
        } else {
            capture.nodes.push(node);
        }
        found.into_iter().for_each(|(touch, conflict)| self.report_race(lane, name, touch, conflict));
        Ok(0)
    }
}

impl Node {
    /// A node of a copy or a memset.
    pub fn new(name: &'static str, hand: Hand, touches: Vec<Touch>, work: Work) -> Node {
        Node { name, hand, touches, work, waits: Vec::new(), is_kernel: false }
    }

    /// A node that touches nothing.
    pub fn mark(name: &'static str, work: Work) -> Node {
        Node::new(name, Hand::Copy, Vec::new(), work)
    }
}
