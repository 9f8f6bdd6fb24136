//! Captures, and the graphs they make.
//!
//! Upward: operations of a capturing stream become nodes; a graph's replay runs them again, in the order of their calls,
//! which is one that their dependencies allow.
//! From below: [`Races`] of its own for each capture: branches of one graph may race too.

use super::{Target, Work};
use crate::abi::attributes::mode;
use crate::abi::codes::{
    ILLEGAL_STATE, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNJOINED, STREAM_CAPTURE_UNMATCHED,
    STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD,
};
use crate::abi::{Outcome, c_int};
use crate::machine::{Kind, Table, World, current};
use crate::memory::check::Hand;
use crate::order::{Lane, Races, Touch};
use std::collections::BTreeSet;
use std::thread::ThreadId;

/// An operation before it has a place in a stream.
#[derive(Clone)]
pub struct Node {
    /// The call or kernel.
    pub name: &'static str,
    /// Who touches.
    pub hand: Hand,
    /// What it touches.
    pub touches: Vec<Touch>,
    /// What it does.
    pub work: Work,
    /// Operations of other streams that must be done before.
    pub waits: Vec<Target>,
    /// Kernels with wrong arguments fault when they run; other calls are refused.
    pub is_kernel: bool,
}

/// A capture under way.
pub struct Capture {
    /// The stream it began on.
    origin: Lane,
    /// `CUstreamCaptureMode`.
    mode: c_int,
    /// The thread that began it.
    thread: ThreadId,
    /// A call that captures forbid was made: the graph is spoiled.
    pub invalid: bool,
    /// Streams that take part.
    pub lanes: BTreeSet<Lane>,
    /// What was captured.
    pub nodes: Vec<Node>,
    /// The order of it.
    pub races: Races,
}

/// Captures, and graphs.
pub struct Captures {
    /// Captures under way, by a number that is also their name in `cuStreamGetCaptureInfo`.
    pub live: Table<Capture>,
    /// Graphs.
    pub graphs: Table<Vec<Node>>,
    /// Graphs that are ready to launch.
    pub execs: Table<Vec<Node>>,
}

impl Captures {
    /// None.
    pub fn new(generation: u64) -> Captures {
        Captures {
            live: Table::new(Kind::Graph, generation.wrapping_add(0x8000), false),
            graphs: Table::new(Kind::Graph, generation, false),
            execs: Table::new(Kind::Exec, generation, false),
        }
    }

    /// Spoils a capture.
    pub fn invalidate(&mut self, capture: u64) {
        self.live.get_mut(capture).into_iter().for_each(|capture| capture.invalid = true);
    }
}

impl World {
    /// Calls that may start or wait for other work are forbidden while some thread captures: they give the error and
    /// spoil the captures that forbid them.
    pub fn forbidden_in_capture(&mut self) -> Outcome {
        let mine = current::mode();
        let thread = std::thread::current().id();
        let forbids = |capture: &Capture| {
            let local = capture.thread == thread && capture.mode != mode::RELAXED;
            mine != mode::RELAXED && (local || (mine == mode::GLOBAL && capture.mode == mode::GLOBAL))
        };
        let mut spoiled = false;
        for capture in self.captures.live.values_mut().filter(|capture| forbids(capture)) {
            capture.invalid = true;
            spoiled = true;
        }
        if spoiled { Err(STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Waiting for or asking about a stream that captures spoils the capture.
    pub fn not_capturing(&mut self, lane: Lane) -> Outcome {
        let Some(capture) = self.streams.all.get(&lane).and_then(|stream| stream.capture) else { return Ok(()) };
        self.captures.invalidate(capture);
        Err(STREAM_CAPTURE_UNSUPPORTED)
    }

    /// `cuStreamBeginCapture`.
    pub fn begin_capture(&mut self, lane: Lane, mode: c_int) -> Outcome {
        if self.streams.legacy.values().any(|legacy| *legacy == lane) {
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        let Some(stream) = self.streams.all.get_mut(&lane).filter(|stream| stream.capture.is_none()) else {
            return Err(ILLEGAL_STATE);
        };
        let capture = Capture {
            origin: lane,
            mode,
            thread: std::thread::current().id(),
            invalid: false,
            lanes: BTreeSet::from([lane]),
            nodes: Vec::new(),
            races: Races::default(),
        };
        stream.capture = Some(self.captures.live.insert(capture));
        Ok(())
    }

    /// `cuStreamEndCapture`: the graph. Whatever went wrong, nobody captures afterwards, but for the wrong stream or
    /// thread.
    pub fn end_capture(&mut self, lane: Lane) -> Outcome<u64> {
        let id = self.streams.all.get(&lane).and_then(|stream| stream.capture).ok_or(ILLEGAL_STATE)?;
        let capture = self.captures.live.get(id).ok_or(ILLEGAL_STATE)?;
        if capture.origin != lane {
            return Err(STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != mode::RELAXED && capture.thread != std::thread::current().id() {
            return Err(STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.captures.live.remove(id).ok_or(ILLEGAL_STATE)?;
        let taking_part = self.streams.all.values_mut().filter(|stream| stream.capture == Some(id));
        taking_part.for_each(|stream| stream.capture = None);
        if capture.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let end = capture.races.clock(lane);
        let joined = |other: &Lane| end.of(*other) >= capture.races.clock(*other).of(*other);
        if !capture.lanes.iter().all(joined) {
            return Err(STREAM_CAPTURE_UNJOINED);
        }
        Ok(self.captures.graphs.insert(capture.nodes))
    }
}
