//! A guard that releases a block of [`Buckets`].
//!
//! Promises upward: releases the block exactly once, on drop; drop never panics.
//! Asks from below: [`Buckets::release`] refuses a block that is not live.

use super::buckets::Buckets;
use crate::allocator::{Block, Request};
use crate::error::AllocError;

/// A block of [`Buckets`], released on drop.
#[derive(Debug)]
pub struct BucketGuard<'g, 'a, const N: usize> {
    buckets: &'g Buckets<'a, N>,
    block: Block,
}

impl<'a, const N: usize> Buckets<'a, N> {
    /// Acquires a block of at least `bytes` bytes; dropping the guard releases it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_guard(&self, bytes: u64) -> Result<BucketGuard<'_, 'a, N>, AllocError> {
        self.acquire(Request::new(bytes)).map(|block| BucketGuard { buckets: self, block })
    }
}

impl<const N: usize> BucketGuard<'_, '_, N> {
    /// The handle of the block.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

impl<const N: usize> Drop for BucketGuard<'_, '_, N> {
    fn drop(&mut self) {
        // The release is refused only if the caller has released a copy of the handle: the block is then free already.
        let _ = self.buckets.release(self.block);
    }
}
