//! Host memory that transfers own while they last.

use crate::buffer::PinnedBuffer;
use crate::device::Device;
use bytemuck::Pod;

/// Elements on the host, which keep their address when they are moved: `Vec`, [`PinnedBuffer`].
pub trait HostBuffer<T>: private::Sealed + Send + 'static {
    /// The elements.
    fn elements(&self) -> &[T];

    /// The elements, to write.
    fn elements_mut(&mut self) -> &mut [T];

    /// Whether a device copies from and to them itself.
    fn is_pinned_for(&self, device: &Device) -> bool;
}

impl<T: Pod + Send> HostBuffer<T> for Vec<T> {
    fn elements(&self) -> &[T] {
        self
    }

    fn elements_mut(&mut self) -> &mut [T] {
        self
    }

    fn is_pinned_for(&self, _: &Device) -> bool {
        false
    }
}

impl<T: Pod + Send> HostBuffer<T> for PinnedBuffer<T> {
    fn elements(&self) -> &[T] {
        self
    }

    fn elements_mut(&mut self) -> &mut [T] {
        self
    }

    fn is_pinned_for(&self, device: &Device) -> bool {
        device.owns(self.block())
    }
}

mod private {
    pub trait Sealed {}
    impl<T> Sealed for Vec<T> {}
    impl<T> Sealed for crate::buffer::PinnedBuffer<T> {}
}
