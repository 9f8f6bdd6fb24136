//! The suite of every device, on one made of numbers: a backend from elsewhere, with pages and without.

use terrace_core::{Branch, Slot};
use terrace_device::{Device, DeviceBlock, DeviceOptions, FaultReason, Stream};
use terrace_tests::device::World;
use terrace_tests::manual::Manual;

fn world(case: &dyn Fn(&World<'_>)) {
    for pages in [true, false] {
        let numbers = std::cell::RefCell::new(Vec::new());
        let open = |options| {
            let manual = Manual::new(1 << 30, pages);
            numbers.borrow_mut().push(manual.clone());
            Device::open(manual, options)
        };
        case(&World { open: &open, bytes: false });
        for manual in numbers.take() {
            assert_eq!(
                (manual.broken(), manual.outstanding()),
                (vec![], vec![]),
                "rules broken, things not given back"
            );
        }
    }
}

terrace_tests::device_suite!(world);

/// A device of 64 MiB in segments, two streams, and work of the second on a block of it that lasts until it is waited for.
fn two_streams() -> (Manual, Device, [Stream; 2], DeviceBlock) {
    let manual = Manual::new(64 << 20, false);
    let options = DeviceOptions { capacity: 64 << 20, blocks: 1 << 10, ..DeviceOptions::default() };
    let device = Device::open(manual.clone(), options).expect("valid options");
    let streams = [(); 2].map(|()| device.stream().expect("nothing fails"));
    let scratch = device.allocate(&streams[1], 1 << 20).expect("room");
    manual.launch(streams[1].raw(), scratch.address(), 1 << 20);
    (manual, device, streams, scratch)
}

/// A block of the first stream that the second reads, dropped.
fn hold(manual: &Manual, device: &Device, [one, two]: &[Stream; 2], bytes: u64) {
    let block = device.allocate(one, bytes).expect("room");
    two.wait_for(one).expect("nothing fails");
    manual.launch(two.raw(), block.address(), bytes);
    block.used_on(two).expect("the same device");
}

#[test]
fn an_allocation_waits_for_the_last_of_the_blocks_that_are_held() {
    let (manual, device, streams, scratch) = two_streams();
    hold(&manual, &device, &streams, 24 << 20);
    // Looks at what is held: the first block has its event before the second is dropped.
    hold(&manual, &device, &streams, 24 << 20);
    assert_eq!(device.stats().held, 2);
    let both = device.allocate(&streams[0], 48 << 20).expect("what both held");
    assert_eq!((device.stats().held, manual.broken()), (0, vec![]));
    drop((both, scratch));
}

/// Whichever call is refused once while an allocation waits for a held block, it gets it.
#[test]
fn an_allocation_that_waits_outlasts_any_one_refusal() {
    for nth in 1.. {
        let (manual, device, streams, scratch) = two_streams();
        hold(&manual, &device, &streams, 40 << 20);
        let before = manual.calls();
        manual.fail(nth, FaultReason::Other);
        let block = device.allocate(&streams[0], 40 << 20);
        let made = manual.calls() - before;
        manual.heal();
        assert!(block.is_ok(), "call {nth} of {made} was refused: {block:?}");
        drop((block, scratch));
        if nth > made {
            assert!(made >= 4, "it asked, recorded, waited: {made} calls");
            break;
        }
    }
}

#[test]
fn a_device_that_goes_waits_for_what_is_in_flight_on_any_stream() {
    for pages in [true, false] {
        let manual = Manual::new(64 << 20, pages);
        let device = Device::open(manual.clone(), DeviceOptions::default()).expect("valid options");
        let streams = [(); 3].map(|()| device.stream().expect("nothing fails"));
        for stream in &streams {
            let block = device.allocate(stream, 3 << 20).expect("room");
            manual.launch(stream.raw(), block.address(), 3 << 20);
        }
        drop((streams, device));
        assert_eq!((manual.broken(), manual.outstanding()), (vec![], vec![]), "with pages: {pages}");
    }
}

/// 100 MiB in blocks of 16 KiB to 1 MiB, which two streams free while the other still works: every kind of record is used.
#[test]
fn metadata_is_below_one_percent_at_100_mib() {
    for pages in [true, false] {
        let manual = Manual::new(1 << 30, pages);
        let device = Device::open(manual.clone(), DeviceOptions::default()).expect("valid options");
        let streams = [(); 2].map(|()| device.stream().expect("nothing fails"));
        let mut blocks = Vec::new();
        for i in 0u64.. {
            let stream = &streams[i as usize % 2];
            let block = device.allocate(stream, 16 << (10 + i % 7)).expect("room");
            manual.launch(stream.raw(), block.address(), block.bytes());
            blocks.push(block);
            if device.stats().pool.reserved >= 100 << 20 {
                break;
            }
        }
        let (live, before) = (blocks.len() as u64, device.stats().pool);
        blocks.clear();
        let after = device.stats().pool;
        println!(
            "pages {pages}: {live} blocks, metadata {} and {} of {}",
            before.metadata, after.metadata, after.reserved
        );
        assert!(before.metadata >= live * (size_of::<Slot>() + size_of::<Branch>()) as u64, "a record for each block");
        assert!(after.metadata > before.metadata, "those that wait have another");
        assert!(after.metadata * 100 < after.reserved, "{} of {}", after.metadata, after.reserved);
    }
}

/// `clear` empties what streams keep into the pool, and gives nothing back to the driver.
#[test]
fn clear_empties_the_streams_caches_into_the_pool() {
    let manual = Manual::new(1 << 30, true);
    let device = Device::open(manual.clone(), DeviceOptions::default()).expect("valid options");
    let stream = device.stream().expect("nothing fails");
    drop([4096, 4096, 100 << 10].map(|bytes| device.allocate(&stream, bytes).expect("room")));
    let (before, calls) = (device.stats().pool, manual.calls());
    assert_eq!(before.pooled, 8192 + (100 << 10));
    assert_eq!([before.requested, before.in_use, before.live_blocks], [0; 3], "cached blocks are not the user's");
    device.coalesce();
    let after = device.stats().pool;
    assert_eq!((after.pooled, after.reserved, manual.calls()), (0, before.reserved, calls));
}
