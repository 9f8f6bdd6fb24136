//! One pool that replays a trace, event by event.
//!
//! Promises upward: the pool's answers to the trace's operations, of all streams as one.
//! Asks from below: the replay's pools; operations executed on them.

use super::trace::TraceEvent;
use crate::failure::Failure;
use terrace::device::DeviceOptions;
use terrace::engine::{Block, FreeError, Owner, Request, Stats};
use terrace_replay::pools::{self, NewPool, PoolSetup, SourceKind};
use terrace_replay::{Operation, PoolBlocks, PoolFailure};

/// A pool, and its blocks. Streams are not told apart.
pub struct ReplayedPool(PoolBlocks);

impl ReplayedPool {
    /// The replay's pool `terrace`, with room for the slots of a trace.
    pub fn terrace(source: SourceKind, slots: usize) -> Result<Self, Failure> {
        Self::new(slots, pools::terrace(&setup(source, slots)))
    }

    /// A device with these options, with room for the slots of a trace.
    pub fn device(source: SourceKind, options: DeviceOptions, slots: usize) -> Result<Self, Failure> {
        Self::new(slots, pools::device(&setup(source, slots), options))
    }

    fn new(slots: usize, pool: NewPool) -> Result<Self, Failure> {
        let pool = pool.map_err(|what| PoolFailure { pool: "terrace", what })?;
        Ok(Self(PoolBlocks::new(pool, slots)))
    }

    /// Allocates and frees a block, as `Device::warm_up` does.
    pub fn warm_up(&mut self, bytes: u64) -> Result<(), Failure> {
        let pool = &mut self.0.pool;
        let block = if bytes > 0 { pool.allocate(Request::new(bytes)).ok() } else { None };
        block.map_or(Ok(()), |block| pool.free(block, Owner(0)).map_err(refused))
    }

    /// Does what an event did.
    pub fn replay(&mut self, event: &TraceEvent) -> Result<(), Failure> {
        self.0.execute(&Operation { owner: Owner(0), ..event.operation }, 0).map_err(refused)
    }

    /// The pool's statistics.
    pub fn stats(&self) -> Stats {
        self.0.pool.stats()
    }

    /// The most bytes that were requested of live blocks.
    pub fn peak_live(&self) -> u64 {
        self.0.peak_live
    }

    /// Number of allocations that failed.
    pub fn failed(&self) -> u64 {
        self.0.failed
    }

    /// Slots whose blocks are live, with the blocks.
    pub fn live(&self) -> impl Iterator<Item = (u32, Block)> {
        self.0.live()
    }
}

fn setup(source: SourceKind, slots: usize) -> PoolSetup {
    PoolSetup::new(source, None, 0).with_blocks(slots)
}

fn refused(error: FreeError) -> Failure {
    PoolFailure { pool: "terrace", what: format!("refused a free: {error}") }.into()
}
