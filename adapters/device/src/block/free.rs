//! How blocks are freed: one by one as they are dropped, or many together.
//!
//! Promises upward: a free that the stream's cache keeps costs an uncontended lock, and no call of the pool; blocks that are freed
//! together take the pool's lock once.
//! Asks from below: the cache of the home stream; [`Service::give_back`] and [`Service::give_back_all`].

use super::DeviceBlock;
use crate::stream::{BlockExtra, FreedBlock, Service, StreamCore};
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use terrace_core::Block;

impl DeviceBlock {
    /// Frees the block into its stream's cache; returns what the pool needs if the cache does not keep it.
    ///
    /// # Safety
    /// The caller must not use the block after this call, nor drop it.
    #[inline(always)]
    unsafe fn free_to_cache(&mut self) -> Option<(Arc<StreamCore>, Block, OnceLock<Box<BlockExtra>>)> {
        if self.home.forked() {
            // In a forked child the driver does not work, and a lock may be held by a thread that only the parent has.
            return None;
        }
        if self.block.is_tracked() {
            self.block.tell_freed(&self.home);
        }
        let block = self.block.block();
        // SAFETY: `home` is taken out once: the caller does not use the block any more.
        let mut home = unsafe { ManuallyDrop::take(&mut self.home) };
        if self.extra.get_mut().is_none() {
            match home.keep(block) {
                Ok(()) => return None,
                Err(back) => home = back,
            }
        }
        // SAFETY: as for `home`.
        Some((home, block, unsafe { ManuallyDrop::take(&mut self.extra) }))
    }
}

impl Drop for DeviceBlock {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing uses a block that is being dropped.
        if let Some((home, block, extra)) = unsafe { self.free_to_cache() } {
            give_back(home, block, extra);
        }
    }
}

/// Gives a block to the pool, when the cache of its stream does not keep it.
#[cold]
fn give_back(home: Arc<StreamCore>, block: Block, extra: OnceLock<Box<BlockExtra>>) {
    let extra = extra.into_inner().map(|extra| *extra);
    home.service.give_back(&home, block, extra);
}

/// Frees blocks of one pool: those that no cache keeps under one lock.
pub(crate) fn free_all(service: &dyn Service, blocks: impl Iterator<Item = DeviceBlock>) {
    let freed = blocks.filter_map(|block| {
        let mut block = ManuallyDrop::new(block);
        // SAFETY: the block is not used after this call, and `ManuallyDrop` keeps it from being dropped.
        let (home, block, extra) = unsafe { block.free_to_cache() }?;
        Some(FreedBlock { home, block, extra: extra.into_inner().map(|extra| *extra) })
    });
    let freed: Vec<FreedBlock> = freed.collect();
    if !freed.is_empty() {
        service.give_back_all(freed);
    }
}
