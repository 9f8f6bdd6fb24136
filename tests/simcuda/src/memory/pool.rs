//! Pools of the driver: stream-ordered allocation.
//!
//! Upward: [`World::pool_allocate`], [`World::pool_free`], [`World::trim_pools`]. A block that a stream freed may be
//! allocated again by the same stream at once, by others when the free is done; and goes back to the device when its
//! pool keeps more than its threshold and somebody waits, or when the device has nothing else left.
//! From below: blocks.

use super::Holder;
use super::blocks::shape;
use crate::abi::{Code, Outcome, codes::OUT_OF_MEMORY};
use crate::machine::World;
use crate::machine::context::Here;
use crate::order::Lane;
use std::collections::BTreeMap;

/// A block that waits in its pool.
#[derive(Clone, Copy, Debug)]
struct Kept {
    start: u64,
    /// Bytes it has room for, and bytes counted.
    room: u64,
    charged: u64,
    /// Stream that freed it, and the free's number among that stream's operations.
    lane: Lane,
    sequence: u64,
}

/// A pool.
pub struct Pool {
    /// Its device.
    pub device: usize,
    /// Bytes that it keeps when somebody waits.
    pub threshold: u64,
    /// The most bytes it may hold; 0 for no limit.
    pub max: u64,
    /// Bytes in blocks that are allocated.
    pub used: u64,
    /// The most there ever were since this was set back.
    pub used_high: u64,
    /// Bytes taken from the device: `used` plus what is kept.
    pub reserved: u64,
    /// The most there ever were since this was set back.
    pub reserved_high: u64,
    /// Rights of other devices.
    pub access: BTreeMap<usize, i32>,
    /// By attribute: 1, 2 and 3, the ways to use memory again. They change nothing here.
    pub reuse: [i32; 3],
    /// Blocks that were freed, oldest first.
    kept: Vec<Kept>,
}

impl Pool {
    /// An empty pool.
    pub fn new(device: usize, max: u64) -> Pool {
        Pool {
            device,
            threshold: 0,
            max,
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            access: BTreeMap::new(),
            reuse: [1; 3],
            kept: Vec::new(),
        }
    }

    /// Enters an allocation.
    fn grow(&mut self, used: u64, reserved: u64) {
        self.used += used;
        self.reserved += reserved;
        self.used_high = self.used_high.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved);
    }
}

impl World {
    /// Allocates for the operation `sequence`, to come, of a stream.
    pub fn pool_allocate(&mut self, pool: u64, here: Here, bytes: u64, lane: Lane) -> Outcome<u64> {
        let (.., charged) = shape(bytes.clamp(1, 1 << 46));
        if let Some(start) = self.pool_reuse(pool, bytes, lane) {
            return Ok(start);
        }
        let found = self.memory.pools.get(pool).ok_or(Code(1))?;
        let device = found.device;
        if found.max != 0 && found.reserved + charged > found.max {
            return Err(OUT_OF_MEMORY);
        }
        let start = self.allocate(Here { device, ..here }, bytes, Holder::Pool(pool))?;
        self.memory.pools.get_mut(pool).into_iter().for_each(|pool| pool.grow(charged, charged));
        Ok(start)
    }

    /// A kept block of the right size that this stream may have.
    fn pool_reuse(&mut self, pool: u64, bytes: u64, lane: Lane) -> Option<u64> {
        let found = self.memory.pools.get(pool)?;
        let fits = |kept: &Kept| kept.room >= bytes && kept.room <= bytes.saturating_mul(2) && bytes > 0;
        let may = |kept: &Kept| kept.lane == lane || self.streams.is_done(kept.lane, kept.sequence);
        let at = found.kept.iter().position(|kept| fits(kept) && may(kept))?;
        let kept = self.memory.pools.get_mut(pool)?.kept.remove(at);
        self.memory.pools.get_mut(pool)?.grow(kept.charged, 0);
        let id = self.memory.next_id();
        let block = self.memory.blocks.get_mut(&kept.start)?;
        (block.bytes, block.id, block.freed) = (bytes, id, None);
        let (base, span) = (block.base, block.span);
        self.races.ledger.forget(base, span);
        Some(kept.start)
    }

    /// A stream's operation frees a block: its pool keeps it.
    pub fn pool_free(&mut self, start: u64, lane: Lane, sequence: u64, call: String) {
        let Some(block) = self.memory.blocks.get_mut(&start) else { return };
        let Holder::Pool(pool) = block.holder else { return };
        block.freed = Some(call);
        let room = block.span - (start - block.base);
        let kept = Kept { start, room, charged: block.charged, lane, sequence };
        if let Some(pool) = self.memory.pools.get_mut(pool) {
            pool.used -= kept.charged;
            pool.kept.push(kept);
        }
    }

    /// A block of a pool is freed at once. No operation on it runs.
    pub fn pool_free_now(&mut self, start: u64, call: &'static str) {
        let Some(block) = self.memory.blocks.get(&start) else { return };
        let (holder, charged) = (block.holder, block.charged);
        if let Holder::Pool(pool) = holder
            && let Some(pool) = self.memory.pools.get_mut(pool)
        {
            pool.used -= charged;
            pool.reserved -= charged;
        }
        self.free_block(start, call);
    }

    /// Gives kept blocks back, of all pools of a device, until `wanted` bytes of the device are free.
    pub fn trim_pools(&mut self, device: usize, wanted: u64) {
        let of_device = |(_, pool): &(u64, &Pool)| pool.device == device;
        let pools: Vec<u64> = self.memory.pools.iter().filter(of_device).map(|(handle, _)| handle).collect();
        for pool in pools {
            while self.left(device) < wanted && self.trim_one(pool) {}
        }
    }

    /// Gives kept blocks of a pool back until it holds at most `keep` bytes.
    pub fn trim_pool(&mut self, pool: u64, keep: u64) {
        while self.memory.pools.get(pool).is_some_and(|pool| pool.reserved > keep) && self.trim_one(pool) {}
    }

    /// Somebody waited for streams: pools give back what they hold above their thresholds.
    pub fn trim_to_thresholds(&mut self) {
        let pools: Vec<(u64, u64)> = self.memory.pools.iter().map(|(handle, pool)| (handle, pool.threshold)).collect();
        pools.into_iter().for_each(|(pool, threshold)| self.trim_pool(pool, threshold));
    }

    /// Gives the oldest kept block back whose free is done.
    fn trim_one(&mut self, pool: u64) -> bool {
        let Some(found) = self.memory.pools.get(pool) else { return false };
        // An operation that should have come before the free may still be there: a mistake that was reported, and must
        // not touch memory that is gone.
        let done = |kept: &Kept| {
            self.streams.is_done(kept.lane, kept.sequence) && self.touching(kept.start, kept.room).is_empty()
        };
        let Some(at) = found.kept.iter().position(done) else { return false };
        let Some(found) = self.memory.pools.get_mut(pool) else { return false };
        let kept = found.kept.remove(at);
        found.reserved -= kept.charged;
        self.free_block(kept.start, "cuMemFreeAsync");
        true
    }

    /// The default pool of a device.
    pub fn default_pool(&mut self, device: usize) -> u64 {
        if let Some(pool) = self.devices[device].default_pool {
            return pool;
        }
        let pool = self.memory.pools.insert(Pool::new(device, 0));
        self.devices[device].default_pool = Some(pool);
        pool
    }

    /// The pool that `cuMemAllocAsync` takes from.
    pub fn current_pool(&mut self, device: usize) -> u64 {
        self.devices[device].pool.unwrap_or_else(|| self.default_pool(device))
    }
}
