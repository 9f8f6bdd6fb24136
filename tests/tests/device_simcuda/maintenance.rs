//! Pages that move together on request, and memory that goes back down to what the options keep.

use super::{open, small};
use std::time::{Duration, Instant};
use terrace_device::{
    Defragmentation, Device, DeviceBlock, DeviceError, DeviceOptions, PinnedBuffer, PoolOrigin, Stream,
};
use terrace_tests::simcuda::Simulator;

const MIB: u64 = 1 << 20;
/// Bytes of a page of the simulated device.
const PAGE: u64 = 2 * MIB;

fn by_pages() -> DeviceOptions {
    DeviceOptions { largest_handle: PAGE, ..small() }
}

/// Eight blocks of 4 MiB that live, filled with their numbers, and gaps of 4 MiB between them.
fn scattered(device: &Device, stream: &Stream) -> Vec<DeviceBlock> {
    let all: Vec<_> = (0..16).map(|_| device.allocate(stream, 4 * MIB).expect("room")).collect();
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (at, mut block) in all.into_iter().enumerate() {
        block.fill(0, 4 * MIB, at as u8).expect("it is mapped");
        if at % 2 == 0 { &mut kept } else { &mut gone }.push(block);
    }
    drop(gone);
    device.coalesce();
    kept
}

fn check(device: &Device, kept: &[DeviceBlock]) {
    device.check().expect("it is sound");
    for (at, block) in kept.iter().enumerate() {
        for offset in [0, 4 * MIB - 1] {
            let mut byte = [0];
            block.read(offset, &mut byte).expect("it is mapped");
            assert_eq!(byte, [2 * at as u8]);
        }
    }
}

#[test]
fn gaps_become_one_and_no_block_moves() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, by_pages()).expect("a device");
    let stream = device.stream().expect("a stream");
    let kept = scattered(&device, &stream);
    let before = device.stats().pool;
    let done = device.defragment(u64::MAX).expect("it works");
    // The last gap stays, and gets the others' pages behind it: all but what lies ahead of it is one.
    let free = before.reserved - before.in_use;
    assert_eq!((done.can_move, done.largest_before), (true, before.largest_free));
    assert_eq!((done.largest_after, device.stats().pool.largest_free), (free, free));
    assert_eq!(done.moved, free - before.largest_free);
    check(&device, &kept);
    let after = device.stats().pool;
    assert_eq!((after.reserved, after.in_use), (before.reserved, before.in_use));
    // What is one extent serves at once: no page is mapped or moved for it.
    let calls = session.calls(None);
    let large = device.allocate(&stream, free).expect("all that is free");
    assert_eq!(session.calls(None), calls);
    drop(large);
    let again = device.defragment(u64::MAX).expect("it works");
    assert_eq!((again.moved, again.largest_after), (0, free), "there is nothing left to do");
}

#[test]
fn no_more_moves_than_is_allowed_and_nothing_in_vain() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, by_pages()).expect("a device");
    let stream = device.stream().expect("a stream");
    let kept = scattered(&device, &stream);
    let largest = device.stats().pool.largest_free;
    for most in [0, PAGE - 1] {
        let done = device.defragment(most).expect("it works");
        assert_eq!((done.moved, done.largest_after), (0, largest), "not one page may move");
    }
    let done = device.defragment(5 * MIB).expect("it works");
    assert_eq!((done.moved, done.largest_before, done.largest_after), (4 * MIB, largest, largest + 4 * MIB));
    check(&device, &kept);
    drop(kept);
    device.trim();
    // A gap larger than all that a hole would become is left alone.
    let all = [30, 2, 4, 2].map(|mib| device.allocate(&stream, mib * MIB).expect("room"));
    let [large, _wall, little, _end] = all;
    drop((large, little));
    device.coalesce();
    let before = device.stats().pool;
    let done = device.defragment(10 * MIB).expect("it works");
    assert_eq!((done.moved, done.largest_before, done.largest_after), (0, 30 * MIB, 30 * MIB));
    let done = device.defragment(u64::MAX).expect("it works");
    assert_eq!((done.moved, done.largest_after), (34 * MIB, before.reserved - before.in_use));
}

#[test]
fn segments_cannot_move() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { origin: PoolOrigin::Segments, ..small() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let kept = scattered(&device, &stream);
    let largest = device.stats().pool.largest_free;
    let done = device.defragment(u64::MAX).expect("it is told");
    let same = Defragmentation { can_move: false, moved: 0, largest_before: largest, largest_after: largest };
    assert_eq!(done, same);
    check(&device, &kept);
}

/// Pages under work in flight move once it is done.
#[test]
fn pages_move_after_the_work_on_them() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, by_pages()).expect("a device");
    let stream = device.stream().expect("a stream");
    let kept = scattered(&device, &stream);
    stream.synchronize().expect("done");
    let mut last = device.allocate(&stream, 4 * MIB).expect("a gap");
    session.hold();
    last.fill(0, 4 * MIB, 9).expect("queued");
    drop(last);
    let waits = || session.calls(Some("cuEventSynchronize"));
    let (before, unmapped) = (waits(), session.calls(Some("cuMemUnmap")));
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| device.defragment(u64::MAX).expect("it works"));
        while waits() == before && !moves.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!((moves.is_finished(), session.calls(Some("cuMemUnmap"))), (false, unmapped));
        session.release();
        assert!(moves.join().expect("no panic").moved > 0);
    });
    check(&device, &kept);
}

