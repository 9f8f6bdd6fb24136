//! The storage under CubeCL's own management of memory, on the host and on a simulated GPU.

use cubecl_ir::MemoryDeviceProperties;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, ManagedMemoryHandle, MemoryAllocationMode, MemoryConfiguration, MemoryManagement,
    MemoryManagementOptions, PageUpdate,
};
use std::sync::Arc;
use terrace_cubecl::{DeviceResource, DeviceStorage};
use terrace_cuda::Cuda;
use terrace_device::{Device, DeviceOptions, HostBackend};
use terrace_tests::simcuda::Simulator;

const MIB: u64 = 1 << 20;

fn options() -> DeviceOptions {
    DeviceOptions { capacity: 256 * MIB, blocks: 1 << 12, ..DeviceOptions::default() }
}

fn storage(device: &Device) -> DeviceStorage {
    DeviceStorage::new(device, &device.stream().expect("a stream"))
}

fn management(device: &Device, mode: MemoryAllocationMode) -> MemoryManagement<DeviceStorage> {
    let storage = storage(device);
    let properties = MemoryDeviceProperties::new(64 * MIB, storage.alignment() as u64);
    let options = MemoryManagementOptions::new("terrace").mode(mode);
    let logger = Arc::new(ServerLogger::default());
    MemoryManagement::from_configuration(storage, &properties, MemoryConfiguration::default(), logger, options)
}

/// Tensors of many sizes come and go, through CubeCL: each has memory of its own, and all goes back.
fn tensors(device: &Device, mode: MemoryAllocationMode) {
    let mut memory = management(device, mode);
    let mut failures = ErrorGraph::default();
    let mut live: Vec<(ManagedMemoryHandle, DeviceResource)> = Vec::new();
    for step in 0..600_u64 {
        if step % 3 == 2 {
            live.swap_remove(step as usize * 7 % live.len());
        }
        let bytes = 1 + (step * 7919 * 4093) % (2 * MIB);
        let handle = memory.reserve(bytes, PageUpdate::Allow, &mut failures).expect("there is room");
        let resource = memory.get_resource(handle.clone().binding(), None, None).expect("it is live");
        assert!(resource.bytes >= bytes);
        let apart = |other: &DeviceResource| {
            resource.address + resource.bytes <= other.address || other.address + other.bytes <= resource.address
        };
        assert!(live.iter().all(|(_, other)| apart(other)), "{resource:?}");
        live.push((handle, resource));
        if live.len() > 60 {
            live.remove(0);
        }
    }
    let used = device.stats().pool.in_use;
    assert!(used >= memory.bytes_allocated() && used > 0);
    device.check().expect("it is sound");
    live.clear();
    // Each cleanup is a tick.
    (0..4).for_each(|_| memory.cleanup(Cleanup::Explicit, &mut failures));
    assert_eq!((memory.bytes_allocated(), device.stats().pool.live_blocks), (0, 0));
    drop(memory);
    device.trim();
    assert_eq!(device.stats().pool.reserved, 0);
}

#[test]
fn tensors_on_the_host() {
    let device = Device::open(HostBackend::new(), options()).expect("the host");
    for mode in [MemoryAllocationMode::Auto, MemoryAllocationMode::Dedicated] {
        tensors(&device, mode);
    }
}

#[test]
fn tensors_on_a_gpu() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = Device::open(Cuda::open(0).expect("simulated"), options()).expect("a device");
    for mode in [MemoryAllocationMode::Auto, MemoryAllocationMode::Dedicated] {
        tensors(&device, mode);
    }
}

#[test]
fn what_cannot_be_is_told_in_cubecl_s_words() {
    let device = Device::open(HostBackend::new(), options()).expect("the host");
    let mut storage = storage(&device);
    let full = storage.alloc(200 * MIB).expect("room");
    let refused = storage.alloc(100 * MIB);
    assert!(matches!(refused, Err(IoError::OutOfMemory { size, .. }) if size == 100 * MIB), "{refused:?}");
    let beyond = StorageHandle::new(full.id, StorageUtilization { offset: 200 * MIB, size: 1 });
    assert!(matches!(storage.get(&beyond), Err(IoError::StorageHandleNotFound { .. })));
    storage.dealloc(full.id);
    storage.dealloc(full.id);
    assert!(matches!(storage.get(&full), Err(IoError::StorageHandleNotFound { .. })));
    storage.dealloc(StorageId::new());
    storage.flush();
    assert_eq!((storage.bytes_allocated(), storage.device().stats().pool.live_blocks), (0, 0));
    let none = storage.alloc(0).expect("nothing is a size too");
    assert_eq!(storage.get(&none).expect("it is live").bytes, 0);
    storage.dealloc(none.id);
}
