//! A block of [`Buckets`] that frees itself.
//!
//! Promises upward: the block goes back exactly once, when the guard is dropped; drop never panics.
//! Asks from below: [`Buckets::release`] refuses what is not live.

use super::buckets::Buckets;
use crate::allocator::{Block, Request};
use crate::error::AllocError;

/// A block that goes back when dropped.
#[derive(Debug)]
pub struct BucketGuard<'g, 'a, const N: usize> {
    buckets: &'g Buckets<'a, N>,
    block: Block,
}

impl<'a, const N: usize> Buckets<'a, N> {
    /// Takes a block of at least `bytes` bytes that goes back when the guard is dropped.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_guard(&self, bytes: u64) -> Result<BucketGuard<'_, 'a, N>, AllocError> {
        self.acquire(Request::new(bytes)).map(|block| BucketGuard { buckets: self, block })
    }
}

impl<const N: usize> BucketGuard<'_, '_, N> {
    /// Where the block lies and how large it is.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

impl<const N: usize> Drop for BucketGuard<'_, '_, N> {
    fn drop(&mut self) {
        // Refused only if the caller released a copy of the handle; the block is free then.
        let _ = self.buckets.release(self.block);
    }
}
