//! Batches: many blocks allocated, or freed, under one lock of the pool.

use crate::block::{DeviceBlock, free_all};
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use std::sync::Arc;
use terrace_core::Request;

impl Device {
    /// Allocates a block for each size in bytes, or none at all. `blocks[i]` has at least `sizes[i]` bytes.
    ///
    /// Blocks that the stream's cache has cost a look-up each. For all others the pool's lock is taken once, and once more if
    /// new pages were mapped, and each stream is queried at most once; the largest are placed first, those of one size
    /// beside each other where possible. What then finds no memory is allocated as by [`Device::allocate`]: the pool waits, and
    /// calls the hook. O(n log n), and n searches of the arena.
    ///
    /// # Errors
    /// As for [`Device::allocate`], for the first size that fails; all blocks of the batch were freed then.
    ///
    /// # Example
    /// ```
    /// use terrace_device::Device;
    /// let device = Device::host();
    /// let stream = device.stream()?;
    /// let blocks = device.allocate_batch(&stream, &[4096, 1 << 20, 100])?;
    /// assert_eq!(blocks.iter().map(|block| block.bytes()).collect::<Vec<_>>(), [4096, 1 << 20, 256]);
    /// assert!(device.allocate_batch(&stream, &[4096, 0]).is_err(), "no block has no bytes");
    /// assert_eq!(device.stats().pool.live_blocks, 3);
    /// device.free_batch(blocks);
    /// assert_eq!(device.stats().pool.live_blocks, 0);
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn allocate_batch(&self, stream: &Stream, sizes: &[u64]) -> Result<Vec<DeviceBlock>, DeviceError> {
        self.service.check_stream(stream.core())?;
        let home = stream.core();
        let hit = |&bytes: &u64| {
            let request = Request::new(bytes);
            home.hit(request).map(|(block, home)| DeviceBlock::new(block, request, home))
        };
        let mut blocks: Vec<Option<DeviceBlock>> = sizes.iter().map(hit).collect();
        let missing: Vec<Request> = sizes
            .iter()
            .zip(&blocks)
            .filter(|(_, block)| block.is_none())
            .map(|(&bytes, _)| Request::new(bytes))
            .collect();
        if !missing.is_empty() {
            let served = self.service.serve_batch(home, &missing)?;
            let missed = blocks.iter_mut().filter(|block| block.is_none());
            for (place, (request, served)) in missed.zip(missing.into_iter().zip(served)) {
                *place = Some(DeviceBlock::served(served, request, Arc::clone(home)));
            }
        }
        Ok(blocks.into_iter().flatten().collect())
    }

    /// Frees blocks; the pool's lock is taken once for all that no stream's cache keeps.
    ///
    /// Each block is freed as if it was dropped. Blocks of another device are dropped. O(n).
    ///
    /// # Example
    /// See [`Device::allocate_batch`].
    pub fn free_batch(&self, blocks: Vec<DeviceBlock>) {
        free_all(&*self.service, blocks.into_iter().filter(|block| self.owns(block)));
    }
}