/// A move that the driver refuses leaves what moved before, and every block where it was.
#[test]
fn a_refused_move_is_told_and_harms_nothing() {
    for call in ["cuMemMap", "cuMemSetAccess", "cuMemUnmap"] {
        let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
        let device = open(0, by_pages()).expect("a device");
        let stream = device.stream().expect("a stream");
        let kept = scattered(&device, &stream);
        // 2: no memory; the second is for a call that is made again.
        (5..=6).for_each(|nth| session.fail(call, nth, 2));
        let done = device.defragment(u64::MAX).expect("the device lives");
        session.fail("*", 0, 0);
        check(&device, &kept);
        let all = device.defragment(u64::MAX).expect("it works");
        assert!(done.moved < 28 * MIB && all.largest_after >= done.largest_after, "{call}: {done:?}, then {all:?}");
    }
}

#[test]
fn a_lost_device_moves_nothing() {
    let mut session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    session.allow_leaks(); // the driver takes nothing back from a lost context
    let device = open(0, by_pages()).expect("a device");
    let stream = device.stream().expect("a stream");
    let kept = scattered(&device, &stream);
    session.lose(0, 700);
    assert!(stream.synchronize().is_err());
    assert!(matches!(device.defragment(u64::MAX), Err(DeviceError::Lost { .. })));
    assert_eq!(device.maintain().returned, 0);
    drop(kept);
}

/// Trim and maintenance go no lower than `keep`; without it all goes back.
#[test]
fn what_is_to_be_kept_is_kept() {
    for origin in [PoolOrigin::Pages, PoolOrigin::Segments] {
        let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
        for keep in [0, 10 * MIB, 11 * MIB] {
            let device = open(0, DeviceOptions { keep, idle: 1000, origin, ..by_pages() }).expect("a device");
            let stream = device.stream().expect("a stream");
            let start = Instant::now();
            assert_eq!(device.maintain_at(start).returned, 0, "the first period begins");
            let fill = || drop([(); 5].map(|()| device.allocate(&stream, 14 * MIB).expect("room")));
            let unit = if origin == PoolOrigin::Pages { PAGE } else { 14 * MIB };
            fill();
            let all = device.stats().pool.reserved;
            let given = device.trim();
            let left = device.stats().pool.reserved;
            assert_eq!((given, left), (all - left, keep.next_multiple_of(unit)));
            fill();
            let after = |seconds| device.maintain_at(start + Duration::from_secs(seconds));
            assert_eq!(after(1).returned, 0, "it was needed in this second");
            let done = after(2);
            let left = device.stats().pool.reserved;
            assert_eq!((done.returned, left), (all - left, keep.next_multiple_of(unit)));
            assert_eq!(after(3).returned, 0);
            device.check().expect("it is sound");
        }
    }
}

/// What was needed at any time of the period stays, also if it is free when the period ends.
#[test]
fn only_what_no_one_needed_goes_back() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { idle: 1000, ..by_pages() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let start = Instant::now();
    let after = |millis| device.maintain_at(start + Duration::from_millis(millis));
    drop(device.allocate(&stream, 50 * MIB).expect("room"));
    device.coalesce();
    assert_eq!(after(0).returned, 0);
    // What was needed before the first period is no reason.
    let all = device.stats().pool.reserved;
    assert_eq!((after(1000).returned, device.stats().pool.reserved), (all, 0));
    let after = |millis: u64| after(millis + 1000);
    drop(device.allocate(&stream, 100 * MIB).expect("room"));
    assert_eq!(after(1000).returned, 0);
    let all = device.stats().pool.reserved;
    drop(device.allocate(&stream, 40 * MIB).expect("room"));
    assert_eq!((after(1999).returned, after(2000).returned), (0, all - 40 * MIB));
    assert_eq!((after(2999).returned, after(3000).returned, device.stats().pool.reserved), (0, 40 * MIB, 0));
    let never = open(0, by_pages()).expect("a device");
    let stream = never.stream().expect("a stream");
    never.maintain_at(start);
    drop(never.allocate(&stream, 100 * MIB).expect("room"));
    let done = [1, 1 << 20].map(|seconds| never.maintain_at(start + Duration::from_secs(seconds)).returned);
    assert_eq!((done, never.stats().pool.reserved >= 100 * MIB), ([0, 0], true));
}

/// Pinned memory that was needed in no period goes back too, and what was needed stays.
#[test]
fn idle_pinned_memory_goes_back() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { idle: 1000, ..by_pages() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let start = Instant::now();
    let after = |seconds| device.maintain_at(start + Duration::from_secs(seconds)).returned;
    let pinned = || PinnedBuffer::<u8>::new(&device, &stream, 4 << 20).expect("pinned memory");
    assert_eq!(after(0), 0);
    drop([(); 30].map(|()| pinned()));
    let kept = device.stats().pinned.reserved;
    let (returned, left) = (after(1), device.stats().pinned.reserved);
    assert!(returned > 0 && (120 * MIB..125 * MIB).contains(&left), "as much as was needed stays, in whole regions");
    assert_eq!((returned + after(2), device.stats().pinned.reserved), (kept, 0));
}

/// What maintenance gave back because it was idle is not taken ahead by the next block.
#[test]
fn what_goes_back_is_not_taken_ahead_again() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { idle: 1000, ..by_pages() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let start = Instant::now();
    device.maintain_at(start);
    drop(device.allocate(&stream, 200 * MIB).expect("room"));
    let returned = [1, 2].map(|seconds| device.maintain_at(start + Duration::from_secs(seconds)).returned);
    assert!(returned[1] >= 200 * MIB && device.stats().pool.reserved < 10 * MIB, "{returned:?}");
    let _small = device.allocate(&stream, 4 * MIB).expect("room");
    assert!(device.stats().pool.reserved < 30 * MIB, "{}", device.stats().pool.reserved);
}
