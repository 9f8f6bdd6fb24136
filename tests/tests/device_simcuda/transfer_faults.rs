//! Transfers when calls of the driver fail, or the device is lost.

use super::transfers::{DISCRETE, PERMANENT, TRANSIENT, buffer, bytes, ground, is_driver, options};
use super::{open, small};
use terrace_cuda::Cuda;
use terrace_device::{Device, DeviceBuffer, DeviceError, PinnedBuffer, Stream, TransferEngine, TransferOptions};
use terrace_tests::Random;
use terrace_tests::simcuda::{Session, Simulator, swept};

/// Transfers there and back while `permille` of every kind of call that moves bytes are refused for a reason that passes:
/// every byte is right, or there is one error. Gives how many were done and how many retries that took.
fn under_faults(transfers: usize, permille: u64, seed: u64) -> (usize, u64) {
    let (session, device, stream, engine) = ground(options());
    let mut random = Random::new(seed);
    arm(&session, &mut random, transfers as u64 * 3, permille);
    let mut buffers: Vec<(DeviceBuffer<u8>, Vec<u8>)> = Vec::new();
    for slot in 0..32 {
        let len = 1 + random.below(if slot % 8 == 0 { 100_000 } else { 3_000 }) as usize;
        buffers.push((buffer(&device, &stream, len), bytes(slot, len)));
    }
    let mut done = 0;
    for round in 0..transfers / 64 {
        let uploads: Vec<_> = buffers.drain(..).map(|(there, content)| engine.upload(content, there, 0)).collect();
        let uploaded: Vec<_> = uploads.into_iter().map(|transfer| transfer.wait()).collect();
        let mut downloads = Vec::new();
        for result in uploaded {
            match result {
                Ok(result) => {
                    done += 1;
                    let len = result.source.len();
                    downloads.push((Ok(engine.download(result.target, 0, vec![0; len])), result.source));
                }
                Err(undone) => {
                    assert!(is_driver(&undone.error), "{}", undone.error);
                    let (content, torn) = *undone.buffers.expect("the driver was quiet");
                    downloads.push((Err(torn.into_inner()), content));
                }
            }
        }
        for (download, mut content) in downloads {
            let there = match download {
                Err(there) => there,
                Ok(transfer) => match transfer.wait() {
                    Ok(result) => {
                        done += 1;
                        assert!(result.target == content, "round {round}: other bytes");
                        result.source
                    }
                    Err(undone) => {
                        assert!(is_driver(&undone.error), "{}", undone.error);
                        undone.buffers.expect("the driver was quiet").0
                    }
                },
            };
            // Other bytes in each round.
            content.rotate_left(1);
            content[0] = round as u8;
            buffers.push((there, content));
        }
    }
    session.fail("*", 0, 0);
    let stats = engine.stats();
    assert_eq!((stats.up.transfers + stats.down.transfers) as usize, done);
    let all = stats.up.transfers + stats.up.failed + stats.down.transfers + stats.down.failed;
    assert!(all as usize >= transfers / 64 * 32, "{stats:?}");
    (done, stats.up.retries + stats.down.retries)
}

/// Arms refusals of the calls that a lane makes, `permille` of `calls` each.
fn arm(session: &Session, random: &mut Random, calls: u64, permille: u64) {
    let names = ["cuMemcpyAsync", "cuMemcpyBatchAsync", "cuEventRecord", "cuEventSynchronize", "cuStreamWaitEvent"];
    for name in names {
        for nth in 1..=calls {
            if random.below(1000) < permille {
                session.fail(name, nth, TRANSIENT);
            }
        }
    }
}

/// `TERRACE_TRANSFERS=25600` is the long run: 102,400 transfers.
#[test]
fn transfers_under_transient_faults_are_right_or_one_error() {
    let transfers = std::env::var("TERRACE_TRANSFERS").ok().and_then(|number| number.parse().ok()).unwrap_or(1_280);
    for (seed, permille) in [5, 50, 200, 500].into_iter().enumerate() {
        let (done, retries) = under_faults(transfers, permille, seed as u64);
        println!("{permille} permille refused: {done} of {transfers} done, {retries} retries");
        assert!(retries as usize > transfers * permille as usize / 2_000, "{retries} retries");
        // Eight tries in a row are refused once in 10^7 times where 50 of 1000 calls are, often where every second one is.
        assert!(done == transfers || permille > 50, "{done} of {transfers}, {permille} permille refused");
        assert!(done < transfers || permille < 500, "{done} of {transfers}, {permille} permille refused");
    }
}

