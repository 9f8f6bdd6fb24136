//! Batches: what the driver is asked for many blocks at once is what it is asked for one.

use super::{open, small};
use terrace_device::DeviceBlock;
use terrace_tests::simcuda::Simulator;

const MIB: u64 = 1 << 20;

/// Each time the pool's lock is taken for a request, the streams of held blocks are queried: a batch does so once.
#[test]
fn a_batch_takes_the_lock_once() {
    const BLOCKS: usize = 20;
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    // Pages for all that follows.
    drop(device.allocate(&one, 64 * MIB).expect("a block"));
    let mut scratch = device.allocate(&two, MIB).expect("a block");
    one.synchronize().expect("nothing to do");
    session.hold();
    scratch.fill(0, MIB, 1).expect("queued");
    let held = device.allocate(&one, MIB).expect("a block");
    held.used_on(&two).expect("the same device");
    drop(held);
    let asked = || session.calls(Some("cuEventQuery")) + session.calls(Some("cuStreamQuery"));
    let count = |call: &dyn Fn() -> Vec<DeviceBlock>| {
        let before = asked();
        let blocks = call();
        assert_eq!((blocks.len(), device.stats().held), (BLOCKS, 1));
        (asked() - before, blocks)
    };
    let (alone, blocks) = count(&|| (0..BLOCKS).map(|_| device.allocate(&one, MIB).expect("a block")).collect());
    drop(blocks);
    let (together, blocks) = count(&|| device.allocate_batch(&one, &[MIB; BLOCKS]).expect("blocks"));
    assert!(together > 0 && alone >= together * BLOCKS as u64, "{together} questions, {alone} one by one");
    session.release();
    two.synchronize().expect("done");
    drop(blocks);
}

/// Pinned memory is looked at whenever it is freed: once for a batch.
#[test]
fn a_batch_that_is_freed_asks_once() {
    const BLOCKS: u64 = 10;
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let mut scratch = device.allocate(&one, MIB).expect("a block");
    let pinned = || (0..BLOCKS).map(|_| device.allocate_pinned(&one, MIB, 4096).expect("a block")).collect::<Vec<_>>();
    let asked = || session.calls(Some("cuEventQuery")) + session.calls(Some("cuStreamQuery"));
    let all = [pinned(), pinned()];
    session.hold();
    scratch.fill(0, MIB, 1).expect("queued");
    let mut counts = Vec::new();
    for (at, blocks) in all.into_iter().enumerate() {
        let before = asked();
        if at == 0 {
            drop(blocks);
        } else {
            device.free_batch(blocks);
        }
        counts.push(asked() - before);
        assert_eq!(device.stats().held, BLOCKS * (at as u64 + 1));
    }
    assert!(counts[1] > 0 && counts[0] >= BLOCKS * counts[1] / 2, "one by one, and together: {counts:?}");
    session.release();
    two.synchronize().expect("done");
    one.synchronize().expect("done");
}

/// The pages of a batch are mapped without the lock, and each block has its own.
#[test]
fn a_batch_grows_the_pool() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let sizes = [3 * MIB, 20 * MIB, 4096, 3 * MIB, 50 * MIB];
    let mut blocks = device.allocate_batch(&stream, &sizes).expect("blocks");
    device.check().expect("it is sound");
    for (value, block) in (1..).zip(&mut blocks) {
        block.fill(0, block.bytes(), value).expect("it is mapped");
    }
    for (value, block) in (1..).zip(&blocks) {
        let mut last = [0];
        block.read(block.bytes() - 1, &mut last).expect("it is mapped");
        assert_eq!(last, [value]);
    }
    // Beyond the capacity: what was planned and mapped for the batch is free again.
    let before = device.stats().pool.in_use;
    assert!(device.allocate_batch(&stream, &[60 * MIB; 4]).is_err());
    assert_eq!((device.stats().pool.in_use, device.check()), (before, Ok(())));
    drop(device.allocate(&stream, 150 * MIB).expect("what is left of 256 MiB"));
}
