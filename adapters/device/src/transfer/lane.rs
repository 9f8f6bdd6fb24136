//! A lane: a thread with a stream and two slots, which copies one piece while it prepares the next.
//!
//! ```text
//!   slot 0   fill ── copy ──────────► arrived │ fill ── copy ──────────►
//!   slot 1          fill ── copy ────────────►│ arrived   fill ── copy ──
//! ```
//!
//! Promises upward: a piece is copied after all work put on its buffers' streams before the transfer was submitted; an
//! issued piece is waited for before its jobs are settled or refused, even if the driver refused it.
//! Asks from below: a [`Backend`]: a stream that works in order, events.

use super::job::{Direction, JobPart, Route};
use super::queue::Load;
use super::shared::{EngineShared, Next};
use crate::backend::{Backend, CopyRange, RawEvent, RawStream};
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::health::insist;
use crate::source::{destroy, wait};
use crate::staging::StagingBuffer;
use crate::stream::{NO_ROUTE, StreamCore};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Lane {
    shared: Arc<EngineShared>,
    /// The stream on which the pieces of both slots are put.
    stream: RawStream,
    /// Recorded on other streams, for this lane's stream to wait for.
    mark: Option<RawEvent>,
    slots: [LaneSlot; 2],
    /// Index of the slot that is used next; of two pieces in flight, it holds the older.
    turn: usize,
    /// By a stream's owner: the lane's stream waits already for all work that preceded jobs up to this number.
    followed: HashMap<u32, u64>,
    /// When the lane's last piece arrived, or the lane was created.
    heard: Instant,
}

#[derive(Default)]
struct LaneSlot {
    /// Recorded after the copies of the slot's piece.
    event: Option<RawEvent>,
    /// Staging memory for pieces that need it, as large as the largest of these so far.
    stage: Option<StagingBuffer>,
    flight: Option<PieceInFlight>,
}

/// A piece in flight, and when it was issued.
struct PieceInFlight {
    load: Load,
    begun: Instant,
}

/// A piece that could not be put on the stream.
struct PieceRefusal {
    fault: Fault,
    /// Whether the driver got the piece's addresses: a part of it may be in flight.
    begun: bool,
}

impl From<Fault> for PieceRefusal {
    fn from(fault: Fault) -> Self {
        Self { fault, begun: false }
    }
}

