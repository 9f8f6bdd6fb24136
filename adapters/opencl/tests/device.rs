//! The first OpenCL device of this machine, by the backend's own calls: what it says, how much it has, every way between two
//! regions. Skipped by name where there is no OpenCL.

mod common;

use common::{ALL, opened};
use opencl3::device::{CL_DEVICE_SVM_ATOMICS, CL_DEVICE_SVM_FINE_GRAIN_BUFFER, Device as ClDevice};
use terrace_device::{
    Backend, Capabilities, Device, DeviceError, DeviceOptions, FaultReason, MemoryKind, PoolOrigin, PrefetchTarget,
};
use terrace_opencl::{OpenClBackend, OpenClMemory};

#[test]
fn it_is_described_as_its_driver_says() {
    for memory in ALL {
        let Some(backend) = opened("it_is_described_as_its_driver_says", memory) else { return };
        let (said, asked) = (backend.description(), ClDevice::new(backend.device_id()));
        let listed = OpenClBackend::devices().expect("it opened a moment ago").swap_remove(0);
        assert_eq!((said.backend, said.ordinal, backend.memory_kind()), ("opencl", 0, memory));
        assert_eq!(said.name, asked.name().expect("a name").trim());
        assert_eq!(said.total, asked.global_mem_size().expect("a size"));
        assert_eq!(backend.align() * 8, u64::from(asked.mem_base_addr_align().expect("in bits")));
        assert!(said.driver.contains(&listed.platform) && said.driver.starts_with("OpenCL "), "{}", said.driver);
        assert!(listed.memory.contains(&memory) && listed.name == said.name && listed.total == said.total);
        let (can, svm) = (said.capabilities, asked.svm_mem_capability());
        let fine = svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0;
        assert!(can.contains(Capabilities::PINNED | Capabilities::STREAM_NAMES));
        assert_eq!(can.contains(Capabilities::MANAGED), fine);
        let atomics = fine && svm & CL_DEVICE_SVM_ATOMICS != 0;
        assert_eq!(can.contains(Capabilities::CONCURRENT_MANAGED | Capabilities::HOST_ATOMICS), atomics);
        let unified = asked.host_unified_memory().expect("it says so");
        assert_eq!(can.contains(Capabilities::INTEGRATED | Capabilities::FREE_IS_AVAILABLE), unified);
        let never = Capabilities::SYNCHRONOUS | Capabilities::PAGES | Capabilities::DRIVER_POOL;
        assert!(!can.intersects(never | Capabilities::PEERS | Capabilities::REGISTRATION));
        // What it lacks is told, each in a sentence.
        assert!(said.notes.iter().any(|note| note.starts_with("no pages: ")), "{:?}", said.notes);
        println!("{memory}: {said:#?}");
        let pages = DeviceOptions { origin: PoolOrigin::Pages, ..DeviceOptions::default() };
        assert!(Device::open(backend, pages).is_err(), "pages are not to be had");
    }
}

#[test]
fn memory_is_counted_and_there_is_no_more_than_all_of_it() {
    for memory in ALL {
        let Some(backend) = opened("memory_is_counted_and_there_is_no_more_than_all_of_it", memory) else { return };
        let free = || backend.memory().expect("it says").free;
        let (before, total) = (free(), backend.memory().expect("it says").total);
        assert!(before <= total && total == backend.description().total);
        let mut taken = Vec::new();
        // A quarter of it five times: the device's drivers give more than there is (PoCL), or less.
        let piece = total / 4;
        let refused = loop {
            match backend.take(MemoryKind::Device, piece) {
                Ok(address) => taken.push(address),
                Err(fault) => break fault,
            }
            assert!(taken.len() <= 4, "more than there is");
        };
        assert_eq!(refused.reason, FaultReason::OutOfMemory, "{refused}");
        assert!(free() <= total - piece * taken.len() as u64);
        assert!(taken.len() >= 2, "{refused}");
        for bytes in [0, total + 1, u64::MAX, u64::MAX - 255] {
            for kind in [MemoryKind::Device, MemoryKind::Pinned, MemoryKind::Managed] {
                let refused = backend.take(kind, bytes).expect_err("there is no such region");
                assert_eq!(refused.reason, FaultReason::OutOfMemory, "{bytes} {kind:?}: {refused}");
            }
        }
        for address in taken {
            // SAFETY: taken above, and unused.
            unsafe { backend.give_back(MemoryKind::Device, address, piece) }.expect("it goes back");
            // SAFETY: refused, as it is not allocated any more.
            let again = unsafe { backend.give_back(MemoryKind::Device, address, piece) };
            assert_eq!(again.map_err(|fault| fault.reason), Err(FaultReason::BadHandle));
        }
        // Refusals left nothing counted: all of it can be taken again.
        let again = backend.take(MemoryKind::Device, piece).expect("it is there again");
        // SAFETY: taken above, and unused.
        unsafe { backend.give_back(MemoryKind::Device, again, piece) }.expect("it goes back");
    }
}

