//! A lane whose stream a capture has drawn in, while two pieces are on it.

use super::{LEN, Late, engine, ground};
use terrace_device::{DeviceBuffer, DeviceError, FaultReason};

/// Waits until both pieces of a transfer are on the lane's stream, and the lane waits for the first.
fn both_fly(late: &Late) {
    while late.held() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(late.left(), 2);
}

/// An idle stream says that nothing is in flight, not that the bytes were copied.
#[test]
fn copies_that_an_ended_capture_took_are_made_again() {
    let (late, device, _stream, buffer) = ground();
    let engine = engine(&device);
    late.shut();
    let download = engine.download(buffer, 0, vec![0; LEN]);
    both_fly(&late);
    late.swallow();
    late.open();
    let done = download.wait().expect("tried again");
    assert!(done.target == [1; LEN] && done.report.retries == 2, "{:?}", done.report);
}

/// A new stream knows nothing of the pieces on the old one: the memory of both stays with the driver. What comes later is
/// moved by the new one.
#[test]
fn no_piece_outlives_the_stream_that_it_is_on() {
    let (late, device, stream, buffer) = ground();
    let second = DeviceBuffer::from_slice(&device, &stream, &[3; LEN]).expect("memory");
    let engine = engine(&device);
    late.shut();
    let upload = engine.upload(vec![2; LEN], buffer, 0);
    both_fly(&late);
    late.draw();
    late.open();
    let undone = upload.wait().expect_err("nobody can say");
    let captured = |error: &DeviceError| matches!(error, DeviceError::Driver { fault, .. } if fault.reason == FaultReason::Capturing);
    assert!(captured(&undone.error) && undone.buffers.is_none(), "{undone}");
    let done = engine.download(second, 0, vec![0; LEN]).wait().expect("another stream");
    assert!(done.target == [3; LEN]);
    drop(engine);
    assert_eq!((late.left(), late.broken()), (2, vec![]));
}
