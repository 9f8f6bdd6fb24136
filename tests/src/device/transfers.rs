//! Transfers: every byte, buffers back whatever happens, futures of any kind.

use super::bytes::pattern;
use super::{World, cut, ensure, ok, same, small, with};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use terrace_device::{
    Device, DeviceBuffer, DeviceError, Incomplete, PinnedBuffer, Priority, TransferEngine, TransferError,
    TransferOptions,
};

/// Pieces so small that a few hundred kilobytes are many of them.
fn pieces() -> TransferOptions {
    TransferOptions { chunk: (4 << 10, 64 << 10), ..TransferOptions::default() }
}

/// Runs a future on this thread.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn error<S, T>(undone: TransferError<S, T>) -> String {
    undone.error.to_string()
}

pub(super) fn every_byte(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let (stream, engine) = (ok(device.stream())?, ok(TransferEngine::with(device, pieces()))?);
        let lengths = [1, 2, 4_095, 4_096, 65_537, 1 << 20, 5_000_001].into_iter().take(cut(7, 4));
        let count = lengths.len() as u64;
        for (seed, len) in lengths.enumerate() {
            let bytes = pattern(seed as u64, len);
            let there = ok(DeviceBuffer::<u8>::new(device, &stream, len + 9))?;
            let done = engine.upload(bytes.clone(), there, 7).wait().map_err(error)?;
            same((done.report.bytes, done.source == bytes), (len as u64, true), "bytes up, and their source")?;
            let copy = ok(DeviceBuffer::<u8>::new(device, &stream, len + 9))?;
            let done = engine.copy(done.target, copy).wait().map_err(error)?;
            let done = engine.download(done.target, 7, vec![0; len]).wait().map_err(error)?;
            ensure(done.target == bytes, format_args!("{len} bytes there and back"))?;
            let mut pinned = ok(PinnedBuffer::<u8>::new(device, &stream, len))?;
            pinned.fill(3);
            let done = engine.download(done.source, 7, pinned).wait().map_err(error)?;
            ensure(*done.target == *bytes, format_args!("{len} bytes into pinned memory"))?;
            let done = engine.upload(done.target, done.source, 9).wait().map_err(error)?;
            let mut back = vec![0; len];
            same(ok(engine.read(&done.target, 9, &mut back))?.bytes, len as u64, "bytes read")?;
            ensure(back == bytes, format_args!("{len} bytes out of pinned memory"))?;
            let counts = done.target.transfers();
            same((counts.transfers, counts.failed, counts.last.is_some()), (5, 0, true), "what the buffer counts")?;
            same((counts.bytes_in, counts.bytes_out), (2 * len as u64 + 9, 3 * len as u64), "bytes in and out")?;
        }
        let stats = engine.stats();
        same(
            (stats.up.transfers, stats.down.transfers, stats.within.transfers),
            (2 * count, 3 * count, count),
            "transfers",
        )?;
        same((stats.up.failed, stats.up.cancelled, stats.queued), (0, 0, 0), "failed, given up, queued")?;
        ensure(stats.up.bytes == stats.up.moved && stats.up.bandwidth() > 0.0, "bytes moved")
    })
}

/// Places in one transfer.
const PLACES: usize = cut(2_000, 20);