thread_local! {
    /// Whether this thread is a lane.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Largest number of streams in `followed`. Each stream that is forgotten costs one more event.
const FOLLOWED: usize = 1024;

impl Lane {
    /// # Errors
    /// The driver's error.
    pub(super) fn new(shared: Arc<EngineShared>) -> Result<Self, DeviceError> {
        let service = Arc::clone(&shared.service);
        let told = |fault| service.error(fault);
        let stream = service.backend().create_stream().map_err(told)?;
        let (slots, followed, heard) = (Default::default(), HashMap::new(), Instant::now());
        // If creating an event fails below, dropping `lane` destroys the stream and the other events.
        let mut lane = Self { shared, stream, mark: None, slots, turn: 0, followed, heard };
        lane.mark = Some(service.backend().create_event().map_err(told)?);
        for slot in &mut lane.slots {
            slot.event = Some(service.backend().create_event().map_err(told)?);
        }
        Ok(lane)
    }

    fn backend(&self) -> &dyn Backend {
        self.shared.service.backend()
    }

    /// Whether the calling thread is a lane of some engine.
    pub(super) fn is_here() -> bool {
        HERE.get()
    }

    /// Moves pieces until the engine is closed and no piece is left.
    pub(super) fn run(mut self) {
        HERE.set(true);
        // If the driver refuses, each call binds the thread itself.
        let _ = self.backend().attach();
        loop {
            let busy = self.slots.iter().any(|slot| slot.flight.is_some());
            match self.shared.next(busy) {
                Next::Load(load) => self.start(load),
                Next::Nothing => {
                    self.settle(self.turn);
                    self.turn ^= 1;
                }
                Next::End => return,
            }
        }
    }

    fn start(&mut self, load: Load) {
        let turn = self.turn;
        self.settle(turn);
        let (load, captured) = self.sift(load);
        if !captured.parts.is_empty() {
            let fault = Fault::of("copy after a stream whose work is captured", FaultReason::Capturing);
            self.shared.counters.begin(captured.route.direction);
            self.shared.refused(captured, fault, true);
        }
        if load.parts.is_empty() {
            return;
        }
        self.turn ^= 1;
        self.shared.counters.begin(load.route.direction);
        let begun = Instant::now();
        match self.issue(turn, &load) {
            Ok(()) => self.slots[turn].flight = Some(PieceInFlight { load, begun }),
            Err(refusal) => self.refused(turn, load, refusal),
        }
    }

    /// Puts a piece on the stream: through the slot's staging memory, unless the device can access the host memory
    /// itself.
    fn issue(&mut self, turn: usize, load: &Load) -> Result<(), PieceRefusal> {
        self.shared.health.check()?;
        self.follow(load)?;
        let ranges: Vec<CopyRange> = load.parts.iter().map(|part| part.range).collect();
        let copies = if load.route.direct { ranges } else { self.staged(turn, load, &ranges)? };
        let (slot, backend) = (&self.slots[turn], self.backend());
        let event = slot.event.ok_or(Fault::of("record", FaultReason::BadHandle))?;
        // SAFETY: the device's ranges lie in blocks that the job keeps, the host's in the slot's staging memory or in
        // buffers that the job keeps; where `settle` and `refused` cannot say that the driver is done, both leak. A
        // caller that waits keeps its own memory: its job is direct only where copies are done when they return.
        let copied = unsafe { backend.copy_batch(&joined(load, copies), self.stream) };
        // SAFETY: the lane's own stream and event.
        let record = || unsafe { backend.record(event, self.stream) };
        copied.and_then(|()| record()).map_err(|fault| PieceRefusal { fault, begun: true })
    }

    /// The copies between the slot's staging memory and the device; bytes for the device are copied into the slot
    /// first.
    fn staged(&mut self, turn: usize, load: &Load, ranges: &[CopyRange]) -> Result<Vec<CopyRange>, Fault> {
        let (up, least) = (load.route.direction == Direction::Up, self.shared.options.chunk.0);
        let kept = self.slots[turn].stage.take().filter(|stage| stage.bytes() >= load.bytes);
        let stage = kept.map_or_else(|| self.shared.service.stage(load.bytes.max(least)), Ok)?;
        let stage = self.slots[turn].stage.insert(stage);
        if up {
            // SAFETY: sources are the jobs' buffers, alive until the jobs end; the slot was settled; the stage has room
            // for all.
            unsafe { stage.fill(ranges) };
        }
        Ok(stage.lend(ranges, up))
    }

    /// Splits a load into parts that may be copied, and parts whose streams are being captured, by terrace's own calls
    /// or by other code: waiting for such a stream would draw the lane's stream into the capture. Queries each stream
    /// once.
    fn sift(&self, load: Load) -> (Load, Load) {
        let Load { route, parts, .. } = load;
        // If the query fails, `record` on the stream fails later.
        // SAFETY: a job keeps its streams.
        let captured = |home: &StreamCore| unsafe { self.backend().is_capturing(home.raw) };
        let ask = |home: &StreamCore| home.route() != NO_ROUTE || captured(home).unwrap_or(false);
        let mut asked = HashMap::new();
        let (captured, free): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| {
            self.unfollowed(part).any(|home| *asked.entry(home.owner.0).or_insert_with(|| ask(home)))
        });
        let load = |parts: Vec<JobPart>| Load { route, bytes: parts.iter().map(|part| part.range.bytes).sum(), parts };
        (load(free), load(captured))
    }

    /// The streams of a part for which the lane's stream does not wait yet.
    fn unfollowed<'a>(&'a self, part: &'a JobPart) -> impl Iterator<Item = &'a Arc<StreamCore>> {
        let follows = |owner| self.followed.get(&owner).is_some_and(|&number| number >= part.job.number);
        part.job.homes.iter().flatten().filter(move |home| !follows(home.owner.0))
    }

    /// Makes the lane's stream wait for all work put on the jobs' streams before the jobs were submitted.
    fn follow(&mut self, load: &Load) -> Result<(), Fault> {
        let taken = self.shared.taken();
        for part in &load.parts {
            let homes: Vec<_> = self.unfollowed(part).map(|home| (home.owner.0, home.raw)).collect();
            for (owner, raw) in homes {
                let mark = self.mark.ok_or(Fault::of("record", FaultReason::BadHandle))?;
                // SAFETY: the lane's own event; the job keeps its streams.
                unsafe { self.backend().record(mark, raw) }?;
                // SAFETY: the lane's own stream and event.
                unsafe { self.backend().order(self.stream, mark) }?;
                if self.followed.len() >= FOLLOWED {
                    self.followed.clear();
                }
                self.followed.insert(owner, taken);
            }
        }
        Ok(())
    }

    /// Waits for the piece of a slot, copies its bytes out of staging memory, and reports it as arrived.
    fn settle(&mut self, turn: usize) {
        let slot = &mut self.slots[turn];
        let (Some(flight), Some(event)) = (slot.flight.take(), slot.event) else { return };
        // Only the event proves that the bytes arrived: copies drawn into a capture have not run, yet the stream is
        // idle.
        // SAFETY: the lane's own event, which lives as long as the lane.
        if let Err(fault) = insist(|| unsafe { self.backend().wait(event) }) {
            return self.refused(turn, flight.load, PieceRefusal { fault, begun: true });
        }
        let Route { direction, direct } = flight.load.route;
        if let (false, Some(stage)) = (direct, &mut self.slots[turn].stage) {
            stage.reclaim();
            if direction == Direction::Down {
                // SAFETY: targets are the jobs' own buffers, alive until the jobs end; the copies into the slot are
                // done.
                unsafe { stage.empty(flight.load.parts.iter().map(|part| part.range)) };
            }
        }
        // While one piece follows another, the time from the last arrival to this one; otherwise, since this piece
        // began.
        let time = self.heard.max(flight.begun).elapsed();
        self.heard = Instant::now();
        self.shared.arrived(flight.load, time);
    }

    /// Reports a refused piece, once none of it is in flight, or once a wait failed to prove that.
    fn refused(&mut self, turn: usize, load: Load, PieceRefusal { mut fault, begun }: PieceRefusal) {
        let Route { direction, direct } = load.route;
        let asked = self.stream;
        let last = wait(self.backend(), asked).err();
        if last.is_some_and(|last| last.reason == FaultReason::Capturing) {
            // The other slot's piece is on the same stream: settle it before the stream is replaced. Settling it may
            // replace the stream, too.
            self.settle(turn ^ 1);
            if self.stream == asked {
                self.renew();
            }
        }
        let done = last.is_none() || !begun;
        match &mut self.slots[turn].stage {
            Some(stage) if done => stage.reclaim(),
            // A staging buffer that is dropped while busy leaks.
            stage => *stage = None,
        }
        // The memory of a lost device is never reused, and with staging the driver got no address of the jobs' host
        // memory: the jobs' buffers need not leak.
        let lost = last.filter(Fault::is_fatal).inspect(|last| fault = *last);
        let kept = lost.is_some() && (!direct || direction == Direction::Within);
        self.shared.refused(load, fault, done || kept);
    }

    /// Replaces the lane's stream after a capture drew it in. No piece may be on the stream. If the driver refuses, the
    /// next piece fails as this one did.
    fn renew(&mut self) {
        let Ok(stream) = self.backend().create_stream() else { return };
        let old = std::mem::replace(&mut self.stream, stream);
        self.followed.clear();
        destroy(self.backend(), old);
    }
}

