//! The allocator on devices that are not here: their tables of memory, and a driver made of numbers.

mod numbers;

use crate::driver::{HeapBudget, Requirements, Resource, Wish};
use crate::table::{MemoryTable, MemoryUse};
use crate::{AllocationDesc, AllocationError, Dedicated, VulkanAllocation, VulkanAllocator};
use ash::vk::{self, Handle, MemoryPropertyFlags as Flags};
use numbers::{CACHED, CountingDriver, DEVICE, GIB, HOST, MIB, amd, intel, jetson, nvidia, table};
use std::collections::HashMap;
use terrace_device::{Fault, FaultReason};

fn desc(bytes: u64, usage: MemoryUse) -> AllocationDesc {
    let requirements = vk::MemoryRequirements { size: bytes, alignment: 64, memory_type_bits: u32::MAX };
    AllocationDesc { requirements, usage, linear: true, dedicated: Dedicated::No }
}

fn allocate(allocator: &VulkanAllocator, bytes: u64, usage: MemoryUse) -> VulkanAllocation {
    allocator.allocate(&desc(bytes, usage)).expect("room")
}

#[test]
fn each_device_has_its_best_type_for_each_location() {
    let readback = MemoryUse::Properties { required: Flags::HOST_VISIBLE, preferred: Flags::HOST_CACHED };
    let shared = MemoryUse::Properties { required: DEVICE | HOST, preferred: Flags::empty() };
    // For the device, for uploads, for reading back; by properties: cached on the host; the device's own and shared.
    let rows: [(&str, MemoryTable, [u32; 5]); 5] = [
        ("NVIDIA", nvidia(), [1, 2, 3, 3, 4]),
        ("AMD, a window of 256 MiB", amd(256 * MIB), [0, 2, 3, 3, 1]),
        ("AMD, a resizable BAR", amd(16 * GIB), [0, 1, 3, 3, 1]),
        ("Intel", intel(), [0, 1, 2, 2, 1]),
        ("Jetson", jetson(), [0, 1, 2, 2, 1]),
    ];
    for (name, table, expected) in rows {
        let all = [MemoryUse::Device, MemoryUse::Upload, MemoryUse::Readback, readback, shared];
        let first = all.map(|usage| *table.candidates(u32::MAX, usage).first().expect("one serves"));
        assert_eq!(first, expected, "{name}");
    }
    // What needs a feature of its own is never chosen, not even last, unless it is asked for.
    assert!(amd(256 * MIB).candidates(u32::MAX, MemoryUse::Device).iter().all(|&at| at < 4));
    let asked = MemoryUse::Properties { required: Flags::DEVICE_COHERENT_AMD, preferred: Flags::empty() };
    assert_eq!(amd(256 * MIB).candidates(u32::MAX, asked), [], "the other flag was not asked for");
    // The resource decides too: a type that its bits leave out is none.
    assert_eq!(nvidia().candidates(0b1_1000, MemoryUse::Upload), [3, 4]);
}

