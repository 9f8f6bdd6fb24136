//! One seed: a random program, faults, power cuts and kills.
//!
//! Promises upward: the same seed is the same run.

use crate::reopen::CHUNK;
use crate::session::{LEAST, Session, Setup};
use crate::tally::Tally;
use terrace_file::{FramePool, StoreOptions};
use terrace_tests::Random;
use terrace_tests::disk::{SimDisk, Trace, Verdict, Window, World, some_faults};
use terrace_tiers::ledger::{PlacementHint, TenantQuota};
use terrace_tiers::manager::BufferOptions;

/// Operations of a seed.
const OPERATIONS: u64 = 220;

/// Orders that they come to, about: faults are spread over them.
const ORDERS: u64 = 900;

/// Names: few, so that they are used again.
const NAMES: u64 = 6;

/// Buffers that live together, at most: more than memory holds.
const LIVE: usize = 14;

/// Allocations that wait together.
const WAITING: usize = 3;

fn setup(random: &mut Random) -> Setup {
    let slab_bytes = [64 << 10, 128 << 10][random.below(2) as usize];
    let log_bytes = [32 << 10, 64 << 10][random.below(2) as usize];
    let options = StoreOptions { cap: 0, slab_bytes, log_bytes };
    let options = StoreOptions { cap: options.least_cap() + slab_bytes * (1 + random.below(4)), ..options };
    let memory = (32 + 8 * random.below(6)) << 10;
    let mut bounded = TenantQuota { cap: 64 << 10, ..TenantQuota::UNLIMITED };
    bounded.guaranteed[0] = 16 << 10;
    let tenants = if random.once_in(2) { Vec::new() } else { vec![TenantQuota::UNLIMITED, bounded] };
    Setup { memory, options, pinned: memory / 4 * 3, tenants }
}

/// Runs a seed.
pub fn run(seed: u64, frames: &FramePool, tally: &mut Tally, trace: &Trace) -> Verdict {
    let mut random = Random::new(seed);
    let setup = setup(&mut random);
    // Sometimes less than the store may take.
    let capacity = if random.once_in(8) { setup.options.cap - setup.options.slab_bytes } else { 2 * setup.options.cap };
    let disk = SimDisk::new(capacity);
    disk.plan(some_faults(&mut random, ORDERS));
    let calm = Window::open(&disk, None);
    let world = World::new(SimDisk::new(0), frames.clone(), random);
    let (model, handles, flights) = Default::default();
    let mut session = Session {
        world,
        manager: None,
        memory: 0,
        setup,
        model,
        handles,
        flights,
        next: 0,
        now: 0,
        calm,
        over: false,
        lost: false,
        aged: false,
        tally,
        trace,
    };
    session.start(disk)?;
    session.program()?;
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
        let mut ends: Vec<u64> = (0..4).map(|_| self.chance(OPERATIONS)).collect();
        ends.push(OPERATIONS);
        ends.sort_unstable();
        for end in ends {
            while self.tally.runs.operations - first < end && !self.over {
                self.operation()?;
                self.harvest()?;
            }
            self.some_steps(30);
            self.harvest()?;
            match self.chance(5) {
                _ if self.over => return Ok(()),
                0 => self.restart()?,
                1..3 => self.kill()?,
                _ => self.cut()?,
            }
        }
        Ok(())
    }

    fn some_steps(&mut self, most: u64) {
        for _ in 0..self.chance(most) {
            self.world.step();
        }
    }

    fn operation(&mut self) -> Verdict {
        match self.chance(20) {
            0..4 => self.allocate_any(),
            4 => self.some_steps(20),
            5 => self.finish()?,
            6 => self.ticks(),
            7 => {
                let mut random = self.world.random.clone();
                self.release(|_| random.once_in(2));
                self.world.random = random;
            }
            8 => self.squeeze()?,
            _ => self.use_any()?,
        }
        // Half of the time one operation at a time: then nothing else excuses its errors.
        if self.chance(2) == 0 { self.finish() } else { Ok(()) }
    }

    fn allocate_any(&mut self) {
        let waiting = self.flights.iter().filter(|flight| flight.job.is_waiting()).count();
        let wait = self.chance(4) == 0;
        if self.model.len() + self.flights.len() >= LIVE || (wait && waiting == WAITING) {
            return;
        }
        let name = format!("buffer {}", self.chance(NAMES));
        let named = self.chance(4) > 0 && self.manager().open(&name).is_err();
        let tenant = self.chance(self.setup.tenants.len().max(1) as u64) as u16;
        // One in sixteen is larger than memory.
        let most = if self.chance(16) == 0 { 24 * CHUNK as u64 } else { 5 * CHUNK as u64 };
        let bytes = 1 + self.chance(most) as usize;
        let hint = PlacementHint {
            tier: [None, None, None, Some(0), Some(1)][self.chance(5) as usize],
            keep: self.chance(4) == 0,
        };
        self.allocate(bytes, BufferOptions { name: named.then_some(name), tenant, hint, wait });
    }

    fn ticks(&mut self) {
        let (count, apart) = (1 + self.chance(50), self.chance(2000));
        self.count(|| format!("{count} ticks of {apart}"));
        (0..count).for_each(|_| self.tick(apart));
    }

    /// Another budget of memory, for a while.
    fn squeeze(&mut self) -> Verdict {
        let memory = self.setup.memory / (1 + self.chance(LEAST));
        self.count(|| "more or less memory".into());
        self.resize(memory).map(drop)
    }

    /// Uses some buffer.
    fn use_any(&mut self) -> Verdict {
        let live: Vec<u64> = self.handles.keys().copied().filter(|key| self.live(*key)).collect();
        if live.is_empty() {
            return Ok(());
        }
        let key = live[self.chance(live.len() as u64) as usize];
        let bytes = self.model[&key].bytes as u64;
        if self.model[&key].vague {
            self.free(key);
            return Ok(());
        }
        let offset = self.chance(bytes);
        let count = (1 + self.chance(bytes - offset)) as usize;
        let (offset, count) = if self.chance(4) == 0 { (0, bytes as usize) } else { (offset as usize, count) };
        let (written, named) = (self.is_written(key), self.model[&key].name.is_some());
        match self.chance(16) {
            0..4 if !written => self.write(key, offset, count),
            4..7 => self.read(key, offset, count),
            7 => self.lease(key),
            8 if !written => self.lease_mut(key),
            9..12 if named => self.sync(key),
            12 => self.demote(key),
            13 => self.promote(key),
            14 => {
                self.count(|| format!("prefetch {key}"));
                self.manager().prefetch(&self.handles[&key]).map_err(|error| format!("prefetch: {error}"))?;
            }
            15 => self.free(key),
            _ => self.read(key, offset, count),
        }
        Ok(())
    }
}