/// Joins copies that are adjacent at source and target and belong to one job. Ranges of different jobs lie in separate
/// allocations, and a copy must not leave its allocation.
fn joined(load: &Load, copies: Vec<CopyRange>) -> Vec<CopyRange> {
    let mut joined: Vec<CopyRange> = Vec::with_capacity(copies.len());
    let mut job = None;
    // Without staging, the host ranges of one job may lie in separate allocations too; staged ranges lie in one.
    if load.route.direct && load.route.direction != Direction::Within {
        return copies;
    }
    for (part, next) in load.parts.iter().zip(copies) {
        let same = job.replace(Arc::as_ptr(&part.job)) == Some(Arc::as_ptr(&part.job));
        match joined.last_mut().filter(|_| same) {
            Some(last) if last.to + last.bytes == next.to && last.from + last.bytes == next.from => {
                last.bytes += next.bytes;
            }
            _ => joined.push(next),
        }
    }
    joined
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.settle(self.turn);
        self.settle(self.turn ^ 1);
        let backend = self.shared.service.backend();
        for event in self.slots.iter().map(|slot| slot.event).chain([self.mark]).flatten() {
            // SAFETY: `new` made the event; the lane ends here. A refused call destroyed nothing.
            let _ = insist(|| unsafe { backend.destroy_event(event) });
        }
        destroy(backend, self.stream);
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Job;
    use super::super::options::Priority;
    use super::*;

    #[test]
    fn neighbours_of_one_job_are_one_copy() {
        let route = Route { direction: Direction::Up, direct: false };
        let jobs =
            [0, 1].map(|number| Arc::new(Job::new(route, Priority::Normal, [None, None], number, Arc::default())));
        let range = |to, from, bytes| CopyRange { to, from, bytes };
        let ranges = [range(0, 100, 10), range(10, 110, 5), range(15, 200, 5), range(30, 205, 5), range(35, 210, 1)];
        let parts = ranges.iter().zip([0, 0, 0, 0, 1]);
        let parts =
            parts.map(|(&range, job): (_, usize)| JobPart { job: Arc::clone(&jobs[job]), range, refused: 0 }).collect();
        let load = Load { route, parts, bytes: 26 };
        let one = [range(0, 100, 15), range(15, 200, 5), range(30, 205, 5), range(35, 210, 1)];
        assert_eq!(joined(&load, ranges.to_vec()), one);
        let direct = Load { route: Route { direct: true, ..route }, ..load };
        assert_eq!(joined(&direct, ranges.to_vec()), ranges, "host memory that is not ours");
    }
}