/// Where the bytes of a copy lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Region(MemoryKind),
    /// Memory of the program's own.
    Program,
}

const SIDES: [Side; 4] = [
    Side::Region(MemoryKind::Device),
    Side::Region(MemoryKind::Pinned),
    Side::Region(MemoryKind::Managed),
    Side::Program,
];

const BYTES: usize = 10_000;

/// Copies and fills between every two sides, at offsets that nothing is aligned to, are in the order of the stream and touch their
/// ranges alone.
#[test]
fn bytes_go_from_every_side_to_every_side() {
    for memory in ALL {
        let Some(backend) = opened("bytes_go_from_every_side_to_every_side", memory) else { return };
        let stream = backend.create_stream().expect("a stream");
        let take = |side| match side {
            Side::Region(kind) => backend.take(kind, BYTES as u64).expect("room"),
            Side::Program => Box::into_raw(Box::new([0_u8; BYTES])).expose_provenance() as u64,
        };
        // What a side has, read through the program's memory.
        let read = |at: u64| {
            let mut bytes = [0xee_u8; BYTES];
            let to = bytes.as_mut_ptr().expose_provenance() as u64;
            // SAFETY: both ranges are live, and the copy is waited for.
            unsafe { backend.copy(to, at, BYTES as u64, stream) }.expect("copied");
            // SAFETY: a live stream.
            unsafe { backend.synchronize_stream(stream) }.expect("done");
            // What the device wrote: the compiler does not know of it.
            std::hint::black_box(&mut bytes);
            bytes
        };
        for from in SIDES {
            for to in SIDES {
                let (source, target) = (take(from), take(to));
                assert!(
                    [(from, source), (to, target)].iter().all(|(side, at)| *side == Side::Program || at % 256 == 0)
                );
                // SAFETY: live ranges of this test's, and a live stream: so for all calls of this block.
                unsafe { backend.fill(source, 1, BYTES as u64, stream) }.expect("filled");
                // SAFETY: as above.
                unsafe { backend.fill(source + 333, 2, 77, stream) }.expect("filled");
                // SAFETY: as above.
                unsafe { backend.fill(target, 3, BYTES as u64, stream) }.expect("filled");
                // SAFETY: as above.
                unsafe { backend.copy(target + 1001, source + 301, 131, stream) }.expect("copied");
                // SAFETY: as above.
                unsafe { backend.fill(source, 9, BYTES as u64, stream) }.expect("filled");
                // SAFETY: as above.
                unsafe { backend.copy(target, source, 0, stream) }.expect("nothing is no error");
                let right = |(i, byte): (usize, &u8)| {
                    *byte
                        == if !(1001..1132).contains(&i) {
                            3
                        } else if (1033..1110).contains(&i) {
                            2
                        } else {
                            1
                        }
                };
                let is = read(target);
                let wrong = is.iter().enumerate().find(|&one| !right(one));
                assert_eq!(wrong, None, "{memory}: from {from:?} to {to:?}");
                assert!(read(source).iter().all(|byte| *byte == 9), "{memory}: {from:?}");
                for (side, at) in [(from, source), (to, target)] {
                    match side {
                        // SAFETY: made by `take`, and the stream is done.
                        Side::Region(kind) => unsafe { backend.give_back(kind, at, BYTES as u64) }.expect("goes back"),
                        Side::Program => {
                            let bytes: *mut [u8; BYTES] = std::ptr::with_exposed_provenance_mut(at as usize);
                            // SAFETY: as above.
                            drop(unsafe { Box::from_raw(bytes) });
                        }
                    }
                }
            }
        }
        // SAFETY: a live stream, not named again.
        unsafe { backend.destroy_stream(stream) }.expect("destroyed");
    }
}

