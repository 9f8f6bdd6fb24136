//! Devices that bind, and those that do not; a table of pages without a device.

use super::{PAGE, PageTable, binding_family, features};
use crate::driver::MemoryObject;
use ash::vk::{self, Handle};
use terrace_device::PhysicalHandle;

#[test]
fn a_queue_of_another_family_binds_or_else_the_streams_own() {
    let family = |flags| vk::QueueFamilyProperties { queue_flags: flags, queue_count: 1, ..Default::default() };
    let (all, sparse) = (vk::QueueFlags::COMPUTE | vk::QueueFlags::SPARSE_BINDING, vk::QueueFlags::SPARSE_BINDING);
    let of = |flags: [vk::QueueFlags; 3], streams| binding_family(&features(), &flags.map(family), streams).ok();
    assert_eq!(of([vk::QueueFlags::TRANSFER, all, sparse], 1), Some(2));
    assert_eq!(of([all, vk::QueueFlags::TRANSFER, vk::QueueFlags::COMPUTE], 0), Some(0));
    assert_eq!(of([vk::QueueFlags::COMPUTE, vk::QueueFlags::TRANSFER, sparse], 0), Some(2));
    assert_eq!(of([vk::QueueFlags::COMPUTE; 3], 0), None);
    let lacking = [
        features().sparse_binding(false),
        features().sparse_residency_buffer(false),
        features().sparse_residency_aliased(false),
    ];
    for lacks in lacking {
        assert!(binding_family(&lacks, &[family(all)], 0).is_err());
    }
}

#[test]
fn memory_goes_once_it_is_released_and_mapped_nowhere() {
    let mut table = PageTable::default();
    let handles = [1, 2].map(PhysicalHandle);
    let object = |memory, pages| MemoryObject {
        memory: vk::DeviceMemory::from_raw(memory),
        bytes: pages * PAGE,
        type_index: 0,
        mapped: 0,
    };
    table.add(handles[0], object(11, 1));
    table.add(handles[1], object(12, 2));
    let at = 100 * PAGE;
    assert!(table.map(at, PAGE, handles[0]) && table.map(at + PAGE, 2 * PAGE, handles[1]));
    assert!(!table.map(at, PAGE, handles[0]), "something is mapped there");
    assert!(!table.map(0, PAGE, handles[1]) && !table.map(0, PAGE, PhysicalHandle(3)), "no such memory");
    let binds = table.binds(at, 3 * PAGE, 7 * PAGE).expect("whole handles");
    let told: Vec<_> = binds.iter().map(|bind| (bind.resource_offset, bind.size, bind.memory.as_raw())).collect();
    assert_eq!(told, [(7 * PAGE, PAGE, 11), (8 * PAGE, 2 * PAGE, 12)]);
    assert!(binds.iter().all(|bind| bind.memory_offset == 0 && bind.flags.is_empty()));
    for (start, bytes) in [(at, 2 * PAGE), (at - PAGE, PAGE), (at + 2 * PAGE, PAGE), (at, 4 * PAGE)] {
        assert!(table.binds(start, bytes, 0).is_none(), "{bytes} bytes at {start}");
    }
    assert!(!table.is_bound(at, 3 * PAGE));
    table.set_bound(at + PAGE, 2 * PAGE);
    assert!(table.is_bound(at, 3 * PAGE) && !table.is_bound(at, PAGE));
    // It moves: two places at once.
    assert!(table.map(at + 9 * PAGE, 2 * PAGE, handles[1]));
    assert_eq!(table.release(handles[1]), Some(None), "still mapped");
    assert_eq!((table.release(handles[1]), table.release(PhysicalHandle(3))), (None, None), "released once");
    assert_eq!(table.unmap(at, 3 * PAGE), [], "one is not released, one still mapped elsewhere");
    assert_eq!(table.unmap(at + 9 * PAGE, 2 * PAGE), [object(12, 2)]);
    assert_eq!(table.release(handles[0]), Some(Some(object(11, 1))));
    assert!(table.handles.is_empty() && table.mapped.is_empty());
}
