//! Host memory that transfers own while they last.

use crate::buffer::PinnedBuffer;
use crate::device::Device;
use bytemuck::Pod;

/// Elements on the host that a device may read: `Vec`, [`PinnedBuffer`] and the like.
///
/// # Safety
/// [`elements`](Self::elements) gives the same memory at each call, also after the value was moved, for as long as it lives;
/// that memory is written meanwhile only through [`HostBuffer::elements_mut`].
pub unsafe trait HostSource<T>: Send + 'static {
    /// The elements.
    fn elements(&self) -> &[T];

    /// Whether a device copies from and to them itself.
    fn is_pinned_for(&self, _: &Device) -> bool {
        false
    }
}

/// Host memory that a transfer writes.
///
/// # Safety
/// As for [`HostSource`], of the same memory, which is not read elsewhere either.
pub unsafe trait HostBuffer<T>: HostSource<T> {
    /// The elements, to write.
    fn elements_mut(&mut self) -> &mut [T];
}

// SAFETY: a vector that is not changed keeps its elements where they are; they are its own.
unsafe impl<T: Pod + Send> HostSource<T> for Vec<T> {
    fn elements(&self) -> &[T] {
        self
    }
}

// SAFETY: as above.
unsafe impl<T: Pod + Send> HostBuffer<T> for Vec<T> {
    fn elements_mut(&mut self) -> &mut [T] {
        self
    }
}

// SAFETY: a pinned buffer's block stays where it is, and is its own.
unsafe impl<T: Pod + Send> HostSource<T> for PinnedBuffer<T> {
    fn elements(&self) -> &[T] {
        self
    }

    fn is_pinned_for(&self, device: &Device) -> bool {
        device.owns(self.block())
    }
}

// SAFETY: as above.
unsafe impl<T: Pod + Send> HostBuffer<T> for PinnedBuffer<T> {
    fn elements_mut(&mut self) -> &mut [T] {
        self
    }
}
