//! Benchmarks what a user of `Manager` gets from a disk, beside raw loops on the same disk, in one run.
//!
//! `cargo run --release -p terrace-tiers --example manager [DIRECTORY]`
//!
//! Each of five rounds writes a gigabyte in buffers of 64 KiB, and another in buffers of 64 MiB, through a manager with 64 MiB of
//! memory (256 MiB for the large ones), and then leases each buffer and reads all of its bytes. The raw loops are those of the
//! store's benchmark: a ring with up to 64 and 16 requests in flight, and 16 threads; both look at what they read. Ratios are to
//! the faster of the two in each round; above 1 the manager is faster.

#[path = "../../../file/examples/store/raw.rs"]
mod raw;

use raw::{FILE, Raw, Work};
use std::path::Path;
use std::time::Instant;
use terrace_tests::rounds::{Rounds, spread};
use terrace_tiers::{Buffer, Manager};

const ROUNDS: usize = 5;

type Error = Box<dyn std::error::Error>;

/// Runs a function on so many threads, for the raw loop on threads.
fn each(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

/// Buffers of one size, and the manager's memory.
#[derive(Clone, Copy)]
struct Size {
    title: &'static str,
    bytes: usize,
    memory: u64,
    /// Bytes and requests in flight of the raw loop.
    raw: (usize, usize),
}

const SIZES: [Size; 2] = [
    Size { title: "64 KiB", bytes: 64 << 10, memory: 64 << 20, raw: (64 << 10, 64) },
    Size { title: "64 MiB", bytes: 64 << 20, memory: 256 << 20, raw: (4 << 20, 16) },
];

/// Seconds, and seconds of processor time.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    processor: f64,
}

/// Runs a function; returns its cost.
fn timed(run: impl FnOnce() -> Result<(), Error>) -> Result<Cost, Error> {
    let (begun, before) = (Instant::now(), processor());
    run()?;
    Ok(Cost { wall: begun.elapsed().as_secs_f64(), processor: processor() - before })
}

/// Seconds of processor time that this process has used.
fn processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn write_all(manager: &Manager, size: Size) -> Result<Vec<Buffer>, Error> {
    let mut contents = vec![7; size.bytes];
    let write = |number: u64| -> Result<Buffer, Error> {
        contents[..8].copy_from_slice(&number.to_le_bytes());
        let buffer = manager.allocate(size.bytes as u64)?;
        buffer.write(0, &contents)?;
        Ok(buffer)
    };
    (0..FILE / size.bytes as u64).map(write).collect()
}

fn read_all(buffers: &[Buffer]) -> Result<(), Error> {
    for (number, buffer) in buffers.iter().enumerate() {
        let lease = buffer.lease_best()?;
        assert_eq!(lease[..8], (number as u64).to_le_bytes(), "the bytes that were written");
        std::hint::black_box(crc32fast::hash(&lease));
    }
    Ok(())
}

/// The costs of one round: writes, reads.
fn round(who: &str, home: &Path, raw: &Raw, size: Size) -> Result<[Cost; 2], Error> {
    if who != "manager" {
        let run = |write| {
            let work = Work { write, checked: !write, bytes: size.raw.0 };
            timed(|| if who == "ring" { raw.ring(work, size.raw.1) } else { raw.threads(work) })
        };
        return Ok([run(true)?, run(false)?]);
    }
    let manager = Manager::builder().memory(size.memory).directory_of(home, 3 << 30).build()?;
    let mut buffers = Vec::new();
    let written = timed(|| {
        buffers = write_all(&manager, size)?;
        Ok(())
    })?;
    Ok([written, timed(|| read_all(&buffers))?])
}

fn main() -> Result<(), Error> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let home = tempfile::tempdir_in(directory)?;
    let raw = Raw::new(home.path())?;
    for size in SIZES {
        let tier = home.path().join("tier");
        let measured = Rounds::new(ROUNDS)
            .by_contestant(&mut ["manager", "ring", "threads"], |who, _| round(who, &tier, &raw, size))?;
        for (what, name) in ["written", "leased and read"].into_iter().enumerate() {
            let costs = |who: usize| measured[who].iter().map(move |round: &[Cost; 2]| round[what]);
            let gib = FILE as f64 / f64::from(1 << 30);
            let best = costs(1).zip(costs(2)).map(|(ring, threads)| ring.wall.min(threads.wall));
            let ratios: Vec<f64> = costs(0).zip(best).map(|(ours, raw)| raw / ours.wall).collect();
            let processor: Vec<f64> = costs(0).map(|cost| cost.processor / gib).collect();
            let rates: Vec<f64> = costs(0).map(|cost| gib / cost.wall).collect();
            for (unit, figures) in [("GiB/s", rates), ("of raw", ratios), ("s of processor time a GiB", processor)] {
                let Some(all) = spread(&figures) else { continue };
                println!("{} buffers {name}: {:.2} ({:.2} to {:.2}) {unit}", size.title, all.median, all.min, all.max);
            }
        }
    }
    Ok(())
}
