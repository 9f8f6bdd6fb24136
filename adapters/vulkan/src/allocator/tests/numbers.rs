//! Tables of memory of devices that are not here, and a driver made of numbers.
//!
//! Promises upward: the driver counts what is live, and panics if an object is freed twice.
//! Asks from below: nothing.

use crate::driver::{HeapBudget, MemoryDriver, MemoryObject, ObjectRange, ObjectRequest, Requirements, Resource};
use crate::table::{MemoryHeap, MemoryTable, MemoryType};
use crate::{AllocatorOptions, VulkanAllocator};
use ash::vk::{self, Handle, MemoryPropertyFlags as Flags};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use terrace_device::Fault;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const DEVICE: Flags = Flags::DEVICE_LOCAL;
pub const HOST: Flags = Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());
pub const CACHED: Flags = Flags::from_raw(HOST.as_raw() | Flags::HOST_CACHED.as_raw());

pub fn table(types: &[(Flags, u32)], heaps: &[(u64, bool)]) -> MemoryTable {
    MemoryTable {
        types: types.iter().map(|&(flags, heap)| MemoryType { flags, heap }).collect(),
        heaps: heaps.iter().map(|&(bytes, device_local)| MemoryHeap { bytes, device_local }).collect(),
        buffer_image_granularity: 1,
        non_coherent_atom: 64,
        max_objects: 4096,
        max_object_bytes: 4 * GIB,
        budget: false,
    }
}

/// A discrete NVIDIA card, whose host sees 246 MiB of it.
pub fn nvidia() -> MemoryTable {
    let types = [(Flags::empty(), 1), (DEVICE, 0), (HOST, 1), (CACHED, 1), (DEVICE | HOST, 2)];
    MemoryTable {
        buffer_image_granularity: 1024,
        ..table(&types, &[(24 * GIB, true), (48 * GIB, false), (246 * MIB, true)])
    }
}

/// An AMD card, whose host sees `window` bytes of it.
pub fn amd(window: u64) -> MemoryTable {
    let uncached = Flags::DEVICE_COHERENT_AMD | Flags::DEVICE_UNCACHED_AMD;
    let types = [
        (DEVICE, 0),
        (DEVICE | HOST, if window < 16 * GIB { 2 } else { 0 }),
        (HOST, 1),
        (CACHED, 1),
        (DEVICE | uncached, 0),
        (HOST | uncached, 1),
    ];
    let heaps = [(16 * GIB, true), (32 * GIB, false), (window, true)];
    table(&types, if window < 16 * GIB { &heaps } else { &heaps[..2] })
}

/// Intel's integrated graphics.
pub fn intel() -> MemoryTable {
    table(&[(DEVICE, 0), (DEVICE | HOST, 0), (DEVICE | CACHED, 0)], &[(12 * GIB, true)])
}

/// A Jetson: some of its types are not coherent.
pub fn jetson() -> MemoryTable {
    let not_coherent = Flags::HOST_VISIBLE | Flags::HOST_CACHED;
    table(&[(DEVICE, 0), (DEVICE | HOST, 0), (DEVICE | not_coherent, 0)], &[(8 * GIB, true)])
}

/// A driver made of numbers; clones are the same.
#[derive(Clone, Default)]
pub struct CountingDriver(Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    next: u64,
    pub live: HashMap<vk::DeviceMemory, ObjectRequest>,
    pub most: usize,
    pub budgets: HashMap<u32, HeapBudget>,
    /// What the next resource asks for.
    pub wanted: Requirements,
    pub bound: Vec<(Resource, vk::DeviceMemory, u64)>,
    pub flushed: Vec<ObjectRange>,
    pub refuses: Option<Fault>,
}

impl CountingDriver {
    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    pub fn allocator(&self, table: &MemoryTable) -> VulkanAllocator {
        VulkanAllocator::with_driver(table.clone(), Box::new(self.clone()), AllocatorOptions::default())
    }
}

impl MemoryDriver for CountingDriver {
    fn allocate(&self, request: &ObjectRequest) -> Result<MemoryObject, Fault> {
        let mut state = self.state();
        if let Some(fault) = state.refuses {
            return Err(fault);
        }
        state.next += 1;
        let memory = vk::DeviceMemory::from_raw(state.next);
        state.live.insert(memory, *request);
        state.most = state.most.max(state.live.len());
        // No test looks at the bytes.
        let mapped = if request.map { MIB } else { 0 };
        Ok(MemoryObject { memory, bytes: request.bytes, type_index: request.type_index, mapped })
    }

    unsafe fn free(&self, object: &MemoryObject) {
        assert!(self.state().live.remove(&object.memory).is_some(), "freed once");
    }

    fn budget(&self, heap: u32) -> Option<HeapBudget> {
        self.state().budgets.get(&heap).copied()
    }

    unsafe fn requirements(&self, _: Resource) -> Requirements {
        self.state().wanted
    }

    unsafe fn bind(&self, resource: Resource, memory: vk::DeviceMemory, offset: u64) -> Result<(), Fault> {
        self.state().bound.push((resource, memory, offset));
        Ok(())
    }

    unsafe fn flush(&self, range: ObjectRange) -> Result<(), Fault> {
        self.state().flushed.push(range);
        Ok(())
    }

    unsafe fn invalidate(&self, range: ObjectRange) -> Result<(), Fault> {
        self.state().flushed.push(range);
        Ok(())
    }
}
