//! Warm-up: takes memory from the source and fills the cache before the first step.

use super::Arena;
use super::storage::ArenaStorage;
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::AllocError;
use crate::fence::Fence;
use crate::source::Source;

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Allocates and frees `count` blocks of each size for an owner; returns their bytes.
    ///
    /// Afterwards the memory is reserved, and blocks up to the small threshold are in the cache. `scratch` holds the
    /// handles during the call; its length bounds the total number of blocks.
    ///
    /// # Errors
    /// The error of the first allocation that failed; the memory of those before it stays reserved.
    pub fn warm_up(
        &mut self,
        owner: Owner,
        pairs: impl IntoIterator<Item = (u64, u32)>,
        scratch: &mut [Option<Block>],
    ) -> Result<u64, AllocError> {
        // All blocks are live at once: otherwise the blocks of one pair would reuse the memory of another.
        let (mut used, mut bytes, mut failed) = (0, 0, None);
        'pairs: for (size, count) in pairs {
            for _ in 0..count {
                let Some(place) = scratch.get_mut(used) else { break 'pairs };
                match self.allocate(Request::new(size).owner(owner)) {
                    Ok(block) => (*place, used, bytes) = (Some(block), used + 1, bytes + block.bytes),
                    Err(error) => {
                        failed = Some(error);
                        break 'pairs;
                    }
                }
            }
        }
        for block in scratch[..used].iter_mut().filter_map(Option::take) {
            // The free is never refused: this call has allocated the block.
            let _ = self.free(block, owner);
        }
        failed.map_or(Ok(bytes), Err)
    }
}

/// The shape of a transformer, for [`Transformer::pairs`].
///
/// The pairs are the blocks that each layer's forward pass allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transformer {
    /// Number of sequences in a batch.
    pub batch: u64,
    /// Number of tokens in each sequence.
    pub tokens: u64,
    /// Width of the residual stream, in elements.
    pub hidden: u64,
    /// Width of the feed-forward layer, in elements.
    pub inner: u64,
    /// Width of keys (and of values), in elements: the number of key heads times the width of each.
    pub key_value: u64,
    /// Bytes of an element.
    pub element: u64,
}

impl Transformer {
    /// The (size, count) pairs of one layer, for [`Arena::warm_up`].
    ///
    /// The blocks are: residual and normalised input, queries and attention output (4); keys and values (2); gate, up
    /// and their product (3).
    ///
    /// # Example
    /// ```
    /// use terrace_core::arena::Transformer;
    /// let shape = Transformer { batch: 1, tokens: 512, hidden: 768, inner: 2048, key_value: 256, element: 2 };
    /// assert_eq!(shape.pairs(), [(786_432, 4), (262_144, 2), (2_097_152, 3)]);
    /// ```
    pub fn pairs(&self) -> [(u64, u32); 3] {
        let row = self.batch * self.tokens * self.element;
        [(row * self.hidden, 4), (row * self.key_value, 2), (row * self.inner, 3)]
    }
}