/// Ranges that lie less than the alignment of sub-buffers apart, in either order.
#[test]
fn neighbours_in_a_region_are_copied() {
    for memory in ALL {
        let Some(backend) = opened("neighbours_in_a_region_are_copied", memory) else { return };
        let stream = backend.create_stream().expect("a stream");
        let region = backend.take(MemoryKind::Device, BYTES as u64).expect("room");
        for (to, from, bytes) in
            [(50, 0, 50), (0, 50, 50), (1, 0, 1), (301, 250, 51), (7, 4000, 3000), (5000, 1999, 3001)]
        {
            let numbers: Vec<u8> = (0..BYTES).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut right = numbers.clone();
            right.copy_within(from..from + bytes, to);
            let mut read = vec![0_u8; BYTES];
            let (source, target) = (numbers.as_ptr().expose_provenance(), read.as_mut_ptr().expose_provenance());
            // SAFETY: live ranges and stream, and the copies are waited for: here and below.
            unsafe { backend.copy(region, source as u64, BYTES as u64, stream) }.expect("copied");
            // SAFETY: as above.
            unsafe { backend.copy(region + to as u64, region + from as u64, bytes as u64, stream) }.expect("copied");
            // SAFETY: as above.
            unsafe { backend.copy(target as u64, region, BYTES as u64, stream) }.expect("copied");
            // SAFETY: as above.
            unsafe { backend.synchronize_stream(stream) }.expect("done");
            assert!(*std::hint::black_box(&mut read) == right, "{memory}: {bytes} bytes from {from} to {to}");
        }
        // SAFETY: taken above; the stream is done.
        unsafe { backend.give_back(MemoryKind::Device, region, BYTES as u64) }.expect("goes back");
        // SAFETY: a live stream, not named again.
        unsafe { backend.destroy_stream(stream) }.expect("destroyed");
    }
}

#[test]
fn the_host_reaches_pinned_and_managed_memory() {
    for memory in ALL {
        let Some(backend) = opened("the_host_reaches_pinned_and_managed_memory", memory) else { return };
        let stream = backend.create_stream().expect("a stream");
        for kind in [MemoryKind::Pinned, MemoryKind::Managed] {
            let region = backend.take(kind, BYTES as u64).expect("room");
            let device = backend.take(MemoryKind::Device, BYTES as u64).expect("room");
            let bytes: *mut u8 = std::ptr::with_exposed_provenance_mut(region as usize);
            // SAFETY: a live region that the host reaches, of this size, which no work uses.
            unsafe { std::slice::from_raw_parts_mut(bytes, BYTES) }.fill(0xa5);
            // SAFETY: live regions and stream.
            unsafe { backend.copy(device, region, BYTES as u64, stream) }.expect("copied");
            // SAFETY: as above.
            unsafe { backend.fill(device + 5, 0x3c, 1, stream) }.expect("filled");
            // SAFETY: as above.
            unsafe { backend.copy(region, device, BYTES as u64, stream) }.expect("copied");
            // SAFETY: a live stream.
            unsafe { backend.synchronize_stream(stream) }.expect("done");
            // SAFETY: as above; the work is done.
            let seen = unsafe { std::slice::from_raw_parts(bytes, BYTES) };
            assert!(seen.iter().enumerate().all(|(i, byte)| *byte == if i == 5 { 0x3c } else { 0xa5 }), "{kind:?}");
            // SAFETY: live regions and stream.
            let prefetched = unsafe { backend.prefetch(region, BYTES as u64, PrefetchTarget::Device, stream) };
            let is_svm = kind == MemoryKind::Managed || memory == OpenClMemory::FineSvm;
            assert_eq!(prefetched.is_ok(), is_svm, "{kind:?} in {memory}: {prefetched:?}");
            // SAFETY: a live stream.
            unsafe { backend.synchronize_stream(stream) }.expect("done");
            // SAFETY: taken above; the stream is done.
            unsafe { backend.give_back(kind, region, BYTES as u64) }.expect("goes back");
            // SAFETY: as above.
            unsafe { backend.give_back(MemoryKind::Device, device, BYTES as u64) }.expect("goes back");
        }
        // SAFETY: a live stream, not named again.
        unsafe { backend.destroy_stream(stream) }.expect("destroyed");
    }
}

/// Sub-buffers begin where the device says: the granule is raised to that, and options that break a rule are refused as ever.
#[test]
fn blocks_begin_where_sub_buffers_can() {
    let Some(backend) = opened("blocks_begin_where_sub_buffers_can", OpenClMemory::Buffers) else { return };
    let open = |granule| Device::open(backend.clone(), DeviceOptions { granule, ..DeviceOptions::default() });
    let device = open(64).expect("a device");
    assert_eq!(device.granule(), backend.align().max(64));
    let stream = device.stream().expect("a stream");
    let blocks: Vec<_> = (0..10).map(|_| device.allocate(&stream, 1).expect("room")).collect();
    assert!(blocks.iter().all(|block| block.place().offset.is_multiple_of(backend.align())));
    assert!(matches!(open(100), Err(DeviceError::BadOption(_))));
}
