//! The block under a view: its address and the streams that use it, without access to its bytes.
//!
//! Promises upward: no method of [`BlockRef`] reads or writes a byte of the block, so a view may hand one out while
//! other views write other parts of the block.
//! Asks from below: [`DeviceBlock`].

use crate::backend::RawStream;
use crate::block::DeviceBlock;
use crate::error::{BlockId, DeviceError};
use crate::stream::Stream;

/// The block under a view, without access to its bytes.
///
/// It has the block's address, and records which streams use the block.
#[derive(Clone, Copy, Debug)]
pub struct BlockRef<'a>(pub(crate) &'a DeviceBlock);

impl BlockRef<'_> {
    /// As [`DeviceBlock::address`].
    pub fn address(&self) -> u64 {
        self.0.address()
    }

    /// As [`DeviceBlock::bytes`].
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// As [`DeviceBlock::id`].
    pub fn id(&self) -> BlockId {
        self.0.id()
    }

    /// As [`DeviceBlock::is_fallback`].
    pub fn is_fallback(&self) -> bool {
        self.0.is_fallback()
    }

    /// As [`DeviceBlock::raw_stream`].
    pub fn raw_stream(&self) -> RawStream {
        self.0.raw_stream()
    }

    /// As [`DeviceBlock::used_on`].
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`].
    pub fn used_on(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.0.used_on(stream)
    }

    /// As [`DeviceBlock::lend`].
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; the driver's error.
    pub fn lend(&self, to: &Stream) -> Result<(), DeviceError> {
        self.0.lend(to)
    }

    /// As [`DeviceBlock::reclaim`].
    ///
    /// # Errors
    /// As for [`DeviceBlock::lend`].
    pub fn reclaim(&self, from: &Stream) -> Result<(), DeviceError> {
        self.0.reclaim(from)
    }
}
