//! Memory that a copy owns: it goes to nobody, not even back to the driver, before the copy is known to be done.

use super::{LEN, Late, REFUSALS, engine, ground};
use terrace_device::{DeviceBuffer, DeviceError, FaultReason, PinnedBuffer, RegisteredBuffer};

/// Everything of a device is dropped while it is deaf: then the late work is done.
fn nothing_went(late: &Late) {
    late.work();
    assert_eq!(late.broken(), Vec::<String>::new());
}

#[test]
fn a_pinned_copy_that_nobody_can_vouch_for_keeps_its_memory() {
    for &reason in REFUSALS {
        let (late, device, stream, _) = ground();
        let other = device.stream().expect("another stream");
        let mut buffer = DeviceBuffer::<u8>::new(&device, &other, LEN).expect("memory");
        let pinned = PinnedBuffer::<u8>::new(&device, &stream, LEN).expect("pinned memory");
        let copy = pinned.copy_to(&mut buffer).expect("on its way");
        late.deaf(Some(reason));
        copy.wait().expect_err("nobody can say");
        drop((buffer, stream, other, device));
        nothing_went(&late);
    }
}

#[test]
fn a_copy_of_registered_memory_that_was_refused_comes_back_done_or_not_at_all() {
    for &reason in REFUSALS {
        let (late, device, stream, buffer) = ground();
        let own = RegisteredBuffer::new(&device, &stream, vec![9_u8; LEN]).expect("registered");
        late.refuse_falsely(true);
        let own = own.copy_from(&buffer).expect_err("refused, and waited for").back;
        assert_eq!(late.left(), 0);
        late.deaf(Some(reason));
        let copy = own.copy_from(&buffer).expect("nobody can say that it is not on its way");
        let error = copy.wait().expect_err("it was refused");
        assert!(matches!(error, DeviceError::Driver { .. }), "{error}");
        drop((buffer, stream, device));
        nothing_went(&late);
    }
}

/// The driver has pinned buffers themselves: they stay with it. Of a `Vec` it has nothing, which comes back from a lost device.
#[test]
fn a_transfer_keeps_what_the_driver_has_and_gives_back_the_rest() {
    for &reason in REFUSALS {
        let (late, device, stream, buffer) = ground();
        let engine = engine(&device);
        let pinned = PinnedBuffer::<u8>::new(&device, &stream, LEN).expect("pinned memory");
        let second = DeviceBuffer::<u8>::new(&device, &stream, LEN).expect("memory");
        late.deaf(Some(reason));
        let undone = engine.download(buffer, 0, pinned).wait().expect_err("nobody can say");
        assert!(undone.buffers.is_none(), "{reason:?}: the driver has them");
        let undone = engine.upload(vec![1; LEN], second, 0).wait().expect_err("nobody can say");
        // Nothing is known of memory that is drawn into a capture. Otherwise the device is lost, and refuses at once.
        assert_eq!(undone.buffers.is_none(), reason == FaultReason::Capturing);
        if let Some((source, _)) = undone.buffers.map(|buffers| *buffers) {
            assert_eq!(super::back(source, &late), [7; LEN]);
        }
        drop((engine, stream, device));
        nothing_went(&late);
    }
}

#[test]
fn a_vec_on_its_way_comes_back_from_a_lost_device() {
    let (late, device, _stream, buffer) = ground();
    let engine = engine(&device);
    late.deaf(Some(FaultReason::Lost));
    let undone = engine.download(buffer, 0, vec![1; LEN]).wait().expect_err("the device is lost");
    let target = undone.buffers.expect("the driver has the stage, not the vector").1.into_inner();
    assert_eq!(super::back(target, &late), [7; LEN]);
}
