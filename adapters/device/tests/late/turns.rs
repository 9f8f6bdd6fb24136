//! Managed memory of a device that may not use it while the host does: before the host's turn, everything is done.

use super::{Late, ground};
use terrace_core::ring::{Producer, RingLayout};
use terrace_device::{Device, DeviceError, Stream, UnifiedBuffer, UnifiedRing};

/// Puts work on a stream that has nothing to do with the memory in question.
fn busy(late: &Late, device: &Device, other: &Stream) {
    let mut block = device.allocate(other, 256).expect("memory");
    block.fill(0, 256, 1).expect("put on the stream");
    assert_eq!(late.left(), 1);
}

#[test]
fn a_ring_waits_for_the_whole_device_as_a_buffer_does() {
    let (late, device, stream, _buffer) = ground();
    let other = device.stream().expect("another stream");
    busy(&late, &device, &other);
    let layout = RingLayout::new(4, 64).expect("a layout");
    let mut ring = UnifiedRing::new(&device, &stream, layout).expect("a ring");
    assert_eq!(late.left(), 0, "the host wrote the header");
    let mut buffer = UnifiedBuffer::<u8>::new(&device, &stream, 10).expect("managed memory");
    buffer.lease().expect("the host's turn")[0] += 1;
    busy(&late, &device, &other);
    buffer.lease().expect("the host's turn")[0] += 1;
    assert_eq!(late.left(), 0, "a buffer's lease");
    busy(&late, &device, &other);
    let lease = ring.lease().expect("the host's turn");
    assert_eq!(late.left(), 0, "a ring's lease");
    Producer::open(&lease).expect("a ring").push(b"a message").expect("room");
    assert!(matches!(ring.shared(), Err(DeviceError::BadOption(_))));
}
