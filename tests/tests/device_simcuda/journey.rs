//! A tensor on a stream, hop by hop: what each allocation cost, and where its memory came from.

use super::{open, small};
use terrace_device::{DeviceError, DeviceOptions};
use terrace_tests::simcuda::Simulator;

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

    // Another stream's block, after its fence: the same memory, no new page.
    let place = first.address();
    drop(first);
    one.synchronize().expect("nothing was put on it");
    let pages = made("cuMemCreate");
    let theirs = device.allocate(&two, 3 * MIB).expect("after its stream was asked");
    assert_eq!((theirs.address(), made("cuMemCreate")), (place, pages));
    assert_eq!(device.stats().events, events, "an idle stream says so without an event");

    // Out of memory: caches are emptied, fences waited for, then the error says what there was.
    let rest = device.allocate(&one, 50 * MIB).expect("almost all");
    let error = device.allocate(&two, 20 * MIB).expect_err("more than there is");
    let DeviceError::OutOfMemory(what) = error else { panic!("{error:?}") };
    assert_eq!((what.asked, what.capacity), (20 * MIB, 64 * MIB));
    drop(rest);
    drop(device.allocate(&two, 20 * MIB).expect("what came free serves at once"));
    drop((small, next, second, theirs));
}
