//! Keeps a pool in shape: caches that follow the pressure, memory that goes back, gaps that join.
//!
//! ```text
//!   a miss, or a free that no cache kept   level of pressure changed ─► caps of the caches; too much cached ─► caches emptied
//!   maintain                               the same; a window of `idle` is over ─► what it did not need goes back, down to `keep`
//!   trim, defragment                       on request, after the streams' work
//! ```
//!
//! Promises upward: a hit does none of this; reserved memory goes no lower than `keep`, but for a request that needs it.
//! Asks from below: the arena, which counts the peak of a window; the caller's clock.

use super::{DevicePool, PoolState};
use crate::backend::Backend;
use crate::error::DeviceError;
use crate::options::DeviceOptions;
use crate::stats::DeviceMaintenance;
use std::time::{Duration, Instant};
use terrace_core::arena::Defragmentation;
use terrace_core::pressure::{CachePolicy, Level, level_after, level_bounds};
use terrace_core::{Allocator, Block, Source};

impl<B: Backend> DevicePool<B> {
    /// Does what is due at a call that reaches the pool; `freed` is the size of a block that a cache did not keep, though it could.
    /// While nothing is due, a few comparisons.
    pub(super) fn keep_in_shape(&self, inner: &mut PoolState<B>, freed: u64) {
        if inner.is_beyond(&self.options, freed) {
            inner.drain();
        }
        if self.options.adapt {
            inner.follow_pressure(&self.options);
        }
    }

    /// Bytes of a freed block, if it is small enough for a cache.
    pub(super) fn refused_by_cache(&self, block: &Block) -> u64 {
        if block.bytes <= self.options.small_threshold { block.bytes } else { 0 }
    }

    /// Empties the streams' caches; returns their bytes.
    pub(super) fn coalesce(&self) -> u64 {
        if self.context.health.forked() {
            return 0;
        }
        let mut inner = self.inner();
        let bytes = inner.drain();
        self.unlock(inner);
        bytes
    }

    /// Empties the caches and gives unused memory back to the driver; keeps `keep` bytes of the device's.
    pub(super) fn trim(&self) -> u64 {
        if self.context.health.forked() {
            return 0;
        }
        let mut inner = self.inner();
        inner.drain();
        inner = self.wait_for_held(inner);
        let mut given = inner.arena.trim_to(self.options.keep);
        given += inner.sides.iter_mut().flatten().map(Allocator::trim).sum::<u64>();
        given += inner.reap_graphs(true);
        self.unlock(inner);
        self.drop_stage();
        if self.usable().is_ok() {
            // Releases freed memory that the driver's own pool caches. If it refuses, that memory is released with the
            // device.
            let _ = self.context.backend.trim().map_err(|fault| self.context.health.note(fault));
        }
        given
    }

    /// Adapts the caps of all streams' caches to the pressure on the device.
    pub(super) fn adapt(&self, policy: &CachePolicy) {
        if self.context.health.forked() {
            return;
        }
        let mut inner = self.inner();
        let (used, capacity) = inner.used();
        inner.each_stream(|stream| stream.adapt(policy, used, capacity));
        self.unlock(inner);
    }

    /// Does what is due at a moment.
    pub(super) fn maintain(&self, now: Instant) -> DeviceMaintenance {
        let mut done = DeviceMaintenance::default();
        if self.context.health.forked() {
            return done;
        }
        let options = &self.options;
        let mut inner = self.inner();
        inner.poll();
        done.adapted = options.adapt && inner.follow_pressure(options);
        let is_over = inner.window_is_over(now, options.idle);
        let (used, capacity) = inner.used();
        let level = level_after(inner.level, used, capacity, options.pressure_begins());
        if is_over || level >= Level::High || inner.is_beyond(options, 0) {
            done.coalesced = inner.drain();
        }
        if is_over {
            let needed = inner.arena.begin_window();
            done.returned = inner.arena.release(needed.max(options.keep));
            for side in inner.sides.iter_mut().flatten() {
                let needed = side.begin_window();
                done.returned += side.release(needed);
            }
        }
        self.unlock(inner);
        done
    }

    /// Moves at most `most` bytes of pages, so that the largest free extent grows.
    pub(super) fn defragment(&self, most: u64) -> Result<Defragmentation, DeviceError> {
        self.usable()?;
        let mut inner = self.inner();
        inner.drain();
        inner = self.wait_for_held(inner);
        inner = self.wait_for_all_growths(inner);
        let done = inner.arena.defragment(most);
        self.unlock(inner);
        // A lost device moves nothing.
        self.usable()?;
        Ok(done)
    }
}

impl<B: Backend> PoolState<B> {
    /// Bytes in use, and the capacity.
    fn used(&self) -> (u64, u64) {
        (self.arena.in_use(), self.arena.source().usage().capacity)
    }

    /// Makes a call for each stream that is open.
    pub(super) fn each_stream(&mut self, mut call: impl FnMut(&crate::stream::StreamCore)) {
        for stream in self.streams.iter().filter_map(|(stream, _)| stream.upgrade()) {
            call(&stream);
            self.parting.push(stream);
        }
    }

    /// Whether the caches would hold more than the options allow, with `more` bytes. O(streams) where they allow less than all.
    fn is_beyond(&mut self, options: &DeviceOptions, more: u64) -> bool {
        if options.coalesce == 0 || options.coalesce == u64::MAX {
            return false;
        }
        let mut cached = more;
        self.each_stream(|stream| cached += stream.cached());
        cached > options.coalesce
    }

    /// Sets the caps of the caches to what the level of pressure allows, if it has changed; returns whether it has.
    fn follow_pressure(&mut self, options: &DeviceOptions) -> bool {
        let (used, capacity) = self.used();
        if self.level_holds.0 == capacity && self.level_holds.1.contains(&used) {
            return false;
        }
        let begins = options.pressure_begins();
        let level = level_after(self.level, used, capacity, begins);
        self.level_holds = (capacity, level_bounds(level, capacity, begins));
        if level == std::mem::replace(&mut self.level, level) {
            return false;
        }
        let cap = options.cached_at(level);
        self.each_stream(|stream| stream.set_cap(cap));
        true
    }

    /// Whether a window of `idle` milliseconds is over; the first call begins one, and one that is over begins the next.
    fn window_is_over(&mut self, now: Instant, idle: u32) -> bool {
        if idle == 0 {
            return false;
        }
        match self.window {
            Some(began) if now.saturating_duration_since(began) < Duration::from_millis(idle.into()) => false,
            Some(_) => {
                self.window = Some(now);
                true
            }
            None => {
                self.window = Some(now);
                self.arena.begin_window();
                self.sides.iter_mut().flatten().for_each(|side| _ = side.begin_window());
                false
            }
        }
    }
}
