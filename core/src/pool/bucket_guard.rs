//! A block of [`Buckets`] that frees itself.
//!
//! Promises upward: the block goes back exactly once, when the guard is dropped; drop never panics.
//! Asks from below: [`Buckets::release`] refuses what is not live.

use super::buckets::Buckets;
use crate::allocator::Block;

/// A block that goes back when dropped.
#[derive(Debug)]
pub struct BucketGuard<'g, 'a, const N: usize> {
    buckets: &'g Buckets<'a, N>,
    block: Block,
}

impl<'g, 'a, const N: usize> BucketGuard<'g, 'a, N> {
    /// Owns a live block of `buckets` from here on.
    pub(super) fn new(buckets: &'g Buckets<'a, N>, block: Block) -> Self {
        Self { buckets, block }
    }

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
