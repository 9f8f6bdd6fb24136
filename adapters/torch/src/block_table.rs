//! Live blocks by address, because PyTorch frees by pointer.
//!
//! Promises upward: a block is removed at most once; threads that free different blocks rarely contend.
//! Asks from below: nothing.

use crate::device::TorchDevice;
use crate::pools::PoolId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_device::DeviceBlock;

/// A block that PyTorch allocated and has not freed.
pub struct TorchBlock {
    pub block: DeviceBlock,
    pub device: Arc<TorchDevice>,
    /// Requested bytes, before rounding.
    pub requested: u64,
    /// Handle of the stream that the block was allocated for.
    pub stream: u64,
    pub pool: Option<PoolId>,
}

/// Number of locks: one of 16 threads that free at once meets another with a probability of at most 15 / 64.
const SHARDS: usize = 64;

/// Live blocks by address. CUDA has one address space, so addresses of different devices differ.
static TABLE: [Mutex<Option<HashMap<u64, TorchBlock>>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

/// Locks the shard of an address.
///
/// Fibonacci hashing: blocks lie at multiples of 256; the top 6 bits of the product with 2^64 / golden ratio choose the shard.
fn shard(address: u64) -> MutexGuard<'static, Option<HashMap<u64, TorchBlock>>> {
    let at = ((address >> 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
    // A panic poisons the lock, but never interrupts a map operation, so the map is consistent.
    TABLE[at].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Inserts a block.
pub fn put(live: TorchBlock) {
    shard(live.block.address()).get_or_insert_default().insert(live.block.address(), live);
}

/// Removes the block at an address.
pub fn take(address: u64) -> Option<TorchBlock> {
    shard(address).as_mut()?.remove(&address)
}

/// Calls `look` with the block at an address; the shard's lock keeps the block live meanwhile.
pub fn with<T>(address: u64, look: impl FnOnce(&TorchBlock) -> T) -> Option<T> {
    shard(address).as_ref()?.get(&address).map(look)
}

/// Collects the results of `look` for all live blocks, in no order. O(n).
pub fn collect<T>(mut look: impl FnMut(&TorchBlock) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for shard in &TABLE {
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(shard.iter().flat_map(HashMap::values).filter_map(&mut look));
    }
    found
}