pub(super) fn many_places(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let (stream, engine) = (ok(device.stream())?, ok(TransferEngine::with(device, pieces()))?);
        let mut there = ok(DeviceBuffer::<u32>::zeroed(device, &stream, PLACES * 150))?;
        // Places with gaps, some side by side, in no order.
        let places: Vec<usize> = (0..PLACES).map(|i| i * 1_237 % PLACES * 150).collect();
        let content: Vec<Vec<u32>> = (0..PLACES).map(|i| vec![i as u32 + 1; 1 + i * 7 % 150]).collect();
        let parts: Vec<(usize, &[u32])> = places.iter().copied().zip(content.iter().map(Vec::as_slice)).collect();
        ok(engine.write_many(&mut there, &parts))?;
        let mut expected = vec![0; PLACES * 150];
        for (at, elements) in &parts {
            expected[*at..at + elements.len()].copy_from_slice(elements);
        }
        ensure(ok(there.to_vec())? == expected, "many places written")?;
        let mut back: Vec<Vec<u32>> = content.iter().map(|elements| vec![0; elements.len()]).collect();
        let mut parts: Vec<(usize, &mut [u32])> =
            places.iter().copied().zip(back.iter_mut().map(Vec::as_mut_slice)).collect();
        ok(engine.read_many(&there, &mut parts))?;
        ensure(back == content, "many places read")?;
        let overlapping = engine.write_many(&mut there, &[(10, &[1, 2, 3]), (0, &[4; 11])]);
        ensure(matches!(overlapping, Err(DeviceError::BadRequest { .. })), "places that overlap")?;
        let outside = engine.write_many(&mut there, &[(0, &[9]), (PLACES * 150 - 1, &[9, 9])]);
        ensure(matches!(outside, Err(DeviceError::OutOfBounds { .. })), "a place that leaves the buffer")?;
        let beyond = engine.read_many(&there, &mut [(usize::MAX, &mut [0u32][..])]);
        ensure(matches!(beyond, Err(DeviceError::OutOfBounds { .. })), "a place at the last number")?;
        ensure(ok(there.to_vec())? == expected, "nothing was written when one place was refused")?;
        same(ok(engine.write_many(&mut there, &[]))?.bytes, 0, "no places")?;
        same(ok(engine.write(&mut there, PLACES * 150, &[]))?.bytes, 0, "no elements")
    })
}

/// What a refused transfer gives back.
fn refused<S, T>(result: Result<impl Sized, TransferError<S, T>>, what: &str) -> Result<(DeviceError, S, T), String> {
    let Err(undone) = result else { return Err(format!("{what}: it was done")) };
    let Some((source, target)) = undone.buffers.map(|buffers| *buffers) else {
        return Err(format!("{what}: the buffers are gone"));
    };
    let whole = target.whole().map_err(|_: Incomplete<T>| format!("{what}: something was written"))?;
    Ok((undone.error, source, whole))
}

pub(super) fn bad_transfers(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let (stream, engine) = (ok(device.stream())?, ok(TransferEngine::new(device))?);
        let there = ok(DeviceBuffer::<u16>::new(device, &stream, 100))?;
        let (error, host, there) = refused(engine.upload(vec![1; 10], there, 91).wait(), "ten at 91 of 100")?;
        ensure(matches!(error, DeviceError::OutOfBounds { .. }), format_args!("ten at 91 of 100: {error}"))?;
        let (error, host, there) = refused(engine.upload(host, there, usize::MAX).wait(), "ten at the last number")?;
        ensure(matches!(error, DeviceError::OutOfBounds { .. }), format_args!("at the last number: {error}"))?;
        let (error, there, _) = refused(block_on(engine.download(there, 95, host)), "ten from 95 of 100")?;
        ensure(matches!(error, DeviceError::OutOfBounds { .. }), format_args!("ten from 95: {error}"))?;
        let smaller = ok(DeviceBuffer::<u16>::new(device, &stream, 99))?;
        let (error, there, _) = refused(engine.copy(there, smaller).wait(), "to a smaller one")?;
        ensure(matches!(error, DeviceError::OutOfBounds { .. }), format_args!("to a smaller one: {error}"))?;
        let host = Device::host();
        let elsewhere = ok(DeviceBuffer::<u16>::new(&host, &ok(host.stream())?, 100))?;
        let (error, there, _) = refused(engine.copy(there, elsewhere).wait(), "to another device")?;
        ensure(matches!(error, DeviceError::OtherDevice { .. }), format_args!("to another device: {error}"))?;
        let pool = ok(device.graph_pool())?;
        let capture = ok(stream.capture(&pool))?;
        let (error, _, mut there) = refused(engine.upload(vec![1; 10], there, 0).wait(), "while captured")?;
        ensure(matches!(error, DeviceError::Capture(_)), format_args!("while captured: {error}"))?;
        let written = engine.write(&mut there, 0, &[1]);
        ensure(matches!(written, Err(DeviceError::Capture(_))), format_args!("written while captured: {written:?}"))?;
        drop(capture);
        for wrong in [
            TransferOptions { lanes: 0, ..pieces() },
            TransferOptions { lanes: 17, ..pieces() },
            TransferOptions { chunk: (8 << 10, 4 << 10), ..pieces() },
            TransferOptions { chunk: (5_000, 8_192), ..pieces() },
            TransferOptions { chunk: (0, 4 << 10), ..pieces() },
            TransferOptions { batch: 0, ..pieces() },
            TransferOptions { attempts: 0, ..pieces() },
            TransferOptions { patience: 0, ..pieces() },
        ] {
            let engine = TransferEngine::with(device, wrong);
            ensure(matches!(engine, Err(DeviceError::BadOption(_))), format_args!("{wrong:?}"))?;
        }
        Ok(())
    })
}

