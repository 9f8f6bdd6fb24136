//! Typed buffers: elements instead of bytes, slices that share memory, bounds that are checked.
//!
//! Promises upward: elements are plain data ([`bytemuck::Pod`]), so any bytes are valid elements; when a call returns,
//! its work is done or is queued on the buffer's stream; each buffer keeps its device and its stream alive.
//! Asks from below: [`DeviceBlock`].
//!
//! | type | memory | the CPU reads it |
//! | --- | --- | --- |
//! | [`DeviceBuffer`] | the device's | by copies |
//! | [`PinnedBuffer`] | the host's, pinned; the device reaches it | as a slice |
//! | [`RegisteredBuffer`] | the user's own, pinned in place | as a slice |
//! | [`UnifiedBuffer`] | managed: one address for both | as a slice, under a lease that waits for the stream |
//! | [`FallbackBuffer`] | the device's while there is room, and pinned host memory | as a slice of the newest bytes |

mod block_ref;
mod device;
mod fallback;
mod pinned;
mod registered;
mod rules;
mod slice;
mod unified;

pub use block_ref::BlockRef;
pub use device::DeviceBuffer;
pub use fallback::{BufferSide, FallbackBuffer, FallbackStats};
pub use pinned::{InFlight, PinnedBuffer};
pub use registered::{Refused, RegisteredBuffer};
pub use slice::{DeviceSlice, DeviceSliceMut};
pub use unified::{UnifiedBuffer, UnifiedLease, UnifiedView};

use crate::block::DeviceBlock;
use crate::error::DeviceError;
use bytemuck::Pod;
use std::ops::{Bound, RangeBounds};

/// Size of `len` elements in bytes; fails if it is zero or overflows.
fn bytes_of<T: Pod>(len: usize) -> Result<u64, DeviceError> {
    let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
    let rule = "a buffer has at least one byte and less than 2^64";
    let bad = DeviceError::BadRequest { bytes: bytes.unwrap_or(u64::MAX), align: align_of::<T>() as u64, rule };
    bytes.filter(|&bytes| bytes > 0).ok_or(bad)
}

/// Checks `range` against a view of `len` elements from element `from` of the block on; returns (first element in the
/// block, count).
fn within<T>(
    block: &DeviceBlock,
    from: usize,
    len: usize,
    range: impl RangeBounds<usize>,
) -> Result<(usize, usize), DeviceError> {
    let first = match range.start_bound() {
        Bound::Included(&first) => Some(first),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    let inside = first.zip(end).filter(|(first, end)| first <= end && *end <= len);
    let (offset, bytes) = (first.unwrap_or(usize::MAX), end.unwrap_or(usize::MAX).saturating_sub(first.unwrap_or(0)));
    let outside = DeviceError::OutOfBounds {
        block: block.id(),
        offset: (from as u64).saturating_add(offset as u64).saturating_mul(size_of::<T>() as u64),
        bytes: (bytes as u64).saturating_mul(size_of::<T>() as u64),
    };
    inside.map(|(first, end)| (from + first, end - first)).ok_or(outside)
}
