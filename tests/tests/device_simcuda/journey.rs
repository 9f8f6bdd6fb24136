//! A tensor on a stream, hop by hop: what each allocation cost, and where its memory came from. A buffer that spills, hop by
//! hop: which leaves, how it is copied, where it lies then.

use super::{open, small};
use std::time::Duration;
use terrace_device::{DeviceError, DeviceOptions};
use terrace_tests::simcuda::Simulator;
use terrace_tiers::{Buffer, Manager};

const MIB: u64 = 1 << 20;

#[test]
fn a_tensor_on_a_stream() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { capacity: 64 * MIB, ..small() }).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let calls = || session.calls(None);
    let made = |name| session.calls(Some(name));

    // Nothing is there: a page from the driver.
    let before = made("cuMemCreate");
    let small = device.allocate(&one, 4096).expect("a page");
    assert_eq!(made("cuMemCreate"), before + 1);
    let address = small.address();

    // The stream's cache: no driver call.
    drop(small);
    let before = calls();
    let small = device.allocate(&one, 4096).expect("a hit");
    assert_eq!((small.address(), calls()), (address, before));

    // The arena's range: the rest of the page, no driver call but what fences ask.
    let (pages, events) = (made("cuMemCreate"), device.stats().events);
    let next = device.allocate(&two, 4096).expect("from the same page");
    assert_eq!((made("cuMemCreate"), device.stats().events), (pages, events));

    // A segment that grows in place: pages behind the last block.
    let first = device.allocate(&one, 3 * MIB).expect("pages");
    let second = device.allocate(&one, 3 * MIB).expect("more pages");
    assert_eq!(second.address(), first.address() + first.bytes(), "right behind, over the page that both touch");

    // The rest of what was mapped ahead of it: no driver call.
    let pages = made("cuMemCreate");
    let third = device.allocate(&one, 8 * MIB).expect("14 MiB are mapped by now");
    assert_eq!((third.address(), made("cuMemCreate")), (second.address() + second.bytes(), pages));

    // Another stream's block, after its fence: the same memory, no new page.
    let place = first.address();
    drop(first);
    one.synchronize().expect("nothing was put on it");
    let pages = made("cuMemCreate");
    let theirs = device.allocate(&two, 3 * MIB).expect("after its stream was asked");
    assert_eq!((theirs.address(), made("cuMemCreate")), (place, pages));
    assert_eq!(device.stats().events, events, "an idle stream says so without an event");

    // Out of memory: caches are emptied, fences waited for, then the error says what there was.
    let rest = device.allocate(&one, 42 * MIB).expect("almost all");
    let error = device.allocate(&two, 20 * MIB).expect_err("more than there is");
    let DeviceError::OutOfMemory(what) = error else { panic!("{error:?}") };
    assert_eq!((what.asked, what.capacity), (20 * MIB, 64 * MIB));
    drop(rest);
    drop(device.allocate(&two, 20 * MIB).expect("what came free serves at once"));
    drop((small, next, second, third, theirs));
}

/// Half of the device.
const HALF: u64 = MIB / 2;

#[test]
fn a_buffer_spills() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let (device, directory) = (open(0, small()).expect("a device"), tempfile::tempdir().expect("a directory"));
    let manager = Manager::builder()
        .device_of(&device, MIB)
        .memory(MIB)
        .directory_of(directory.path(), 16 * MIB)
        .chunk(64 << 10)
        .maintenance_interval(Duration::ZERO)
        .build()
        .expect("it is built");
    let stream = device.stream().expect("a stream");
    let new = || manager.allocate(HALF).expect("room");
    let fill = |buffer: &Buffer, byte: u8| {
        let lease = buffer.lease_device_mut().expect("on the device");
        lease.lend(&stream).expect("lent");
        // SAFETY: the lease is held until the bytes are written.
        let mut block = unsafe { device.wrap(&stream, lease.address(), HALF, None) }.expect("a block");
        block.write(0, &[byte; HALF as usize]).expect("written");
    };
    let tiers = || manager.list().iter().map(|buffer| buffer.tier).collect::<Vec<_>>();
    let used = || manager.tiers().iter().map(|tier| tier.view.used).collect::<Vec<_>>();
    let calls = || ["cuMemHostAlloc", "cuMemcpyAsync"].map(|name| session.calls(Some(name)));
    let (one, two) = (new(), new());
    fill(&one, 1);
    fill(&two, 2);
    assert_eq!((tiers(), used()), (vec![0, 0], vec![MIB, 0, 0]));

    // A lease keeps the first on the device: the second is the victim. It is copied at once, through the
    // pinned memory of an engine's lane.
    let lease = one.lease_device().expect("on the device");
    let before = calls();
    let three = new();
    assert_eq!((tiers(), used()), (vec![0, 1, 0], vec![MIB, HALF, 0]));
    assert_eq!(calls(), before.map(|calls| calls + 1), "memory of the lane, and the copy");
    fill(&three, 3);

    // While the device copies no lock is held: the upper block is on its way out, and others are read.
    session.hold();
    let four = std::thread::scope(|scope| {
        let four = scope.spawn(new);
        while manager.tiers()[0].view.leaving == 0 {
            std::thread::yield_now();
        }
        let mut byte = [0];
        two.read(HALF - 1, &mut byte).expect("in memory");
        assert_eq!((byte, tiers()[2], four.is_finished()), ([2], 0, false));
        session.release();
        four.join().expect("it is served")
    });

    // The new residence stands, and the upper block has gone back: it holds the new buffer.
    assert_eq!((tiers(), used()), (vec![0, 1, 1, 0], vec![MIB, MIB, 0]));
    fill(&four, 4);

    // Memory is full too: the third leaves it, as the second was read since, for an extent of a file.
    let five = new();
    assert_eq!((tiers(), used()), (vec![0, 1, 2, 1, 0], vec![MIB, MIB, HALF]));
    assert_eq!(manager.tiers()[2].files.map(|files| files.live), Some(HALF));
    drop(lease);
    for (buffer, byte) in [(&one, 1), (&two, 2), (&three, 3), (&four, 4), (&five, 0)] {
        let mut bytes = vec![9; HALF as usize];
        buffer.read(0, &mut bytes).expect("read");
        assert!(bytes.iter().all(|read| *read == byte), "what {byte} was");
    }
    assert_eq!(manager.move_stats().failed, 0);
    manager.check().expect("sound");
}