pub(super) fn futures(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let (stream, engine) = (ok(device.stream())?, ok(TransferEngine::with(device, pieces()))?);
        let upload = |seed: u64, class| {
            let bytes = pattern(seed, cut(10_000, 1_000) + cut(997, 13) * seed as usize);
            let there = ok(DeviceBuffer::new(device, &stream, bytes.len()))?;
            Ok::<_, String>(engine.at(class).upload(bytes, there, 0))
        };
        let classes = [Priority::Low, Priority::Normal, Priority::High];
        let transfers: Vec<_> =
            (0..cut(60, 6)).map(|seed| upload(seed, classes[seed as usize % 3])).collect::<Result<_, _>>()?;
        // Dropped at once, and polled once before.
        drop(upload(61, Priority::Normal)?);
        let mut polled = upload(62, Priority::Low)?;
        let _ = std::pin::Pin::new(&mut polled).poll(&mut Context::from_waker(Waker::noop()));
        drop(polled);
        for (seed, transfer) in transfers.into_iter().enumerate() {
            let done = block_on(transfer).map_err(error)?;
            let mut back = vec![0; done.source.len()];
            ok(engine.read(&done.target, 0, &mut back))?;
            ensure(back == done.source, format_args!("bytes of transfer {seed}"))?;
        }
        // What is asked for last is done though its engine is dropped.
        let last = upload(63, Priority::Low)?;
        let cancelled = upload(64, Priority::Low)?;
        drop(engine);
        let last = last.wait().map_err(error)?;
        ensure(ok(last.target.to_vec())? == last.source, "bytes of the last transfer")?;
        match cancelled.cancel() {
            Ok(done) => ensure(ok(done.target.to_vec())? == done.source, "it was done before"),
            Err(undone) => ensure(undone.buffers.is_some(), "the buffers come back"),
        }
    })
}

pub(super) fn threads(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let engine = ok(TransferEngine::with(device, TransferOptions { lanes: 3, ..pieces() }))?;
        let wrong: Vec<String> = thread::scope(|scope| {
            let works: Vec<_> = (0..4u64)
                .map(|seed| {
                    scope.spawn({
                        let engine = engine.clone();
                        move || there_and_back(device, &engine, seed)
                    })
                })
                .collect();
            works.into_iter().filter_map(|work| work.join().unwrap_or(Err("a thread panicked".into())).err()).collect()
        });
        same(wrong, Vec::new(), "what went wrong in threads")?;
        let stats = engine.stats();
        same((stats.up.transfers, stats.down.transfers), (4 * ROUNDS, 4 * ROUNDS), "transfers of all threads")
    })
}

/// Transfers there and back of each thread.
const ROUNDS: u64 = cut(50, 3);

fn there_and_back(device: &Device, engine: &TransferEngine, seed: u64) -> Result<(), String> {
    let stream = ok(device.stream())?;
    let mut buffer = ok(DeviceBuffer::<u8>::new(device, &stream, 200_000))?;
    for round in 0..ROUNDS {
        let bytes = pattern(seed * 1_000 + round, 1 + (round * cut(3_989, 499)) as usize);
        let done = block_on(engine.upload(bytes, buffer, round as usize)).map_err(error)?;
        let len = done.source.len();
        let back = engine.download(done.target, round as usize, vec![0; len]).wait().map_err(error)?;
        ensure(back.target == done.source, format_args!("thread {seed}, round {round}: other bytes"))?;
        buffer = back.source;
    }
    Ok(())
}
