//! Memory: one buffer for each region, in shared storage, at the host's address.
//!
//! Promises upward: a region's bytes are the host's at its address, and the device's in its buffer, for as long as a clone of it lives.
//! Asks from below: a device whose memory is the host's.

use crate::rules::is_region;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLBuffer, MTLDevice, MTLHazardTrackingMode, MTLHeap, MTLHeapDescriptor, MTLResourceOptions, MTLStorageMode,
};
use std::sync::Arc;
use terrace_device::{Fault, FaultReason};

/// A buffer as Metal's calls take it.
pub type MetalBuffer = ProtocolObject<dyn MTLBuffer>;

/// Shared storage, untracked by Metal: streams order all work.
const OPTIONS: MTLResourceOptions =
    MTLResourceOptions::StorageModeShared.union(MTLResourceOptions::HazardTrackingModeUntracked);

/// A region of memory.
pub struct SharedRegion {
    buffer: Retained<MetalBuffer>,
    /// The heap that the buffer fills, if it lies in one.
    _heap: Option<Retained<ProtocolObject<dyn MTLHeap>>>,
}

// SAFETY: reference counts of Objective-C are atomic, so any thread may drop the last one. A buffer and its heap do not change after they
// are made: this crate asks a buffer for its address and gives it to encoders, each of which one thread uses.
unsafe impl Send for SharedRegion {}
// SAFETY: as above: the calls made through a shared reference change nothing.
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// Allocates a region of `bytes` bytes: a heap of its own with one buffer in it, or a buffer alone.
    ///
    /// Returns its address too.
    pub fn new(device: &ProtocolObject<dyn MTLDevice>, heap: bool, bytes: u64) -> Result<(Arc<Self>, u64), Fault> {
        let full =
            Fault::of(if heap { "newHeapWithDescriptor" } else { "newBufferWithLength" }, FaultReason::OutOfMemory);
        let size =
            usize::try_from(bytes).ok().filter(|size| (1..=device.maxBufferLength()).contains(size)).ok_or(full)?;
        let made = autoreleasepool(|_| if heap { Self::in_heap(device, size) } else { Self::alone(device, size) });
        let region = made.ok_or(full)?;
        let address = region.buffer.contents().as_ptr().expose_provenance() as u64;
        if is_region(address) {
            Ok((Arc::new(region), address))
        } else {
            Err(Fault::of("contents", FaultReason::Other))
        }
    }

    fn alone(device: &ProtocolObject<dyn MTLDevice>, size: usize) -> Option<Self> {
        Some(Self { buffer: device.newBufferWithLength_options(size, OPTIONS)?, _heap: None })
    }

    fn in_heap(device: &ProtocolObject<dyn MTLDevice>, size: usize) -> Option<Self> {
        let descriptor = MTLHeapDescriptor::new();
        descriptor.setStorageMode(MTLStorageMode::Shared);
        descriptor.setHazardTrackingMode(MTLHazardTrackingMode::Untracked);
        descriptor.setSize(device.heapBufferSizeAndAlignWithLength_options(size, OPTIONS).size);
        let heap = device.newHeapWithDescriptor(&descriptor)?;
        let buffer = heap.newBufferWithLength_options(size, OPTIONS)?;
        Some(Self { buffer, _heap: Some(heap) })
    }

    /// The buffer, for encoders.
    pub fn buffer(&self) -> &Retained<MetalBuffer> {
        &self.buffer
    }

    /// The buffer's address as an object, by which users name it: an `id<MTLBuffer>`.
    pub fn object(&self) -> u64 {
        Retained::as_ptr(&self.buffer).expose_provenance() as u64
    }
}
