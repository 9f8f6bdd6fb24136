//! Host memory that a transfer owns until it ends.

use crate::buffer::PinnedBuffer;
use crate::device::Device;
use bytemuck::Pod;

/// Elements on the host that a device may read: `Vec`, [`PinnedBuffer`] and the like.
///
/// # Safety
/// [`elements`](Self::elements) must return the same memory at each call while the value lives, even after the value
/// was moved; in that time, only [`HostBuffer::elements_mut`] may write the memory.
pub unsafe trait HostSource<T>: Send + 'static {
    /// The elements.
    fn elements(&self) -> &[T];

    /// Whether the device can copy from and to the elements directly.
    fn is_pinned_for(&self, _: &Device) -> bool {
        false
    }
}

/// Host memory that a transfer writes.
///
/// # Safety
/// As for [`HostSource`], with the same memory, which no other code may read either.
pub unsafe trait HostBuffer<T>: HostSource<T> {
    /// The elements, for writing.
    fn elements_mut(&mut self) -> &mut [T];
}

// SAFETY: a vector that is not changed keeps its elements in place, and owns them alone.
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

// SAFETY: a pinned buffer's block stays in place, and only the buffer uses it.
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
