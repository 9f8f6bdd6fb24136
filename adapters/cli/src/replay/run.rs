//! One pool, driven through a trace.
//!
//! Promises upward: each step is one call (a reallocation that cannot be done in place: two), timed by one reading of
//! the clock; the time of an event runs from reading to reading, so that it holds the loop's own cost too, about 20 ns.
//! Asks from below: an allocator; chunks in order.

use super::ticks::Ticks;
use crate::failure::Failure;
use crate::output::thousands;
use crate::pools::SourceKind;
use crate::pools::{Entry, Setup};
use crate::results::{Row, Times};
use crate::steps::{Action, Chunk, Step};
use quanta::Clock;
use std::cell::Cell;
use std::rc::Rc;
use terrace::{AllocError, Allocator, Block, FreeError, Owner, Request};

/// What a pool gave for a slot.
#[derive(Clone, Copy, Debug)]
struct Held {
    block: Block,
    /// Bytes asked for; 0 when the slot is empty or its allocation failed.
    bytes: u64,
}

const EMPTY: Held = Held { block: Block { address: 0, bytes: 0, slot: 0, region: 0, ticket: 0 }, bytes: 0 };

/// One pool on its way through a trace.
pub struct Run {
    name: &'static str,
    pool: Box<dyn Allocator>,
    /// The number of the event, for the fence.
    now: Rc<Cell<u64>>,
    held: Vec<Held>,
    /// Sum of `bytes` over `held`.
    live: u64,
    peak_live: u64,
    failed: u64,
    /// The first failure: number of the event, and why. `Some` iff `failed > 0`.
    first: Option<(u64, AllocError)>,
    ticks: Ticks,
    /// Bytes reserved at each point of the timeline.
    reserved: Vec<u64>,
}

impl Run {
    /// A fresh pool.
    pub fn new(entry: &Entry, setup: &Setup) -> Result<Self, Failure> {
        let fail = |what: String| Failure::Pool { pool: entry.name, what };
        Ok(Self {
            name: entry.name,
            pool: (entry.make)(setup).map_err(fail)?,
            now: setup.clock(),
            held: Vec::new(),
            live: 0,
            peak_live: 0,
            failed: 0,
            first: None,
            ticks: Ticks::new().map_err(|error| fail(error.to_string()))?,
            reserved: Vec::new(),
        })
    }

    /// Bytes reserved at each point of the timeline.
    pub fn reserved_mut(&mut self) -> &mut Vec<u64> {
        &mut self.reserved
    }

    /// When and why it failed first, for people; `None` when it never did.
    pub fn failure(&self) -> Option<String> {
        let (event, error) = self.first?;
        Some(format!("{}: {} failed, the first at event {event}: {error}", self.name, thousands(self.failed)))
    }

    /// Replays a chunk whose first step is event number `first`.
    pub fn replay(&mut self, chunk: &Chunk, first: u64, clock: &Clock) -> Result<(), Failure> {
        self.held.resize(chunk.slots.max(self.held.len()), EMPTY);
        let mut begin = 0;
        for &moment in &chunk.moments {
            // Looking at the pool is not timed: the clock is read anew after it.
            self.stretch(&chunk.steps[begin..=moment], first + begin as u64, clock)?;
            self.reserved.push(self.pool.stats().reserved);
            begin = moment + 1;
        }
        self.stretch(&chunk.steps[begin..], first + begin as u64, clock)
    }

    fn stretch(&mut self, steps: &[Step], first: u64, clock: &Clock) -> Result<(), Failure> {
        let mut last = clock.raw();
        for (event, step) in (first..).zip(steps) {
            self.now.set(event);
            if let Err(error) = self.step(step) {
                return Err(Failure::Pool { pool: self.name, what: format!("event {event}: refused a free: {error}") });
            }
            let now = clock.raw();
            self.ticks.record(now.saturating_sub(last));
            last = now;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, step: &Step) -> Result<(), FreeError> {
        let slot = step.slot as usize;
        let held = self.held[slot];
        match step.action {
            Action::Allocate => {
                if let Some(held) = self.allocate(step) {
                    self.held[slot] = held;
                    self.grow(0, step.bytes);
                }
            }
            Action::Free if held.bytes > 0 => {
                self.held[slot].bytes = 0;
                self.live -= held.bytes;
                self.pool.free(held.block, step.owner)?;
            }
            Action::Reallocate if held.bytes > 0 => {
                if let Some(new) = self.reallocate(held, step)? {
                    self.held[slot] = new;
                    self.grow(held.bytes, step.bytes);
                }
            }
            // The allocation failed on this pool: there is nothing to resize or free.
            Action::Free | Action::Reallocate => {}
        }
        Ok(())
    }

    fn allocate(&mut self, step: &Step) -> Option<Held> {
        let request = Request::new(step.bytes).align(1 << step.align_log2).owner(step.owner);
        match self.pool.allocate(request) {
            Ok(block) => Some(Held { block, bytes: step.bytes }),
            Err(error) => {
                self.failed += 1;
                self.first.get_or_insert((self.now.get(), error));
                None
            }
        }
    }

    /// In place where the address suits and the pool can; else a new block, then the old one goes. When that fails
    /// the old one stays, as with `realloc`.
    fn reallocate(&mut self, old: Held, step: &Step) -> Result<Option<Held>, FreeError> {
        let aligned = old.block.address.trailing_zeros() >= step.align_log2.into();
        if aligned && let Ok(block) = self.pool.resize(old.block, step.bytes) {
            return Ok(Some(Held { block, bytes: step.bytes }));
        }
        let new = self.allocate(step);
        if new.is_some() {
            self.pool.free(old.block, step.owner)?;
        }
        Ok(new)
    }

    fn grow(&mut self, old: u64, new: u64) {
        self.live = self.live - old + new;
        self.peak_live = self.peak_live.max(self.live);
    }

    /// The row of the table; then frees everything and trims, to see what stays reserved.
    pub fn finish(mut self, trace: &str, source: SourceKind, events: u64, clock: &Clock) -> Result<Row, Failure> {
        let stats = self.pool.stats();
        // All fences are open from here on.
        self.now.set(u64::MAX);
        for held in self.held.iter_mut().filter(|held| held.bytes > 0) {
            held.bytes = 0;
            self.pool.free(held.block, Owner(0)).map_err(|error| Failure::Pool {
                pool: self.name,
                what: format!("after the last event: refused a free: {error}"),
            })?;
        }
        self.pool.trim();
        let after = self.pool.stats().reserved;
        let (ticks, longest) = self.ticks.finish();
        let times = Times::new(&ticks, longest, clock);
        Ok(Row::new(trace, self.name, source, events, (self.peak_live, self.failed), &stats, after, &times))
    }
}

#[cfg(test)]
mod tests;
