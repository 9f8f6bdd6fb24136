//! The table of live blocks by address, needed because PyTorch frees blocks by pointer.
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
    /// Bytes that PyTorch requested, before rounding.
    pub requested: u64,
    /// Handle of the stream for which the block was allocated.
    pub stream: u64,
    pub pool: Option<PoolId>,
}

/// Number of shards, each with a lock. Of 16 threads that free at once, each meets another with a probability of at
/// most 15 / 64.
const SHARDS: usize = 64;

/// Live blocks by address, in shards. CUDA has one address space, so addresses of different devices differ.
static TABLE: [Mutex<Option<HashMap<u64, TorchBlock>>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

/// Locks the shard of an address.
///
/// Chooses the shard by Fibonacci hashing: divides the address by 256, of which each block's address is a multiple,
/// multiplies it by 2^64 / golden ratio, and takes the top 6 bits.
fn shard(address: u64) -> MutexGuard<'static, Option<HashMap<u64, TorchBlock>>> {
    let at = ((address >> 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
    // A panic poisons the lock but never interrupts a change of the map, so the map is consistent.
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

/// Calls `look` with the block at an address, under the shard's lock, so that the block stays live.
pub fn with<T>(address: u64, look: impl FnOnce(&TorchBlock) -> T) -> Option<T> {
    shard(address).as_ref()?.get(&address).map(look)
}

/// Calls `look` with every live block, in no order, and collects the results that are not `None`. O(n).
pub fn collect<T>(mut look: impl FnMut(&TorchBlock) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for shard in &TABLE {
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(shard.iter().flat_map(HashMap::values).filter_map(&mut look));
    }
    found
}
