//! Blocks that were dropped while another stream uses them: what looking at them costs, and what it never holds up.

use super::{open, small};
use std::sync::mpsc::channel;
use std::time::Duration;
use terrace_device::{Device, DeviceBlock, Stream};
use terrace_tests::simcuda::Simulator;

const MIB: u64 = 1 << 20;

/// Two streams, and a block of the second for work on it.
fn two_streams() -> (Device, Stream, Stream, DeviceBlock) {
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let scratch = device.allocate(&two, MIB).expect("a block");
    (device, one, two, scratch)
}

/// Allocates on one stream, says that the other uses it, and drops it.
fn hold_one(device: &Device, home: &Stream, user: &Stream) {
    let block = device.allocate(home, MIB).expect("a block");
    block.used_on(user).expect("the same device");
    drop(block);
}

#[test]
fn the_driver_is_asked_once_for_each_stream_however_many_blocks_wait_for_it() {
    const HELD: u64 = 50;
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let (device, one, two, mut scratch) = two_streams();
    session.hold();
    scratch.fill(0, MIB, 1).expect("queued");
    let blocks: Vec<_> = (0..HELD).map(|_| device.allocate(&one, MIB).expect("a block")).collect();
    for block in blocks {
        block.used_on(&two).expect("the same device");
        drop(block);
    }
    assert_eq!(device.stats().held, HELD);
    let asked = || session.calls(Some("cuEventQuery")) + session.calls(Some("cuStreamQuery"));
    let before = asked();
    let block = device.allocate(&one, MIB).expect("other memory");
    // The held blocks' stream: whether it is idle, and then its event. Nothing else waits.
    assert!((1..=2).contains(&(asked() - before)), "{} questions for {HELD} blocks of one stream", asked() - before);
    session.release();
    two.synchronize().expect("done");
    drop(block);
}

/// One event stands for a held block, however often the pool queries that event.
#[test]
fn to_look_again_records_no_other_event() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let (device, one, two, mut scratch) = two_streams();
    session.hold();
    scratch.fill(0, MIB, 1).expect("queued");
    hold_one(&device, &one, &two);
    let mut others = vec![device.allocate(&one, MIB).expect("other memory")];
    let recorded = session.calls(Some("cuEventRecord"));
    others.extend((0..8).map(|_| device.allocate(&one, MIB).expect("other memory")));
    assert_eq!(device.stats().held, 1);
    assert_eq!(session.calls(Some("cuEventRecord")), recorded, "the first look's event is still to happen");
    session.release();
}

/// A block waits for its own event, not for one that is recorded only when an earlier block's has happened.
#[test]
fn blocks_come_free_one_by_one_as_their_stream_goes_on() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let (device, one, two, mut scratch) = two_streams();
    session.hold();
    let mut others = Vec::new();
    for round in 1..=3 {
        // Work, and then a block that waits for it.
        scratch.fill(0, MIB, round).expect("queued");
        hold_one(&device, &one, &two);
        others.push(device.allocate(&one, MIB).expect("other memory"));
        assert_eq!(device.stats().held, u64::from(round));
    }
    for left in [2, 1, 0] {
        // The work, and the event behind it.
        assert_eq!(session.step(2), 2);
        others.push(device.allocate(&one, MIB).expect("other memory"));
        assert_eq!(device.stats().held, left);
    }
    session.release();
}

/// An allocation that waits for held blocks waits alone.
#[test]
fn others_free_and_allocate_while_an_allocation_waits() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let (device, one, two, mut scratch) = two_streams();
    let large = device.allocate(&one, 200 * MIB).expect("most of 256 MiB");
    large.used_on(&two).expect("the same device");
    let other = device.allocate(&one, 5 * MIB).expect("a block that no cache keeps");
    session.hold();
    scratch.fill(0, MIB, 1).expect("queued");
    drop(large);
    let waits = || session.calls(Some("cuEventSynchronize"));
    let before = waits();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| device.allocate(&one, 200 * MIB).map(drop));
        while waits() == before && !waiting.is_finished() {
            std::thread::yield_now();
        }
        let (tell, hear) = channel();
        let (device, two) = (&device, &two);
        scope.spawn(move || {
            drop(other);
            drop(device.allocate(two, 10 * MIB).expect("there are 50 MiB more"));
            tell.send(()).expect("somebody hears it");
        });
        // Less than the simulator's patience (20 s), after which it ends the wait itself.
        let heard = hear.recv_timeout(Duration::from_secs(10));
        assert!(heard.is_ok() && !waiting.is_finished(), "others were not held up, and it waits still");
        session.release();
        waiting.join().expect("no panic").expect("what the other stream was done with");
    });
    assert_eq!(device.stats().held, 0);
}

/// CUDA's code where there is no memory.
const NO_MEMORY: i32 = 2;

/// Pinned memory that the driver refuses is what another stream will be done with; what it gives is had without waiting.
#[test]
fn pinned_memory_waits_for_held_blocks_when_the_driver_has_none() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let (device, one, two, mut scratch) = two_streams();
    let pinned = || device.allocate_pinned(&one, MIB, 4096);
    session.hold();
    scratch.fill(0, MIB, 1).expect("queued");
    let block = pinned().expect("a block");
    let address = block.address();
    block.used_on(&two).expect("the same device");
    drop(block);
    let (waits, held) = (|| session.calls(Some("cuEventSynchronize")), || device.stats().held);
    let before = waits();
    let other = pinned().expect("what the driver gives");
    assert_eq!((held(), waits() - before, device.stats().pinned.live_blocks), (1, 0, 2), "one is held, one is ours");
    // It is asked again when what is vacant went back.
    let refuse = || (1..=2).for_each(|nth| session.fail("cuMemHostAlloc", nth, NO_MEMORY));
    refuse();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(pinned);
        while waits() == before && !waiting.is_finished() {
            std::thread::yield_now();
        }
        session.release();
        let block = waiting.join().expect("no panic").expect("what the other stream was done with");
        assert_eq!((block.address(), held()), (address, 0));
        let calls = session.calls(Some("cuMemHostAlloc"));
        session.fail("*", 0, 0);
        refuse();
        assert!(pinned().is_err(), "{} calls", session.calls(Some("cuMemHostAlloc")) - calls);
    });
    drop(other);
}

/// Frees of held blocks query no event until the 64th, which queries for all of them.
#[test]
fn sixty_four_held_blocks_are_looked_at_together() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let (device, one, two, mut scratch) = two_streams();
    let blocks: Vec<_> = (0..64).map(|_| device.allocate(&one, MIB).expect("a block")).collect();
    scratch.fill(0, MIB, 1).expect("queued");
    two.synchronize().expect("done");
    blocks.iter().for_each(|block| block.used_on(&two).expect("the same device"));
    let asked = || session.calls(Some("cuEventQuery")) + session.calls(Some("cuStreamQuery"));
    let before = asked();
    for (count, block) in (1..).zip(blocks) {
        drop(block);
        let expected = if count < 64 { count } else { 0 };
        assert_eq!(device.stats().held, expected, "after {count}");
        assert_eq!(asked() > before, count == 64, "after {count}");
    }
}