#[test]
fn a_full_heap_is_passed_by_and_the_last_error_says_so() {
    let (numbers, small) =
        (CountingDriver::default(), table(&[(DEVICE, 0), (HOST, 1)], &[(64 * MIB, true), (128 * MIB, false)]));
    let allocator = numbers.allocator(&small);
    let first = allocate(&allocator, 40 * MIB, MemoryUse::Device);
    let second = allocate(&allocator, 40 * MIB, MemoryUse::Device);
    assert_eq!((first.memory_type(), second.memory_type()), (0, 1), "the device's heap, then the host's");
    let _third = allocate(&allocator, 40 * MIB, MemoryUse::Upload);
    let error = allocator.allocate(&desc(60 * MIB, MemoryUse::Device)).expect_err("both are full");
    let AllocationError::OutOfMemory { asked, type_index: 1, fault: Some(fault), .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((asked, fault.call), (60 * MIB, "VkMemoryHeap::size"));
    assert_eq!(allocator.heap(1).map(|heap| heap.reserved), Some(80 * MIB));
    drop(first);
    assert_eq!(allocate(&allocator, 60 * MIB, MemoryUse::Device).memory_type(), 0, "what was freed serves again");
    assert_eq!(allocator.check(), Ok(()));
}

#[test]
fn a_type_that_the_resource_may_not_have_is_not_given() {
    let allocator = CountingDriver::default().allocator(&nvidia());
    let mut wrong = desc(100, MemoryUse::Upload);
    wrong.requirements.memory_type_bits = 0b10;
    let error = allocator.allocate(&wrong).expect_err("the device's own memory is not host-visible");
    assert_eq!(error, AllocationError::NoMemoryType { type_bits: 0b10, usage: MemoryUse::Upload });
    for bytes in [1 << 40, 1 << 63, u64::MAX] {
        let error = allocator.allocate(&desc(bytes, MemoryUse::Device)).expect_err("no device has that much");
        assert!(matches!(error, AllocationError::OutOfMemory { asked, .. } if asked == bytes), "{error:?}");
    }
    for (size, alignment) in [(0, 1), (1, 0), (1, 3)] {
        let requirements = vk::MemoryRequirements { size, alignment, memory_type_bits: 1 };
        let error = allocator.allocate(&AllocationDesc { requirements, ..desc(1, MemoryUse::Device) });
        assert!(matches!(error, Err(AllocationError::BadRequest(_))), "{size} bytes at {alignment}");
    }
}

#[test]
fn a_budget_is_kept_though_the_heap_has_more() {
    let (numbers, table) = (CountingDriver::default(), MemoryTable { budget: true, ..nvidia() });
    numbers.state().budgets.insert(0, HeapBudget { budget: 100 * MIB, used: 90 * MIB });
    let allocator = numbers.allocator(&table);
    assert_eq!(allocate(&allocator, 8 * MIB, MemoryUse::Device).memory_type(), 1);
    assert_ne!(allocate(&allocator, 20 * MIB, MemoryUse::Device).memory_type(), 1, "beyond the budget");
    let heap = allocator.heap(0).expect("there is one");
    assert_eq!((heap.budget, heap.used, heap.bytes), (100 * MIB, 90 * MIB, 24 * GIB));
    assert_eq!(allocator.heap(3), None);
}

#[test]
fn linear_and_optimal_share_no_page_of_the_granularity() {
    for granularity in [1, 64, 1024, 64 << 10] {
        let table = MemoryTable { buffer_image_granularity: granularity, ..nvidia() };
        let (numbers, mut blocks) = (CountingDriver::default(), Vec::new());
        let allocator = numbers.allocator(&table);
        for i in 0..600_u64 {
            let linear = i % 3 != 0;
            let allocation =
                allocator.allocate(&AllocationDesc { linear, ..desc(1 + i * 77 % 5000, MemoryUse::Device) });
            blocks.push((linear, allocation.expect("room")));
            if i % 4 == 0 {
                blocks.swap_remove(i as usize * 7 % blocks.len());
            }
        }
        let mut pages: HashMap<(vk::DeviceMemory, u64), bool> = HashMap::new();
        for (linear, block) in &blocks {
            for page in block.offset() / granularity..=(block.offset() + block.size() - 1) / granularity {
                let other = pages.insert((block.memory(), page), *linear);
                assert!(granularity == 1 || other.is_none_or(|other| other == *linear), "{granularity}: page {page}");
            }
        }
        let objects = blocks.iter().map(|(_, block)| block.memory()).collect::<std::collections::HashSet<_>>();
        let both = |memory| [true, false].map(|kind| blocks.iter().any(|(l, b)| *l == kind && b.memory() == memory));
        let shared = objects.into_iter().any(|memory| both(memory) == [true, true]);
        assert_eq!(shared, granularity <= 256, "{granularity}: in one object where that is allowed");
        assert_eq!(allocator.check(), Ok(()));
    }
}

#[test]
fn no_more_objects_than_the_device_permits() {
    let few = MemoryTable { max_objects: 256, ..table(&[(DEVICE, 0)], &[(4 * GIB, true)]) };
    let numbers = CountingDriver::default();
    let allocator = numbers.allocator(&few);
    let blocks: Vec<_> = (0..16_000).map(|_| allocate(&allocator, 256 << 10, MemoryUse::Device)).collect();
    assert!(numbers.state().most <= 200, "nearly the whole heap in {} objects", numbers.state().most);
    drop(blocks);
    allocator.trim();
    assert_eq!((allocator.objects(), numbers.state().live.len()), (0, 0));
    let own =
        |at| AllocationDesc { dedicated: Dedicated::Buffer(vk::Buffer::from_raw(at)), ..desc(256, MemoryUse::Device) };
    let kept: Vec<_> = (1..=256).map(|at| allocator.allocate_as(&own(at)).expect("an object is left")).collect();
    let error = allocator.allocate_as(&own(257)).expect_err("no object is left");
    let AllocationError::OutOfMemory { fault: Some(fault), .. } = error else { panic!("{error:?}") };
    assert_eq!(fault.call, "maxMemoryAllocationCount");
    drop(kept);
    // An object that is larger than the device permits is refused before the driver is asked.
    let error = numbers.allocator(&nvidia()).allocate(&desc(5 * GIB, MemoryUse::Device)).expect_err("too large");
    assert!(error.to_string().contains("maxMemoryAllocationSize"), "{error}");
}

#[test]
fn a_resource_has_an_object_of_its_own_where_the_driver_asks_for_it() {
    let (numbers, buffer) = (CountingDriver::default(), vk::Buffer::from_raw(7));
    let table = MemoryTable { max_objects: 8, ..nvidia() };
    let allocator = numbers.allocator(&table);
    let wanted = desc(1000, MemoryUse::Device).requirements;
    let mut kept = Vec::new();
    for (wish, own) in [(Wish::No, false), (Wish::Prefers, true), (Wish::Requires, true), (Wish::No, false)] {
        numbers.state().wanted = Requirements { memory: wanted, dedicated: wish };
        // SAFETY: the driver made of numbers takes any buffer.
        let allocation = unsafe { allocator.bind_buffer(buffer, MemoryUse::Device) }.expect("room");
        assert_eq!(allocation.is_dedicated(), own, "{wish:?}");
        let state = numbers.state();
        let request = state.live.get(&allocation.memory()).expect("live");
        assert_eq!(request.dedicated, own.then_some(Resource::Buffer(buffer)));
        assert_eq!(request.bytes == 1000, own, "dedicated memory has the resource's size");
        assert_eq!(state.bound.last(), Some(&(Resource::Buffer(buffer), allocation.memory(), allocation.offset())));
        kept.push(allocation);
    }
    // Half of the objects are in use: a preference is no longer granted.
    let image = vk::Image::from_raw(9);
    for (wish, own) in [(Wish::Requires, true), (Wish::Prefers, false)] {
        numbers.state().wanted = Requirements { memory: wanted, dedicated: wish };
        // SAFETY: as above.
        let allocation = unsafe { allocator.bind_image(image, MemoryUse::Device, false) }.expect("room");
        assert_eq!(allocation.is_dedicated(), own, "{wish:?}");
        kept.push(allocation);
    }
    // So has what must be aligned to more than an object's parts are.
    let mut aligned = desc(1000, MemoryUse::Device);
    aligned.requirements.alignment = 2 * MIB;
    let aligned = allocator.allocate(&aligned).expect("room");
    assert_eq!((aligned.is_dedicated(), aligned.offset()), (true, 0));
}

#[test]
fn flushes_are_whole_atoms_of_one_block() {
    let (numbers, table) = (CountingDriver::default(), MemoryTable { non_coherent_atom: 128, ..jetson() });
    let allocator = numbers.allocator(&table);
    let blocks = [100, 1000, 300].map(|bytes| allocate(&allocator, bytes, MemoryUse::Readback));
    let block = &blocks[1];
    block.flush(130, 200).expect("inside");
    block.invalidate(0, 1000).expect("inside");
    let at = block.offset();
    let ranges: Vec<_> = numbers.state().flushed.iter().map(|range| (range.offset - at, range.bytes)).collect();
    assert_eq!(ranges, [(128, 256), (0, 1024)]);
    for other in [&blocks[0], &blocks[2]] {
        assert!(other.offset() >= at + 1024 || other.offset() + other.size() <= at, "no atom of two blocks");
    }
    assert!(matches!(block.flush(900, 101), Err(AllocationError::BadRequest(_))), "outside");
    assert!(matches!(block.flush(u64::MAX, 2), Err(AllocationError::BadRequest(_))), "outside");
    block.flush(3, 0).expect("nothing");
    // An object of its own may end within an atom.
    let own =
        AllocationDesc { dedicated: Dedicated::Buffer(vk::Buffer::from_raw(1)), ..desc(200, MemoryUse::Readback) };
    allocator.allocate_as(&own).expect("room").flush(0, 200).expect("inside");
    assert_eq!(numbers.state().flushed.last().map(|range| range.bytes), Some(200));
    // Coherent memory needs none, memory that the host does not see has none.
    let before = numbers.state().flushed.len();
    allocate(&allocator, 100, MemoryUse::Upload).flush(0, 100).expect("coherent");
    assert!(allocate(&allocator, 100, MemoryUse::Device).flush(0, 100).is_err(), "not mapped");
    assert_eq!(numbers.state().flushed.len(), before);
}

#[test]
fn what_one_pool_keeps_serves_another_of_the_heap() {
    let numbers = CountingDriver::default();
    let table = MemoryTable {
        buffer_image_granularity: 1024,
        ..table(&[(DEVICE, 0), (DEVICE | HOST, 0)], &[(64 * MIB, true)])
    };
    let allocator = numbers.allocator(&table);
    drop(allocate(&allocator, 50 * MIB, MemoryUse::Device));
    assert_eq!(allocator.stats().reserved, 50 * MIB, "kept");
    drop(allocate(&allocator, 50 * MIB, MemoryUse::Upload));
    let image = AllocationDesc { linear: false, ..desc(50 * MIB, MemoryUse::Device) };
    assert_eq!(allocator.allocate(&image).expect("the other pools' went back").memory_type(), 0);
}

/// Where the number of objects is the limit, an object of any heap is one.
#[test]
fn what_pools_of_other_heaps_keep_goes_back_for_an_object() {
    let numbers = CountingDriver::default();
    let few = MemoryTable { max_objects: 2, ..table(&[(DEVICE, 0), (HOST, 1)], &[(GIB, true), (GIB, false)]) };
    let allocator = numbers.allocator(&few);
    drop(allocate(&allocator, 100 * MIB, MemoryUse::Upload));
    let _first = allocate(&allocator, 600 * MIB, MemoryUse::Device);
    assert_eq!(allocator.objects(), 2, "one is kept");
    assert_eq!(allocate(&allocator, 300 * MIB, MemoryUse::Device).memory_type(), 0);
    assert_eq!(allocator.heap(1).map(|heap| heap.reserved), Some(0));
}

#[test]
fn a_pool_of_the_device_s_memory_takes_none_of_the_host_s() {
    let of = |table: &MemoryTable, bits| table.pool_candidates(bits, MemoryUse::Device);
    assert_eq!(of(&nvidia(), u32::MAX), [1], "nor of the window");
    assert_eq!((of(&amd(16 * GIB), u32::MAX), of(&intel(), u32::MAX)), (vec![0, 1], vec![0, 1, 2]));
    assert_eq!(of(&nvidia(), 0b1_1000), [4], "a buffer that the rest of the device cannot have");
    assert_eq!(
        of(&table(&[(HOST, 0), (CACHED, 1)], &[(GIB, false), (GIB, false)]), u32::MAX),
        [0, 1],
        "no heap of its own"
    );
    assert_eq!(nvidia().pool_candidates(u32::MAX, MemoryUse::Upload), nvidia().candidates(u32::MAX, MemoryUse::Upload));
}

#[test]
fn another_refusal_is_told_at_once_and_nothing_stays() {
    let numbers = CountingDriver::default();
    let allocator = numbers.allocator(&nvidia());
    let lost = Fault::of("vkAllocateMemory", FaultReason::Lost);
    numbers.state().refuses = Some(lost);
    assert_eq!(allocator.allocate(&desc(100, MemoryUse::Device)).expect_err("lost"), AllocationError::Driver(lost));
    assert_eq!((allocator.objects(), allocator.heap(0).map(|heap| heap.reserved)), (0, Some(0)));
    numbers.state().refuses = None;
    assert_eq!(allocate(&allocator, 100, MemoryUse::Device).memory_type(), 1);
}

/// A block that was freed last is taken again at once, and everything else sees it as free.
#[test]
fn what_was_freed_last_is_free() {
    let numbers = CountingDriver::default();
    let allocator = numbers.allocator(&nvidia());
    let first = allocate(&allocator, 1000, MemoryUse::Device);
    let place = (first.memory(), first.offset());
    allocator.free(first);
    assert_eq!((allocator.stats().live_blocks, allocator.stats().in_use), (0, 0));
    let again = allocate(&allocator, 1024, MemoryUse::Device);
    assert_eq!((again.memory(), again.offset()), place);
    drop(again);
    let other = allocate(&allocator, 2000, MemoryUse::Device);
    assert_eq!((other.memory(), other.offset()), place, "merged with what is behind it");
    drop(other);
    // Beside a gap of just its size: small blocks are taken again, large ones go where they fit best.
    for (bytes, at) in [(1024, 2), (MIB, 2), (MIB + 256, 0)] {
        let mut three = [(); 3].map(|()| Some(allocate(&allocator, bytes, MemoryUse::Device)));
        let places = three.each_ref().map(|block| block.as_ref().map(|block| (block.memory(), block.offset())));
        (three[0], three[2]) = (None, None);
        let again = allocate(&allocator, bytes, MemoryUse::Device);
        assert_eq!(Some((again.memory(), again.offset())), places[at], "{bytes} bytes");
    }
    assert!(allocator.trim() > 0);
    assert_eq!(numbers.state().live.len(), 0);
}

/// Random programs: blocks never overlap, are where they should be, and everything goes back.
#[test]
fn blocks_never_overlap_and_all_goes_back() {
    for (seed, table) in (1_u64..).zip([nvidia(), amd(256 * MIB), intel(), jetson()]) {
        let numbers = CountingDriver::default();
        let allocator = numbers.allocator(&table);
        let (mut random, mut live) = (seed, Vec::<(VulkanAllocation, u64)>::new());
        for step in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = random >> 33;
            if draw % 5 < 2 && !live.is_empty() {
                live.swap_remove(draw as usize % live.len());
                continue;
            }
            let usage = [MemoryUse::Device, MemoryUse::Upload, MemoryUse::Readback][draw as usize % 3];
            let mut desc = desc(1 + draw % (1 << (8 + draw % 14)), usage);
            desc.requirements.alignment = 1 << (draw % 17);
            desc.linear = draw & 64 == 0;
            let allocation = allocator.allocate(&desc).expect("room");
            assert!(allocation.offset().is_multiple_of(desc.requirements.alignment));
            live.push((allocation, desc.requirements.size));
            if step % 500 == 0 {
                assert_eq!(allocator.check(), Ok(()));
            }
        }
        let mut ranges: Vec<_> = live.iter().map(|(block, size)| (block.memory(), block.offset(), *size)).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1 + two[0].2 <= two[1].1), "{seed}");
        let state = numbers.state();
        assert!(ranges.iter().all(|(memory, offset, size)| offset + size <= state.live[memory].bytes), "{seed}");
        drop(state);
        drop(live);
        allocator.trim();
        assert_eq!((allocator.objects(), allocator.stats().in_use), (0, 0));
        assert!(
            table
                .heaps
                .iter()
                .enumerate()
                .all(|(at, _)| allocator.heap(at as u32).is_some_and(|heap| heap.reserved == 0))
        );
        assert_eq!(numbers.state().live.len(), 0);
    }
}

#[test]
fn an_allocation_outlives_its_allocator() {
    let numbers = CountingDriver::default();
    let allocator = numbers.allocator(&intel());
    let kept = allocate(&allocator, 1000, MemoryUse::Upload);
    drop(allocator);
    assert_eq!(numbers.state().live.len(), 1);
    drop(kept);
    assert_eq!(numbers.state().live.len(), 0, "the last one frees all");
}
