//! One seed: a random program, faults and power cuts.
//!
//! Promises upward: the same seed is the same run.

use crate::model::{Edit, Meta};
use crate::reopen::After;
use crate::session::{Held, Session};
use crate::tally::Tally;
use terrace_file::{ALIGN, FramePool, StoreOptions};
use terrace_tests::Random;
use terrace_tests::disk::{SimDisk, Trace, Verdict, World, some_faults};

/// Operations of a seed.
const OPERATIONS: u64 = 220;

/// Orders that they come to, about: faults are spread over them.
const ORDERS: u64 = 700;

/// Objects and parts: few, so that they are replaced often.
const OBJECTS: u64 = 6;
const PARTS: u64 = 4;

/// Largest piece: a quarter of the smallest slab.
const LARGEST: u64 = 4 * ALIGN as u64;

/// Handles that are held beside the durable objects.
const HELD: usize = 12;

fn options(random: &mut Random) -> StoreOptions {
    let slab_bytes = [64 << 10, 128 << 10][random.below(2) as usize];
    let log_bytes = [32 << 10, 64 << 10][random.below(2) as usize];
    let options = StoreOptions { cap: 0, slab_bytes, log_bytes };
    StoreOptions { cap: options.least_cap() + slab_bytes * (2 + random.below(4)), ..options }
}

/// Runs a seed.
pub fn run(seed: u64, frames: &FramePool, tally: &mut Tally, trace: &Trace) -> Verdict {
    let mut random = Random::new(seed);
    let options = options(&mut random);
    // Sometimes less than the store may take.
    let capacity = if random.once_in(8) { options.cap - options.slab_bytes } else { 2 * options.cap };
    let disk = SimDisk::new(capacity);
    disk.plan(some_faults(&mut random, ORDERS));
    let world = World::new(SimDisk::new(0), frames.clone(), random);
    let (model, held, flights) = Default::default();
    let mut session = Session {
        world,
        store: None,
        options,
        model,
        held,
        flights,
        next: 0,
        over: false,
        lost: false,
        shaken: false,
        unreadable: false,
        aged: Vec::new(),
        stop: u64::MAX,
        tally,
        trace,
    };
    if session.start(disk, options)? == After::Open {
        session.program()?;
    }
    session.leave()?;
    session.tally.runs.seeds += 1;
    Ok(())
}

