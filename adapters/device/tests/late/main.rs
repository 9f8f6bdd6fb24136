//! A device that is late: what a driver does with memory after it refused to say whether it is done.
//!
//! Each test looks at the bytes after the late work was done, so that it fails without a sanitizer; Miri sees the freed memory.

mod backend;
mod calls;
mod captured;
mod owned;
mod turns;

use backend::Late;
use terrace_device::{Device, DeviceBuffer, DeviceOptions, FaultReason, Stream, TransferEngine, TransferOptions};

/// How a wait is refused: for good, for now, since a capture is in the way, with the device.
const REFUSALS: &[FaultReason] = match cfg!(miri) {
    true => &[FaultReason::Capturing, FaultReason::Lost],
    false => &[FaultReason::Other, FaultReason::Transient, FaultReason::Capturing, FaultReason::Lost],
};

const LEN: usize = 5000;

/// A device that is late, a stream of it, and a buffer that holds 1.
fn ground() -> (Late, Device, Stream, DeviceBuffer<u8>) {
    let late = Late::new();
    let options = DeviceOptions { blocks: 1 << 9, segment: 1 << 16, ..DeviceOptions::default() };
    let device = Device::open(late.clone(), options).expect("a device");
    let stream = device.stream().expect("a stream");
    let buffer = DeviceBuffer::from_slice(&device, &stream, &[1; LEN]).expect("memory");
    (late, device, stream, buffer)
}

fn engine(device: &Device) -> TransferEngine {
    let options = TransferOptions { lanes: 1, attempts: 2, chunk: (4096, 4096), ..TransferOptions::default() };
    TransferEngine::with(device, options).expect("an engine")
}

/// What was lent, and written by its owner since, after the late work was done; on memory that was there all the time.
fn back(mut lent: Vec<u8>, late: &Late) -> Vec<u8> {
    lent.fill(7);
    late.work();
    assert_eq!(late.broken(), Vec::<String>::new());
    lent
}

#[test]
fn memory_that_was_lent_to_be_written_is_not_written_late() {
    for &reason in REFUSALS {
        for falsely in [false, true] {
            let (late, _device, _stream, buffer) = ground();
            let mut lent = vec![0; LEN];
            late.deaf(Some(reason));
            late.refuse_falsely(falsely);
            buffer.as_slice().read(&mut lent).expect_err("nobody can say");
            assert_eq!(back(lent, &late), [7; LEN], "{reason:?}");
        }
    }
}

#[test]
fn memory_that_was_lent_to_be_read_is_not_read_late() {
    for falsely in [false, true] {
        let (late, _device, _stream, mut buffer) = ground();
        let lent = vec![2; LEN];
        late.deaf(Some(FaultReason::Other));
        late.refuse_falsely(falsely);
        buffer.as_slice_mut().write(&lent).expect_err("nobody can say");
        assert_eq!(back(lent, &late), [7; LEN]);
        late.deaf(None);
        late.refuse_falsely(false);
        assert_eq!(buffer.to_vec().expect("it goes on"), [2; LEN], "what was lent, as it was");
    }
}

/// The pattern of a fill is lent by the call itself.
#[test]
fn a_pattern_is_not_read_late() {
    let (late, device, stream, _) = ground();
    let mut buffer = DeviceBuffer::<u32>::new(&device, &stream, 3).expect("memory");
    late.deaf(Some(FaultReason::Other));
    buffer.as_slice_mut().fill(0x0102_0304).expect_err("nobody can say");
    late.work();
    late.deaf(None);
    assert_eq!(buffer.as_slice().slice(..1).and_then(|first| first.to_vec()).expect("read"), [0x0102_0304]);
}

#[test]
fn what_an_engine_was_lent_is_not_used_late() {
    for &reason in REFUSALS {
        for up in [false, true] {
            let (late, device, _stream, mut buffer) = ground();
            let engine = engine(&device);
            let mut lent = vec![3; LEN];
            late.deaf(Some(reason));
            let parts = if up {
                engine.write_many(&mut buffer, &[(0, &lent[..10]), (LEN / 2, &lent[LEN / 2..])])
            } else {
                let (low, high) = lent.split_at_mut(LEN / 2);
                engine.read_many(&buffer, &mut [(0, low), (LEN / 2, high)])
            };
            parts.expect_err("nobody can say");
            drop((engine, buffer));
            assert_eq!(back(lent, &late), [7; LEN], "{reason:?}, up: {up}");
        }
    }
}

/// One refusal that passes is no reason to give up memory: everything goes on, and back, as if nothing had been.
#[test]
fn nothing_is_kept_after_a_refusal_that_passed() {
    let (late, device, stream, mut buffer) = ground();
    let engine = engine(&device);
    late.refuse_falsely(true);
    buffer.as_slice_mut().write(&[4; LEN]).expect_err("it was refused");
    engine.write(&mut buffer, 0, &[5; LEN]).expect_err("it was refused");
    late.refuse_falsely(false);
    buffer.as_slice_mut().write(&[6; LEN]).expect("it goes on");
    engine.write(&mut buffer, 0, &[8; 10]).expect("it goes on");
    assert_eq!(buffer.to_vec().expect("read")[5..15], [8, 8, 8, 8, 8, 6, 6, 6, 6, 6]);
    drop((engine, buffer, stream, device));
    assert_eq!((late.left(), late.broken()), (0, vec![]));
    assert_eq!(late.out(), 0, "every region is back");
}