/// A call that is refused for good fails one transfer; those that shared its piece are done.
#[test]
fn a_permanent_fault_is_told_once() {
    for name in ["cuMemcpyBatchAsync", "cuEventRecord"] {
        let options = TransferOptions { lanes: 1, chunk: (32 << 10, 32 << 10), ..options() };
        let (session, device, stream, engine) = ground(options);
        let upload = |seed, len| engine.upload(bytes(seed, len), buffer(&device, &stream, len), 0);
        // The lane waits for the first while the others queue.
        session.hold();
        let held = upload(0, 30_000);
        while session.calls(Some("cuEventSynchronize")) == 0 {
            std::thread::yield_now();
        }
        let others: Vec<_> = (0..20).map(|seed| upload(seed, 500)).collect();
        // The piece that they share, then the first that goes alone.
        session.fail(name, 1, PERMANENT);
        let alone = if name == "cuEventRecord" { 1 } else { 0 };
        session.fail("cuMemcpyAsync", 1 + alone, PERMANENT);
        session.release();
        held.wait().expect("it was on its way");
        let mut failed = Vec::new();
        for (seed, other) in others.into_iter().enumerate() {
            match other.wait() {
                Ok(done) => assert_eq!(done.target.to_vec().expect("bytes"), bytes(seed as u64, 500)),
                Err(undone) => failed.push(undone.error),
            }
        }
        let stats = engine.stats();
        let told = |error: &DeviceError| matches!(error, DeviceError::Driver { fault, .. } if fault.code == PERMANENT);
        assert!(failed.len() == 1 && told(&failed[0]), "{name}: {failed:?}");
        assert_eq!((stats.up.retries, stats.up.failed, stats.up.transfers), (20, 1, 20), "{name}");
    }
}

/// Calls that transfers make fail once, with codes that pass and codes that do not.
#[test]
fn every_call_of_transfers_fails_once() {
    let work = || -> Result<(), String> {
        let cuda = Cuda::open(0).map_err(|_| "refused")?;
        let device = Device::open(cuda, small()).map_err(|_| "refused")?;
        let stream = device.stream().map_err(|_| "refused")?;
        let engine = TransferEngine::with(&device, options()).map_err(|_| "refused")?;
        let content = bytes(5, 70_000);
        let new = |len| DeviceBuffer::<u8>::new(&device, &stream, len).map_err(|_| "refused");
        let (one, two) = (new(70_000)?, new(70_000)?);
        let one = match engine.upload(content.clone(), one, 0).wait() {
            Ok(done) => done.target,
            Err(undone) => {
                let torn = undone.buffers.ok_or("the buffers are gone")?.1;
                return torn.whole().map_or(Err("refused".into()), |_| Err("refused whole".into()));
            }
        };
        let pinned = PinnedBuffer::new(&device, &stream, 70_000).map_err(|_| "refused")?;
        let copied = engine.copy(one, two).wait().map_err(|_| "refused")?;
        let done = engine.download(copied.target, 0, pinned).wait().map_err(|_| "refused")?;
        if *done.target != *content {
            return Err("other bytes".into());
        }
        Ok(())
    };
    let calls = {
        let session = Simulator::exclusive(DISCRETE);
        work().expect("nothing fails");
        session.calls(None)
    };
    let (codes, mut refused) = ([TRANSIENT, PERMANENT, 2], 0);
    let all = swept(calls, &codes).len();
    for (nth, code) in swept(calls, &codes) {
        let session = Simulator::exclusive(DISCRETE);
        session.fail("*", nth, code);
        match work() {
            Ok(()) => {}
            Err(said) if said.starts_with("refused") => refused += 1,
            Err(said) => panic!("call {nth} failed with {code}: {said}"),
        }
        session.fail("*", 0, 0);
    }
    assert!(refused * 8 > all, "of {all} faults only {refused} were told to anybody");
}

/// A lost device: every transfer ends, with an error that says so.
#[test]
fn a_lost_device_ends_every_transfer() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks();
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::with(&device, options()).expect("an engine");
    session.hold();
    let transfers: Vec<_> =
        (0..8).map(|seed| engine.upload(bytes(seed, 90_000), buffer(&device, &stream, 90_000), 0)).collect();
    session.lose(0, 719);
    session.release();
    for transfer in transfers {
        if let Err(undone) = transfer.wait() {
            assert!(matches!(undone.error, DeviceError::Lost { .. }), "{}", undone.error);
        }
    }
    let late = engine.upload(vec![1], buffer_of_lost(&device, &stream), 0).wait();
    assert!(late.is_err());
    drop(engine);
}

/// A lost device gives nothing out; something that it gave before is all there can be.
fn buffer_of_lost(device: &Device, stream: &Stream) -> DeviceBuffer<u8> {
    let host = Device::host();
    assert!(DeviceBuffer::<u8>::new(device, stream, 1).is_err());
    buffer(&host, &host.stream().expect("a stream"), 1)
}

