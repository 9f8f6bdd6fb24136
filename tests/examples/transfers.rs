//! Ten thousand copies of 4 KiB on a simulated driver whose calls take 5 microseconds each: one by one, and by an engine.
//!
//! `cargo run --release -p terrace-tests --example transfers`
//!
//! Five rounds, in each every way once. `bare` is a loop of the driver's copy from pinned memory with the context current
//! and one wait at the end: a call for each copy, nothing else.

use std::time::{Duration, Instant};
use terrace_cuda::Cuda;
use terrace_device::{
    Backend, Device, DeviceBuffer, DeviceError, DeviceOptions, MemoryKind, RawStream, TransferEngine,
};
use terrace_tests::rounds::{Rounds, Spread, spread};
use terrace_tests::simcuda::Simulator;

const COPIES: usize = 10_000;
const BYTES: usize = 4096;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let bare = Cuda::open(0)?;
    let device = Device::open(Cuda::open(0)?, DeviceOptions::default())?;
    let (stream, engine) = (device.stream()?, TransferEngine::new(&device)?);
    let mut there = DeviceBuffer::<u8>::new(&device, &stream, 2 * COPIES * BYTES)?;
    let pinned = bare.take(MemoryKind::Pinned, (COPIES * BYTES) as u64)?;
    let own = bare.create_stream()?;
    bare.attach()?;
    let content = vec![8; COPIES * BYTES];
    let many = (0..COPIES).map(|_| DeviceBuffer::new(&device, &stream, BYTES));
    let mut many = many.collect::<Result<Vec<_>, _>>()?;
    session.latency(Duration::from_micros(5));
    let mut ways = [
        "bare, a call each",
        "a call each, each waited for",
        "engine, side by side",
        "engine, scattered",
        "engine, a future each",
    ];
    let names = ways;
    let times = Rounds::new(ROUNDS).by_contestant(&mut ways, |way, _| {
        let begun = Instant::now();
        match *way {
            "bare, a call each" => one_by_one(&bare, pinned, there.address(), own)?,
            "a call each, each waited for" => waiting(&mut there)?,
            "engine, side by side" => together(&engine, &mut there, &content, 1)?,
            "engine, scattered" => together(&engine, &mut there, &content, 2)?,
            _ => many = separate(&engine, std::mem::take(&mut many))?,
        }
        Ok::<_, Box<dyn std::error::Error>>(begun.elapsed().as_secs_f64() * 1e3)
    })?;
    session.latency(Duration::ZERO);
    let all: Vec<Spread> = times.iter().filter_map(|times| spread(times)).collect();
    for (name, Spread { median, min, max }) in names.iter().zip(&all) {
        let faster = all[0].median / median;
        println!("{name:30} {median:8.2} ms ({min:.2} to {max:.2}), {faster:.1} times faster than bare");
    }
    // SAFETY: made above; `one_by_one` waited for it.
    unsafe { bare.destroy_stream(own) }?;
    // SAFETY: taken above; `one_by_one` waited for the stream.
    unsafe { bare.give_back(MemoryKind::Pinned, pinned, (COPIES * BYTES) as u64) }?;
    Ok(())
}

fn one_by_one(bare: &Cuda, from: u64, to: u64, stream: RawStream) -> Result<(), terrace_device::Fault> {
    for at in 0..COPIES as u64 {
        let at = at * BYTES as u64;
        // SAFETY: both ranges are live; the stream is waited for below.
        unsafe { bare.copy(to + at, from + at, BYTES as u64, stream) }?;
    }
    // SAFETY: the caller's stream, which it keeps.
    unsafe { bare.synchronize_stream(stream) }
}

fn waiting(there: &mut DeviceBuffer<u8>) -> Result<(), DeviceError> {
    let content = [7; BYTES];
    (0..COPIES).try_for_each(|at| there.slice_mut(at * BYTES..(at + 1) * BYTES)?.write(&content))
}

/// All by one call of the engine, to every `step`-th place.
fn together(
    engine: &TransferEngine,
    there: &mut DeviceBuffer<u8>,
    content: &[u8],
    step: usize,
) -> Result<(), DeviceError> {
    let parts: Vec<(usize, &[u8])> =
        content.chunks(BYTES).enumerate().map(|(at, content)| (at * BYTES * step, content)).collect();
    engine.write_many(there, &parts).map(drop)
}

/// Each a transfer of its own, to a buffer of its own.
fn separate(engine: &TransferEngine, many: Vec<DeviceBuffer<u8>>) -> Result<Vec<DeviceBuffer<u8>>, DeviceError> {
    let transfers: Vec<_> = many.into_iter().map(|there| engine.upload(vec![9u8; BYTES], there, 0)).collect();
    transfers.into_iter().map(|transfer| Ok(transfer.wait()?.target)).collect()
}
