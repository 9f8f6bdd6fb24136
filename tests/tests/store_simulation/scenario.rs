//! One short scenario, in full: every fault at every order, and a power cut after every order with every combination of what
//! it may leave.
//!
//! Promises upward: the scenario makes and removes slabs and logs, replaces and removes objects, tidies and restarts, so that
//! each kind of order is in it.

use crate::model::{Edit, Meta, Model};
use crate::session::{Held, Session};
use crate::tally::Tally;
use std::sync::Arc;
use terrace_file::{FramePool, StoreOptions};
use terrace_tests::Random;
use terrace_tests::disk::{Cuts, Fault, Planned, SimDisk, Target, Trace, Verdict, World, every_cut};

/// Slabs of 16 pages, logs of 4 blocks: both are full soon.
pub const OPTIONS: StoreOptions = StoreOptions { cap: 320 << 10, slab_bytes: 64 << 10, log_bytes: 32 << 10 };

/// Combinations of one power cut: the orders under way are 4 at most, beside a write of marks that was not synced; a write may be
/// whole, not there, or half there. Where there are more, as many random ones follow.
const BOUND: u64 = 128;

/// A session on a disk of twice the cap.
fn session<'a>(seed: u64, frames: &FramePool, tally: &'a mut Tally, trace: &'a Trace) -> Session<'a> {
    let disk = SimDisk::new(2 * OPTIONS.cap);
    let world = World::new(disk, frames.clone(), Random::new(seed));
    over(world, Model::default(), tally, trace)
}

fn over<'a>(world: World, model: Model, tally: &'a mut Tally, trace: &'a Trace) -> Session<'a> {
    let (held, flights) = Default::default();
    trace.begin(&world.disk);
    let (store, options, next) = (None, OPTIONS, 0);
    Session {
        world,
        store,
        options,
        model,
        held,
        flights,
        next,
        over: false,
        lost: false,
        shaken: false,
        unreadable: false,
        aged: Vec::new(),
        stop: u64::MAX,
        tally,
        trace,
    }
}

/// The scenario with one fault; then a power cut. Which fault fired, if it was at that order.
pub fn with_fault(seed: u64, planned: Planned, frames: &FramePool, tally: &mut Tally, trace: &Trace) -> Verdict<bool> {
    let mut session = session(seed, frames, tally, trace);
    session.world.disk.plan(vec![planned]);
    let exact = |disk: &SimDisk| {
        disk.fired(0).iter().any(|fired| (fired.fault, fired.line.index) == (planned.fault, planned.at))
    };
    let first = Arc::clone(&session.world.disk);
    session.scenario()?;
    session.cut(OPTIONS)?;
    if !session.over {
        session.one_more(50)?;
        session.restart(OPTIONS)?;
    }
    session.leave()?;
    Ok(exact(&first))
}

/// The scenario until so many orders have completed; then every power cut. `None` when it ends before.
pub fn with_cuts(seed: u64, stop: u64, frames: &FramePool, tally: &mut Tally, trace: &Trace) -> Verdict<Option<Cuts>> {
    let mut session = session(seed, frames, tally, trace);
    session.stop = stop;
    if !session.stopped()? {
        session.leave()?;
        return Ok(None);
    }
    let (disk, model) = (Arc::clone(&session.world.disk), session.model.clone());
    let (mut random, mut verdict, mut left) = (session.world.random.clone(), Ok(()), Vec::new());
    let cuts = every_cut(&disk, BOUND, &mut random, |disk| left.push(disk));
    session.leave()?;
    for disk in left {
        let world = World::new(disk, frames.clone(), random.clone());
        let mut next = over(world, model.clone(), session.tally, trace);
        next.tally.runs.cuts += 1;
        verdict = next.open(OPTIONS).and_then(|_| next.one_more(60)).and_then(|()| next.leave());
        if verdict.is_err() {
            break;
        }
    }
    verdict.map(|()| Some(cuts))
}

/// A fault at an order, of any file.
pub fn at(at: u64, fault: Fault) -> Planned {
    Planned { at, fault, on: Target::Any }
}

impl Session<'_> {
    /// Runs the scenario; true when it was stopped before its end.
    fn stopped(&mut self) -> Verdict<bool> {
        match self.scenario() {
            Err(why) if why == Self::STOPPED => Ok(true),
            outcome => outcome.map(|()| false),
        }
    }

    fn scenario(&mut self) -> Verdict {
        self.open(OPTIONS)?;
        // Two pieces at once, and an object of them.
        self.begin_put(5000);
        self.begin_put(300);
        self.finish()?;
        self.keep(1, 2, 10)?;
        // Two commits at once, each of a large piece.
        self.begin_put(16_000);
        self.begin_put(14_000);
        self.finish()?;
        self.begin_keep(2, 1, 1000);
        self.begin_keep(3, 1, 3);
        self.finish()?;
        // A part is replaced, an object goes.
        self.begin_put(4096);
        self.finish()?;
        let edits = self.part(1, 0);
        self.commit(edits, vec![Edit::Remove(2)])?;
        // The slab is full: another. Then all but little of it is free.
        for _ in 0..3 {
            self.begin_put(15_000);
        }
        self.finish()?;
        self.keep(4, 1, 1000)?;
        self.held.clear();
        self.begin_put(10);
        self.finish()?;
        self.keep(5, 1, 1000)?;
        self.commit(Vec::new(), vec![Edit::Remove(4)])?;
        // What is put meanwhile must not land where the moved piece still is.
        self.begin_tidy();
        (0..2).for_each(|_| self.begin_put(8000));
        self.finish()?;
        self.restart(OPTIONS)?;
        if self.over { Ok(()) } else { self.one_more(40) }
    }

    /// An object more, and a look at all of them.
    fn one_more(&mut self, object: u64) -> Verdict {
        if self.over {
            return Ok(());
        }
        self.next = self.next.max(object * 1000);
        self.begin_put(700);
        self.finish()?;
        self.keep(object, 1, 20)?;
        for object in self.store().objects() {
            self.look(object)?;
        }
        self.finish()
    }

    /// Makes an object of the pieces that were put last.
    fn begin_keep(&mut self, object: u64, parts: usize, meta: usize) {
        let mut edits = vec![(Edit::Meta(object, Meta(vec![object as u8; meta])), None)];
        for part in 0..parts as u32 {
            edits.extend(self.part(object, part));
        }
        self.begin(edits);
    }

    fn keep(&mut self, object: u64, parts: usize, meta: usize) -> Verdict {
        self.begin_keep(object, parts, meta);
        self.finish()
    }

    /// The newest piece that is nobody's as a part; nothing when it could not be put.
    fn part(&mut self, object: u64, part: u32) -> Vec<(Edit, Option<Held>)> {
        let newest = self.held.iter_mut().filter(|held| !held.committed).max_by_key(|held| held.content.id);
        let Some(held) = newest else { return Vec::new() };
        held.committed = true;
        vec![(Edit::Part(object, part, held.content), Some(held.clone()))]
    }

    fn begin(&mut self, edits: Vec<(Edit, Option<Held>)>) {
        let (edits, pieces): (Vec<_>, Vec<_>) = edits.into_iter().unzip();
        self.begin_commit(edits, pieces.into_iter().flatten().collect(), false);
    }

    fn commit(&mut self, edits: Vec<(Edit, Option<Held>)>, more: Vec<Edit>) -> Verdict {
        self.begin(edits.into_iter().chain(more.into_iter().map(|edit| (edit, None))).collect());
        self.finish()
    }
}