impl Session<'_> {
    fn chance(&mut self, of: u64) -> u64 {
        self.world.random.below(of)
    }

    fn program(&mut self) -> Verdict {
        let first = self.tally.runs.operations;
        let mut ends: Vec<u64> = (0..3).map(|_| self.chance(OPERATIONS)).collect();
        ends.push(OPERATIONS);
        ends.sort_unstable();
        for end in ends {
            while self.tally.runs.operations - first < end {
                self.operation()?;
                self.harvest()?;
                if self.over {
                    return Ok(());
                }
            }
            for _ in 0..self.chance(30) {
                self.world.step();
            }
            self.harvest()?;
            if self.end()? == After::Lost {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A power cut, a kill or a restart, sometimes with another cap.
    fn end(&mut self) -> Verdict<After> {
        let mut options = self.options;
        match self.chance(6) {
            0 => {
                options.cap = (options.cap - options.slab_bytes).max(options.least_cap());
                self.tally.smaller += 1;
            }
            1 => options.cap += options.slab_bytes,
            _ => {}
        }
        let after = match self.chance(4) {
            0 => self.restart(options)?,
            1 => self.kill(options)?,
            _ => self.cut(options)?,
        };
        // Some of the handles that reading gave.
        let mut random = self.world.random.clone();
        self.held.retain(|_| random.once_in(4));
        self.world.random = random;
        Ok(after)
    }

    fn operation(&mut self) -> Verdict {
        if self.shaken && self.chance(3) == 0 {
            return self.test_limbo();
        }
        match self.chance(16) {
            0..4 => {
                let bytes = 8 + self.world.random.size(LARGEST - 8) as usize;
                self.begin_put(bytes);
            }
            4..9 if self.model.is_full() => self.cut_now()?,
            4 => self.long_commit(),
            5..8 => self.random_commit()?,
            8 => {
                let object = self.chance(OBJECTS);
                if !self.is_touched(object) {
                    self.begin_commit(vec![Edit::Remove(object)], Vec::new(), false);
                }
            }
            9..11 => self.get_any(),
            11 => {
                let object = self.chance(OBJECTS);
                self.look(object)?;
            }
            12 => self.begin_tidy(),
            13 => {
                for _ in 0..self.chance(20) {
                    self.world.step();
                }
            }
            14 => self.drop_some(),
            _ => self.finish()?,
        }
        // Half of the time one operation at a time: then nothing else excuses its errors.
        if !self.over && self.chance(2) == 0 { self.finish() } else { Ok(()) }
    }

    /// The next start tells how the commits of unknown outcome came out.
    fn cut_now(&mut self) -> Verdict {
        self.over = self.cut(self.options)? == After::Lost;
        Ok(())
    }

    fn get_any(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.chance(self.held.len() as u64) as usize;
        let Held { piece, content, .. } = self.held[at].clone();
        self.begin_get(&piece, content);
    }

    fn drop_some(&mut self) {
        while self.held.len() > HELD || (!self.held.is_empty() && self.chance(2) == 0) {
            let at = self.chance(self.held.len() as u64) as usize;
            self.held.swap_remove(at);
        }
    }

    /// Long meta data of many objects: a group of several blocks.
    fn long_commit(&mut self) {
        let free = (0..OBJECTS).filter(|object| !self.is_touched(*object));
        let edits: Vec<Edit> = free.map(|object| Edit::Meta(object, Meta(vec![self.next as u8; 1024]))).collect();
        if !edits.is_empty() {
            self.begin_commit(edits, Vec::new(), false);
        }
    }

    /// A commit has failed, and may come to light after a power cut: what it named must keep its room until then.
    fn test_limbo(&mut self) -> Verdict {
        self.shaken = false;
        self.held.clear();
        for _ in 0..6 {
            self.begin_put(ALIGN);
        }
        self.finish()?;
        self.cut_now()
    }

    /// Several changes of one to three objects.
    fn random_commit(&mut self) -> Verdict {
        let mut objects: Vec<u64> = (0..1 + self.chance(3)).map(|_| self.chance(OBJECTS)).collect();
        objects.retain(|object| !self.is_touched(*object));
        let (mut edits, mut pieces) = (Vec::new(), Vec::new());
        for object in objects {
            for _ in 0..1 + self.chance(3) {
                self.random_edit(object, &mut edits, &mut pieces);
            }
        }
        if !edits.is_empty() {
            let dropped = self.chance(16) == 0;
            self.begin_commit(edits, pieces, dropped);
        }
        Ok(())
    }

    fn random_edit(&mut self, object: u64, edits: &mut Vec<Edit>, pieces: &mut Vec<Held>) {
        match self.chance(8) {
            0 => edits.push(Edit::Remove(object)),
            1..4 => {
                // Some are long: a log is full soon then.
                let bytes = if self.chance(4) == 0 { 1024 } else { self.chance(40) };
                let meta = (0..bytes).map(|at| (at as u8) ^ self.next as u8).collect();
                edits.push(Edit::Meta(object, Meta(meta)));
            }
            _ => {
                // Now and then a piece is a part already: then it has two places.
                let shared = self.chance(4) == 0;
                let mut fresh = (0..self.held.len()).filter(|&at| shared || !self.held[at].committed);
                let Some(at) = fresh.next() else { return };
                self.held[at].committed = true;
                // A handle is kept, or given away.
                let held = if self.chance(2) == 0 { self.held[at].clone() } else { self.held.swap_remove(at) };
                edits.push(Edit::Part(object, self.chance(PARTS) as u32, held.content));
                pieces.push(held);
            }
        }
    }
}
