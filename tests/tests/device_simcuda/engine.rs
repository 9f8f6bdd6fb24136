//! What each option of a transfer engine does, in calls of the driver, pieces and order.

use super::transfers::{PERMANENT, TRANSIENT, buffer, bytes, captured, ground, options};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use terrace_device::{DeviceError, Priority, TransferEngine, TransferOptions};
use terrace_tests::simcuda::Simulator;

/// Pieces of one size, on one lane.
fn plain() -> TransferOptions {
    TransferOptions { lanes: 1, chunk: (4 << 10, 4 << 10), ..options() }
}

/// Copies that the driver was asked for.
fn copies(simulator: &Simulator) -> u64 {
    simulator.calls(Some("cuMemcpyAsync")) + simulator.calls(Some("cuMemcpyBatchAsync"))
}

/// Waits until so many lanes wait for a piece each.
fn until_lanes_wait(simulator: &Simulator, lanes: u64) {
    while simulator.calls(Some("cuEventSynchronize")) < lanes {
        std::thread::yield_now();
    }
}

/// Writes its number down when it is woken.
struct Noted(u32, Arc<Mutex<Vec<u32>>>);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.1.lock().expect("no test panics in here").push(self.0);
    }
}

#[test]
fn a_higher_class_goes_first() {
    let (session, device, stream, engine) = ground(plain());
    let order = Arc::default();
    session.hold();
    let first = engine.upload(bytes(0, 100), buffer(&device, &stream, 100), 0);
    // The lane waits for the first while the others queue, the lowest class first.
    until_lanes_wait(&session, 1);
    let classes = [Priority::Low, Priority::Normal, Priority::High];
    let later = classes.map(|class| engine.at(class).upload(bytes(1, 4096), buffer(&device, &stream, 4096), 0));
    let mut later = pin!(later.into_iter().map(Box::pin).collect::<Vec<_>>());
    for (number, transfer) in later.iter_mut().enumerate() {
        let waker = Waker::from(Arc::new(Noted(number as u32, Arc::clone(&order))));
        assert!(matches!(transfer.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
    }
    session.release();
    first.wait().expect("it is there");
    // Ends the lane, which finishes what was asked for.
    drop(engine);
    assert_eq!(*order.lock().expect("no test panics in here"), [2, 1, 0]);
}

#[test]
fn pieces_have_the_size_that_is_said() {
    for (chunk, pieces) in [(4 << 10, 20), (16 << 10, 5)] {
        let (_session, device, stream, engine) = ground(TransferOptions { chunk: (chunk, chunk), ..plain() });
        let done = engine.upload(bytes(1, 80_000), buffer(&device, &stream, 80_000), 0).wait().expect("it is there");
        assert_eq!((done.report.pieces, done.report.bytes), (pieces, 80_000));
    }
}

/// What is measured reaches the size of pieces: after eight of one size others are tried.
#[test]
fn the_size_of_pieces_follows_what_is_measured() {
    let (_session, device, stream, engine) = ground(TransferOptions { chunk: (4 << 10, 64 << 10), ..plain() });
    let (len, begin) = (512 << 10, 16 << 10);
    let done = engine.upload(bytes(1, len), buffer(&device, &stream, len), 0).wait().expect("it is there");
    assert_ne!(done.report.pieces as usize, len / begin, "not all have the size that it begins with");
}

/// Each lane is a stream, and has two pieces on their way at most.
#[test]
fn lanes_and_their_two_slots_bound_what_moves_at_once() {
    for lanes in [1, 3] {
        let (session, device, stream, engine) = ground(TransferOptions { lanes, ..plain() });
        assert_eq!(session.calls(Some("cuStreamCreate")), lanes as u64 + OTHERS);
        session.hold();
        let before = copies(&session);
        let upload = engine.upload(bytes(1, 40 * 4096), buffer(&device, &stream, 40 * 4096), 0);
        until_lanes_wait(&session, lanes as u64);
        assert_eq!(copies(&session) - before, 2 * lanes as u64);
        session.release();
        assert_eq!(upload.wait().expect("it is there").report.pieces, 40);
    }
}

/// A lane's stream waits for a transfer's stream once for all transfers that were submitted until then.
#[test]
fn transfers_that_queue_wait_for_their_stream_once() {
    let (session, device, stream, engine) = ground(plain());
    session.hold();
    let first = engine.upload(bytes(0, 100), buffer(&device, &stream, 100), 0);
    until_lanes_wait(&session, 1);
    let later = (1..9).map(|seed| engine.upload(bytes(seed, 4096), buffer(&device, &stream, 4096), 0));
    let later: Vec<_> = later.collect();
    let before = session.calls(Some("cuStreamWaitEvent"));
    session.release();
    first.wait().expect("it is there");
    later.into_iter().for_each(|transfer| _ = transfer.wait().expect("it is there"));
    assert_eq!(session.calls(Some("cuStreamWaitEvent")) - before, 1, "for eight transfers");
}

/// Streams that the backend, and the test, make besides.
const OTHERS: u64 = 2;

/// What was refused waits, and others go on meanwhile.
#[test]
fn what_was_refused_waits_before_it_is_tried_again() {
    let minute = Duration::from_secs(60);
    let options = TransferOptions { backoff: minute, backoff_most: minute, ..plain() };
    let (session, device, stream, engine) = ground(options);
    session.fail("cuMemcpyAsync", 1, TRANSIENT);
    let before = copies(&session);
    let refused = engine.upload(bytes(1, 100), buffer(&device, &stream, 100), 0);
    while copies(&session) == before {
        std::thread::yield_now();
    }
    // It comes behind the first, and before any second try of it.
    let done = engine.upload(bytes(2, 100), buffer(&device, &stream, 100), 0).wait().expect("it is there");
    assert_eq!(done.target.to_vec().expect("bytes"), bytes(2, 100));
    assert_eq!((engine.stats().up.transfers, engine.stats().queued), (1, 1), "the first waits");
    let undone = refused.cancel().expect_err("nothing of it arrived");
    assert_eq!(undone.error, DeviceError::Cancelled);
}

/// A driver that cannot say that a stream is captured lets two pieces into the capture: neither is said to have arrived, and
/// the memory of neither is used again, which the graph may use.
#[test]
fn what_a_capture_drew_in_keeps_its_memory() {
    let (mut session, device, stream, engine) = ground(plain());
    let free = device.stream().expect("a stream");
    let targets = [1, 2].map(|_| buffer(&device, &stream, 4096));
    session.allow_leaks();
    session.hold();
    let first = engine.upload(bytes(0, 4096), buffer(&device, &free, 4096), 0);
    until_lanes_wait(&session, 1);
    let ended = captured(&session, stream.raw().0, |session| {
        for nth in [1, 2] {
            session.fail("cuStreamIsCapturing", nth, PERMANENT);
        }
        let drawn = targets.map(|target| engine.upload(bytes(1, 4096), target, 0));
        session.release();
        first.wait().expect("it was put on the lane's stream before");
        for transfer in drawn {
            let undone = transfer.wait().expect_err("it is in the capture");
            assert!(undone.buffers.is_none(), "{undone}");
        }
    });
    assert_ne!(ended, 0, "no graph came of it");
}

#[test]
fn failures_and_the_best_rate_are_counted() {
    let (session, device, stream, engine) = ground(plain());
    let there = buffer(&device, &stream, 100_000);
    let done = engine.upload(bytes(1, 100_000), there, 0).wait().expect("it is there");
    let up = engine.stats().up;
    assert!(up.best > 0.0 && up.bandwidth() > 0.0 && up.efficiency() > 0.0, "{up:?}");
    session.fail("cuMemcpyAsync", 1, PERMANENT);
    let undone = engine.upload(done.source, done.target, 0).wait().expect_err("it is refused");
    let there = undone.buffers.expect("the driver was quiet").1.into_inner();
    assert_eq!((engine.stats().up.failed, engine.stats().up.transfers), (1, 1));
    assert_eq!((there.transfers().failed, there.transfers().transfers), (1, 1));
    let other: TransferEngine = engine.at(Priority::Low);
    assert_eq!(other.stats().up.failed, 1, "one engine");
}