/// One refusal of a piece with many places is tried again like any other, and successes between do not make tries endless.
#[test]
fn tries_are_counted_for_each_place() {
    let (session, device, stream, engine) = ground(TransferOptions { attempts: 3, ..options() });
    let mut there = buffer(&device, &stream, 100_000);
    let content = bytes(1, 400);
    let parts: Vec<(usize, &[u8])> = (0..100).map(|at| (at * 1000, content.as_slice())).collect();
    session.fail("cuMemcpyBatchAsync", 1, TRANSIENT);
    engine.write_many(&mut there, &parts).expect("it passes");
    let mut back = vec![0; 400];
    engine.read(&there, 99_000, &mut back).expect("it is there");
    assert_eq!(back, content);
    // Twenty pieces on one lane, nine of them refused once: what was refused goes next.
    for nth in [1, 3, 5, 7, 9, 11, 13, 15, 17] {
        session.fail("cuMemcpyAsync", nth, TRANSIENT);
    }
    let engine =
        TransferEngine::with(&device, TransferOptions { lanes: 1, chunk: (4096, 4096), attempts: 3, ..options() });
    let done = engine.expect("an engine").upload(bytes(2, 80_000), there, 0).wait().expect("it passes");
    assert!(done.target.to_vec().expect("bytes")[..80_000] == done.source[..]);
    session.fail("*", 0, 0);
}

/// What was half written says so; the error is the first one.
#[test]
fn a_torn_target_is_not_whole() {
    let options = TransferOptions { lanes: 1, chunk: (4096, 4096), ..options() };
    let (session, device, stream, engine) = ground(options);
    let mut there = buffer(&device, &stream, 20_000);
    there.as_slice_mut().fill(0).expect("a fill");
    stream.synchronize().expect("it is done");
    session.fail("cuMemcpyAsync", 3, PERMANENT);
    let undone = engine.upload(vec![7; 20_000], there, 0).wait().expect_err("the third piece is refused");
    assert!(matches!(&undone.error, DeviceError::Driver { fault, .. } if fault.code == PERMANENT), "{undone}");
    let (source, torn) = *undone.buffers.expect("the driver was quiet");
    assert_eq!(source, vec![7; 20_000]);
    assert!(!torn.is_whole());
    let torn = torn.whole().expect_err("two pieces were written");
    let target = torn.into_inner();
    let now = target.to_vec().expect("bytes");
    assert!(now[0] == 7 && now[19_999] == 0, "a part of it is new");

    let undone = engine.upload(vec![9; 20_000], target, 1).wait().expect_err("it does not fit there");
    let (_, target) = *undone.buffers.expect("nothing was issued");
    assert!(target.is_whole());
    assert_eq!(target.whole().expect("nothing was written").to_vec().expect("bytes"), now);
}

/// A refused wait for an event says nothing about the copy: it is made again. Refused once more, the piece is.
#[test]
fn an_event_that_cannot_be_waited_for_has_not_happened() {
    let (session, device, stream, engine) = ground(options());
    for refusals in [1, 2] {
        (1..=refusals).for_each(|nth| session.fail("cuEventSynchronize", nth, TRANSIENT));
        let done = engine.upload(bytes(3, 1000), buffer(&device, &stream, 1000), 0).wait().expect("it is there");
        assert_eq!(done.target.to_vec().expect("bytes"), bytes(3, 1000));
        assert_eq!(engine.stats().up.retries, refusals - 1);
    }
    (1..=2).for_each(|nth| session.fail("cuEventSynchronize", nth, PERMANENT));
    let undone = engine.upload(bytes(3, 1000), buffer(&device, &stream, 1000), 0).wait().expect_err("nobody can say");
    assert!(is_driver(&undone.error) && undone.buffers.is_some(), "{undone}");
}

/// When the driver cannot say whether a copy is still under way, its memory is never handed out again.
#[test]
fn memory_of_unknown_fate_is_not_used_again() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks();
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::with(&device, TransferOptions { lanes: 1, ..options() }).expect("an engine");
    let mut borrowed = buffer(&device, &stream, 20_000);
    session.hold();
    for nth in 1..=20 {
        for name in ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"] {
            session.fail(name, nth, PERMANENT);
        }
    }
    let error = engine.write(&mut borrowed, 0, &[1; 20_000]).expect_err("nobody knows");
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
    drop(borrowed);
    assert!(DeviceBuffer::<u8>::new(&device, &stream, 20_000).is_err(), "nothing is handed out any more");
    session.fail("*", 0, 0);
    session.release();
}
