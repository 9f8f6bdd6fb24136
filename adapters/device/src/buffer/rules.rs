//! Rules of all buffers that the compiler checks: which may go to other threads, and which uses it refuses.
//!
//! Promises upward: no code at run time. A buffer is `Send` and `Sync` iff its elements are.
//! Asks from below: the buffers' types.
//!
//! Two writable views never overlap; the second is refused while the first lives:
//! ```compile_fail,E0499
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::DeviceBuffer::<u32>::new(&device, &stream, 100)?;
//! let (mut low, mut high) = (buffer.slice_mut(..60)?, buffer.slice_mut(40..)?);
//! low.fill(1)?;
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! A writable view cannot be written while a [`BlockRef`](super::BlockRef) borrowed from it is in use:
//! ```compile_fail,E0502
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::DeviceBuffer::<u32>::new(&device, &stream, 100)?;
//! let mut all = buffer.as_slice_mut();
//! let block = all.block();
//! all.fill(1)?;
//! println!("{:#x}", block.address());
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! A view's block gives no access to the bytes beside the view, which another thread may write:
//! ```compile_fail,E0599
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::DeviceBuffer::<u8>::new(&device, &stream, 100)?;
//! let (low, high) = buffer.as_slice_mut().split_at(50)?;
//! low.block().read(0, &mut [0; 100])?;
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! ```compile_fail,E0308
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::DeviceBuffer::<u8>::new(&device, &stream, 100)?;
//! let (low, high) = buffer.as_slice_mut().split_at(50)?;
//! device.allocate(&stream, 100)?.copy_from(0, low.as_slice().block(), 0, 100)?;
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! A buffer's own block gives access to all of its bytes, so it cannot be in use while a writable view exists:
//! ```compile_fail,E0502
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::DeviceBuffer::<u8>::new(&device, &stream, 100)?;
//! let block = buffer.block();
//! buffer.as_slice_mut().fill(1)?;
//! block.read(0, &mut [0; 100])?;
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! Safe code relies on what a backend returns, so the trait is unsafe to implement:
//! ```compile_fail,E0200
//! struct Own;
//! impl terrace_device::Backend for Own {}
//! ```
//! Any code can make up a handle, which a driver may dereference as a pointer, so calls with handles are unsafe:
//! ```compile_fail,E0133
//! use terrace_device::{Backend, HostBackend, RawStream};
//! HostBackend::new().synchronize_stream(RawStream(0xdead))?;
//! # Ok::<(), terrace_device::Fault>(())
//! ```
//! A pinned buffer is not accessible while a copy to or from it is in flight:
//! ```compile_fail,E0382
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! # let mut target = terrace_device::DeviceBuffer::<u32>::new(&device, &stream, 100)?;
//! let staging = terrace_device::PinnedBuffer::<u32>::new(&device, &stream, 100)?;
//! let transfer = staging.copy_to(&mut target)?;
//! println!("{}", staging[0]);
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! The host's slice of a [`FallbackBuffer`] cannot be used after the device accessed the buffer:
//! ```compile_fail,E0499
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::FallbackBuffer::<u32>::new(&device, &stream, 100)?;
//! let elements = buffer.host()?;
//! buffer.on_device_mut()?.fill(7)?;
//! println!("{}", elements[0]);
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! The device's slice of a [`FallbackBuffer`] cannot be used after the host accessed the buffer:
//! ```compile_fail,E0499
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::FallbackBuffer::<u32>::new(&device, &stream, 100)?;
//! let slice = buffer.on_device()?;
//! buffer.host_mut(..)?[0] = 7;
//! println!("{:#x}", slice.address());
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```
//! The device cannot use managed memory while the host holds a lease:
//! ```compile_fail,E0502
//! # let device = terrace_device::Device::host();
//! # let stream = device.stream()?;
//! let mut buffer = terrace_device::UnifiedBuffer::<u32>::new(&device, &stream, 100)?;
//! let lease = buffer.lease()?;
//! println!("{:#x} {}", buffer.address(), lease[0]);
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```

use super::{
    DeviceBuffer, DeviceSlice, DeviceSliceMut, FallbackBuffer, InFlight, PinnedBuffer, UnifiedBuffer, UnifiedLease,
};
use std::marker::PhantomData;

/// An element type that is plain data, but neither `Send` nor `Sync`.
type NotSend = PhantomData<*const u8>;

/// Compiles iff a buffer of `u32` has a trait and the same buffer of [`NotSend`] has not: if it had, both impls of
/// `Chosen` would apply, and the compiler would report an ambiguity.
macro_rules! as_its_elements {
    ($($trait:ident: $($buffer:ident)*;)*) => {$($(
        const _: fn() = || {
            fn has<T: $trait>() {}
            has::<$buffer!(u32)>();
            trait Chosen<A> {
                fn chosen() {}
            }
            struct Other;
            impl<T: ?Sized> Chosen<()> for T {}
            impl<T: ?Sized + $trait> Chosen<Other> for T {}
            let _ = <$buffer!(NotSend) as Chosen<_>>::chosen;
        };
    )*)*};
}

/// Defines a macro for each buffer type, which names it with its lifetime and the given element type.
macro_rules! named {
    ($($name:ident = $buffer:ident$(<$life:lifetime>)?;)*) => {$(
        macro_rules! $name {
            ($of:ty) => { $buffer<$($life,)? $of> };
        }
    )*};
}

named! {
    device = DeviceBuffer;
    slice = DeviceSlice<'static>;
    slice_mut = DeviceSliceMut<'static>;
    pinned = PinnedBuffer;
    in_flight = InFlight;
    unified = UnifiedBuffer;
    lease = UnifiedLease<'static>;
    fallback = FallbackBuffer;
}

as_its_elements! {
    Send: device slice slice_mut pinned in_flight unified lease fallback;
    Sync: device slice slice_mut pinned in_flight unified lease fallback;
}
