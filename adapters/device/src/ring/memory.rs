//! Memory of a ring that the host reads and writes by address: pinned or managed.
//!
//! Promises upward: a header and words, valid as long as the [`SeenByHost`] lives.
//! Asks from below: a block of memory that the host can access; it is zeroed here once.
//!
//! Invariants:
//! - the block has at least a header and `words` words, and starts at a multiple of [`ALIGN`]
//! - this process, copies and kernels access the block only by atomic words

use crate::block::DeviceBlock;
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use std::fmt;
use terrace_core::ring::{Header, RingMemory};
use terrace_core::sync::AtomicU32;

/// Alignment of a ring in bytes: that of its header.
pub(super) const ALIGN: u64 = align_of::<Header>() as u64;

/// Size in bytes of a ring with that many words.
fn bytes(words: u64) -> u64 {
    Header::BYTES as u64 + words * size_of::<u32>() as u64
}

/// A ring, or the shadow of one, in memory that the host can access.
pub struct SeenByHost {
    block: DeviceBlock,
    words: usize,
}

impl SeenByHost {
    /// Allocates a ring or shadow in pinned memory.
    pub(super) fn pinned(device: &Device, stream: &Stream, words: u64) -> Result<Self, DeviceError> {
        Self::new(device.allocate_pinned(stream, bytes(words), ALIGN)?, words)
    }

    /// Allocates a ring in managed memory, and waits until the host may access it.
    pub(super) fn managed(device: &Device, stream: &Stream, words: u64) -> Result<Self, DeviceError> {
        let block = device.allocate_managed(stream, bytes(words), ALIGN)?;
        // Waits also for work that the block's last owner put on the stream.
        block.host_turn()?;
        Self::new(block, words)
    }

    fn new(block: DeviceBlock, words: u64) -> Result<Self, DeviceError> {
        let (bytes, align) = (bytes(words), ALIGN);
        let rule = "a ring fits into the host's address space";
        let Ok(length) = usize::try_from(bytes) else { return Err(DeviceError::BadRequest { bytes, align, rule }) };
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(block.address() as usize);
        // SAFETY: pinned or managed memory, which the host can access; the block has `length` bytes, and is not shared
        // yet.
        unsafe { start.write_bytes(0, length) };
        Ok(Self { block, words: words as usize })
    }

    /// The block that holds the ring.
    pub(super) fn block(&self) -> &DeviceBlock {
        &self.block
    }
}

impl RingMemory for SeenByHost {
    fn header(&self) -> &Header {
        let header: *const Header = std::ptr::with_exposed_provenance(self.block.address() as usize);
        // SAFETY: by the first invariant the header fits; the block lives as long as `self` and was zeroed, and any
        // words are a valid header; by the second invariant it is written only by atomic words.
        unsafe { &*header }
    }

    fn words(&self) -> &[AtomicU32] {
        let first = self.block.address() as usize + Header::BYTES;
        // SAFETY: as in `header`, for the words after the header.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(first), self.words) }
    }
}

impl fmt::Debug for SeenByHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeenByHost").field("block", &self.block).field("words", &self.words).finish()
    }
}
