//! Who has which address: PyTorch frees by pointer.
//!
//! Promises upward: an address is taken out once; threads that free different blocks rarely meet.
//! Asks from below: nothing.

use crate::device::TorchDevice;
use crate::pools::PoolId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_device::DeviceBlock;

/// A block that the program has.
pub struct LiveBlock {
    pub block: DeviceBlock,
    pub device: Arc<TorchDevice>,
    /// Bytes asked for.
    pub requested: u64,
    /// The handle it was allocated for.
    pub stream: u64,
    pub pool: Option<PoolId>,
}

/// Locks: with 64, two of 16 threads that free at once meet in one of four cases at most (15 / 64).
const SHARDS: usize = 64;

/// By address. Addresses of different devices are different: CUDA has one address space.
static TABLE: [Mutex<Option<HashMap<u64, LiveBlock>>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

/// The shard of an address. Blocks lie at multiples of 256; multiplied by 2^64 / golden ratio, the top 6 bits say which.
fn shard(address: u64) -> MutexGuard<'static, Option<HashMap<u64, LiveBlock>>> {
    let at = ((address >> 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
    // A map is whole between any two of its calls, also after a thread panicked.
    TABLE[at].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a block in.
pub fn put(live: LiveBlock) {
    shard(live.block.address()).get_or_insert_default().insert(live.block.address(), live);
}

/// Takes the block at an address out.
pub fn take(address: u64) -> Option<LiveBlock> {
    shard(address).as_mut()?.remove(&address)
}

/// Looks at the block at an address, which stays alive meanwhile.
pub fn with<T>(address: u64, look: impl FnOnce(&LiveBlock) -> T) -> Option<T> {
    shard(address).as_ref()?.get(&address).map(look)
}

/// What `look` makes of each block, in no order. O(n).
pub fn collect<T>(mut look: impl FnMut(&LiveBlock) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for shard in &TABLE {
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(shard.iter().flat_map(HashMap::values).filter_map(&mut look));
    }
    found
}
