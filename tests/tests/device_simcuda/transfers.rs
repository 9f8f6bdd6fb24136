//! Transfers over the driver: faults of any call, work in flight, few calls, ends.

use super::streams::in_child;
use super::{open, small};
use std::collections::BTreeMap;
use std::time::Duration;
use terrace_cuda::Cuda;
use terrace_device::{
    Capabilities, Device, DeviceBuffer, DeviceError, PinnedBuffer, Reason, Stream, TransferEngine, TransferOptions,
};
use terrace_tests::Random;
use terrace_tests::simcuda::{Session, Simulator};

const DISCRETE: &str = r#"{"profile": "discrete"}"#;

/// CUDA's "time ran out": may pass. And "launch out of resources", which does not.
const TRANSIENT: i32 = 909;
const PERMANENT: i32 = 701;

/// Small pieces, short waits.
fn options() -> TransferOptions {
    let backoff = Duration::from_micros(1);
    TransferOptions { chunk: (4 << 10, 32 << 10), backoff, backoff_most: backoff, ..TransferOptions::default() }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

fn buffer(device: &Device, stream: &Stream, len: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::new(device, stream, len).expect("there is room")
}

/// What a driver refused so often that no try was left.
fn is_driver(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Driver { .. })
}

/// Transfers there and back while `permille` of every kind of call that moves bytes are refused for a reason that passes:
/// every byte is right, or there is one error. Gives how many were done and how many retries that took.
fn under_faults(transfers: usize, permille: u64, seed: u64) -> (usize, u64) {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::with(&device, options()).expect("an engine");
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
        let session = Simulator::exclusive(DISCRETE);
        let device = open(0, small()).expect("the device opens");
        let stream = device.stream().expect("a stream");
        let options = TransferOptions { lanes: 1, chunk: (32 << 10, 32 << 10), ..options() };
        let engine = TransferEngine::with(&device, options).expect("an engine");
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

/// Each call that transfers make fails once, with codes that pass and codes that do not.
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
    let mut refused = 0;
    for nth in 1..=calls {
        for code in [TRANSIENT, PERMANENT, 2] {
            let session = Simulator::exclusive(DISCRETE);
            session.fail("*", nth, code);
            match work() {
                Ok(()) => {}
                Err(said) if said.starts_with("refused") => refused += 1,
                Err(said) => panic!("call {nth} failed with {code}: {said}"),
            }
            session.fail("*", 0, 0);
        }
    }
    assert!(refused > 100, "of {calls} calls only {refused} faults were told to anybody");
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

/// While copies are held, dropping, forgetting and cancelling free nothing early: the driver's own checks say so.
#[test]
fn what_is_in_flight_is_not_freed() {
    let mut session = Simulator::exclusive(DISCRETE);
    // What a forgotten future owns stays out.
    session.allow_leaks();
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::with(&device, options()).expect("an engine");
    session.hold();
    let mut forgotten = BTreeMap::new();
    for seed in 0..6u64 {
        let upload = engine.upload(bytes(seed, 60_000), buffer(&device, &stream, 60_000), 0);
        let down = engine.download(buffer(&device, &stream, 5_000), 0, vec![0u8; 5_000]);
        while session.calls(Some("cuMemcpyAsync")) <= seed.min(1) {
            std::thread::yield_now();
        }
        match seed % 3 {
            0 => drop((upload, down)),
            1 => {
                std::mem::forget(down);
                forgotten.insert(seed, upload);
            }
            _ => {
                let cancelled = std::thread::spawn(move || upload.cancel());
                drop(down);
                std::thread::sleep(Duration::from_millis(2));
                session.release();
                if let Err(undone) = cancelled.join().expect("no panic") {
                    assert_eq!(undone.error, DeviceError::Cancelled);
                    let (content, torn) = *undone.buffers.expect("the buffers come back");
                    assert_eq!(content, bytes(seed, 60_000));
                    let _ = torn.into_inner();
                }
                session.hold();
            }
        }
        // Memory that came free too early would be given out here, and written while it is read.
        let mut other = buffer(&device, &stream, 60_000);
        other.as_slice_mut().fill(9).expect("a fill");
    }
    session.release();
    for (seed, upload) in forgotten {
        let done = upload.wait().expect("it is done");
        assert_eq!(done.target.to_vec().expect("bytes"), bytes(seed, 60_000));
    }
}

/// A transfer comes after what was put on its buffer's stream before.
#[test]
fn transfers_come_after_the_stream_s_work() {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::with(&device, options()).expect("an engine");
    let mut there = buffer(&device, &stream, 100_000);
    for value in 0..5 {
        session.hold();
        there.as_slice_mut().fill(value).expect("a fill");
        let down = engine.download(there, 0, vec![255; 100_000]);
        std::thread::sleep(Duration::from_millis(1));
        session.release();
        let done = down.wait().expect("it is done");
        assert!(done.target.iter().all(|&byte| byte == value));
        there = done.source;
    }
}

/// Many small copies are few calls: on a driver that takes batches, and into one buffer on any.
#[test]
fn many_small_copies_are_few_calls() {
    for (batches, scattered_most) in [(true, 100), (false, 5_100)] {
        let session = Simulator::exclusive(DISCRETE);
        if !batches {
            // The probe's one; a driver before 12.8 has none at all.
            session.fail("cuMemcpyBatchAsync", 1, 801);
        }
        let device = open(0, small()).expect("the device opens");
        assert_eq!(device.description().capabilities.contains(Capabilities::BATCHES), batches);
        let stream = device.stream().expect("a stream");
        let engine = TransferEngine::new(&device).expect("an engine");
        let content = bytes(1, 4096);
        let copies =
            |session: &Session| session.calls(Some("cuMemcpyAsync")) + session.calls(Some("cuMemcpyBatchAsync"));
        let mut there = buffer(&device, &stream, 10_000 * 4096);
        let parts: Vec<(usize, &[u8])> = (0..10_000).map(|i| (i * 4096, content.as_slice())).collect();
        let before = copies(&session);
        engine.write_many(&mut there, &parts).expect("it is done");
        let together = copies(&session) - before;
        assert!(together <= 200, "batches {batches}: {together} copies of what lies side by side");
        // Every second page: nothing lies side by side.
        let parts: Vec<(usize, &[u8])> = (0..5_000).map(|i| (i * 8192, content.as_slice())).collect();
        let before = copies(&session);
        engine.write_many(&mut there, &parts).expect("it is done");
        let scattered = copies(&session) - before;
        assert!(scattered <= scattered_most, "batches {batches}: {scattered} copies of scattered pages");
        let mut back = vec![0; 4096];
        engine.read(&there, 4999 * 8192, &mut back).expect("it is done");
        assert_eq!(back, content);
    }
}

/// A child of a fork: typed errors, no wait for threads that are not there.
#[test]
fn a_forked_child_gets_errors() {
    let _session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::new(&device).expect("an engine");
    let (one, two) = (buffer(&device, &stream, 10), buffer(&device, &stream, 10));
    let before = engine.upload(vec![1; 10], one, 0);
    let mut slot = Some((engine.clone(), two, before));
    assert!(in_child(|| {
        let Some((engine, two, before)) = slot.take() else { return false };
        let forked =
            |error: &DeviceError| matches!(error, DeviceError::Lost { fault, .. } if fault.reason == Reason::Forked);
        let early = before.wait();
        let late = engine.upload(vec![1; 10], two, 0).wait();
        drop(engine);
        early.is_err_and(|undone| forked(&undone.error)) && late.is_err_and(|undone| forked(&undone.error))
    }));
    let (engine, two, before) = slot.take().expect("it is the child's copy that was taken");
    drop(before.wait().expect("it is done here"));
    drop(engine.upload(vec![1; 10], two, 0).wait().expect("and so is this"));
}
