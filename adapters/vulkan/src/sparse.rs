//! Sparse binding as data: what a device needs for it, limits, and which memory is bound where.
//!
//! Promises upward: a memory object is given back to be freed once, when it is released and bound nowhere.
//! Asks from below: what the driver says; a timeline on a queue that binds.

#[cfg(test)]
mod tests;

use crate::driver::MemoryObject;
use crate::timeline::StreamTimeline;
use ash::vk;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_device::PhysicalHandle;

/// Bytes of a page: addresses of objects are multiples of it. A device binds smaller ones (64 KiB), by more calls for the same memory.
pub(crate) const PAGE: u64 = 2 << 20;

/// Flags of buffers that are address space: parts of them are never bound, and memory that moves is bound twice meanwhile.
pub(crate) const FLAGS: vk::BufferCreateFlags = vk::BufferCreateFlags::from_raw(
    vk::BufferCreateFlags::SPARSE_BINDING.as_raw()
        | vk::BufferCreateFlags::SPARSE_RESIDENCY.as_raw()
        | vk::BufferCreateFlags::SPARSE_ALIASED.as_raw(),
);

/// The features that such buffers need.
pub(crate) fn features() -> vk::PhysicalDeviceFeatures {
    vk::PhysicalDeviceFeatures::default()
        .sparse_binding(true)
        .sparse_residency_buffer(true)
        .sparse_residency_aliased(true)
}

/// What a device says about sparse binding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparseProbe {
    /// The family of the queue that binds.
    pub family: u32,
    /// Bytes of all sparse buffers together, at most.
    pub space: u64,
    /// Bytes of one buffer, at most.
    pub largest: u64,
}

/// The family whose queue binds: rather another than the streams', whose work a bind would wait for; or what is missing.
pub(crate) fn binding_family(
    has: &vk::PhysicalDeviceFeatures,
    families: &[vk::QueueFamilyProperties],
    streams: u32,
) -> Result<u32, &'static str> {
    if [has.sparse_binding, has.sparse_residency_buffer, has.sparse_residency_aliased].contains(&vk::FALSE) {
        return Err("the device has no sparse buffers that are bound in parts, and twice");
    }
    let binds = |of: &vk::QueueFamilyProperties| of.queue_flags.contains(vk::QueueFlags::SPARSE_BINDING);
    let others = (0..families.len() as u32).filter(|&at| at != streams);
    others
        .chain([streams])
        .find(|&at| families.get(at as usize).is_some_and(binds))
        .ok_or("no queue of the device binds sparse buffers")
}

/// What a device with pages keeps for them.
pub(crate) struct SparsePages {
    /// Binds, one after the other.
    pub binds: StreamTimeline,
    /// The memory types that pages may have: one bit each.
    pub type_bits: u32,
    probe: SparseProbe,
    /// Bytes of sparse buffers.
    reserved: AtomicU64,
    table: Mutex<PageTable>,
}

impl SparsePages {
    pub fn new(probe: SparseProbe, binds: StreamTimeline, type_bits: u32) -> Self {
        Self { binds, type_bits, probe, reserved: AtomicU64::new(0), table: Mutex::default() }
    }

    /// Counts a sparse buffer of whole pages; false if the device cannot have it.
    pub fn grow(&self, bytes: u64) -> bool {
        let fits = |reserved: u64| reserved.checked_add(bytes).filter(|&sum| sum <= self.probe.space);
        let whole = bytes > 0 && bytes.is_multiple_of(PAGE) && bytes <= self.probe.largest;
        whole && self.reserved.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Takes back [`grow`](Self::grow).
    pub fn shrink(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }

    // The table is consistent between any two statements.
    pub fn table(&self) -> MutexGuard<'_, PageTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Physical memory, and where it is mapped.
#[derive(Default)]
pub(crate) struct PageTable {
    handles: HashMap<u64, SparseMemory>,
    /// By address.
    mapped: BTreeMap<u64, PageMapping>,
}

/// The memory of a handle.
struct SparseMemory {
    object: MemoryObject,
    /// Addresses at which it is mapped.
    maps: u32,
    /// Whether it goes once it is mapped nowhere.
    released: bool,
}

#[derive(Clone, Copy)]
struct PageMapping {
    handle: u64,
    /// Whether the device knows.
    bound: bool,
}

impl PageTable {
    pub fn add(&mut self, handle: PhysicalHandle, object: MemoryObject) {
        self.handles.insert(handle.0, SparseMemory { object, maps: 0, released: false });
    }

    /// Maps a handle at an address.
    ///
    /// Returns false, without effect, if there is no such handle of these bytes, or something is mapped there.
    pub fn map(&mut self, address: u64, bytes: u64, handle: PhysicalHandle) -> bool {
        let Some(memory) = self.handles.get_mut(&handle.0) else { return false };
        let fits = memory.object.bytes == bytes && !memory.released && !self.mapped.contains_key(&address);
        if fits {
            memory.maps += 1;
            self.mapped.insert(address, PageMapping { handle: handle.0, bound: false });
        }
        fits
    }

    /// What binds the handles of a range; `None` unless whole handles fill it.
    ///
    /// The range begins at `offset` of its buffer.
    pub fn binds(&self, address: u64, bytes: u64, offset: u64) -> Option<Vec<vk::SparseMemoryBind>> {
        let (mut done, mut binds) = (0, Vec::new());
        while done < bytes {
            let object = &self.handles.get(&self.mapped.get(&(address + done))?.handle)?.object;
            let bind = vk::SparseMemoryBind::default().resource_offset(offset + done).size(object.bytes);
            binds.push(bind.memory(object.memory));
            done += object.bytes;
        }
        (done == bytes).then_some(binds)
    }

    /// Notes that the device knows what is mapped in a range.
    pub fn set_bound(&mut self, address: u64, bytes: u64) {
        self.mapped.range_mut(address..address + bytes).for_each(|(_, mapping)| mapping.bound = true);
    }

    /// Whether the device knows of memory in a range.
    pub fn is_bound(&self, address: u64, bytes: u64) -> bool {
        self.mapped.range(address..address + bytes).any(|(_, mapping)| mapping.bound)
    }

    /// Unmaps the handles of a range; returns the memory that goes.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Vec<MemoryObject> {
        let range = self.mapped.range(address..address + bytes);
        let gone: Vec<_> = range.map(|(&at, mapping)| (at, mapping.handle)).collect();
        let free = gone.into_iter().filter_map(|(at, handle)| {
            self.mapped.remove(&at);
            self.handles.get_mut(&handle)?.maps -= 1;
            self.take_if_free(handle)
        });
        free.collect()
    }

    /// Releases a handle, if there is one; returns its memory if that goes.
    pub fn release(&mut self, handle: PhysicalHandle) -> Option<Option<MemoryObject>> {
        self.handles.get_mut(&handle.0).filter(|memory| !memory.released)?.released = true;
        Some(self.take_if_free(handle.0))
    }

    fn take_if_free(&mut self, handle: u64) -> Option<MemoryObject> {
        let free = self.handles.get(&handle).is_some_and(|memory| memory.released && memory.maps == 0);
        free.then(|| self.handles.remove(&handle)).flatten().map(|memory| memory.object)
    }
}
