//! Verified puts and gets by each engine, beside the same I/O in a raw loop without checksums.
//!
//! `cargo run --release -p terrace-file --example engines [DIRECTORY]`
//!
//! One file of a gigabyte, written and read whole in pieces of 64 KiB (16 at once) and of 4 MiB (4 at once), five rounds in
//! which every way has its turn. The raw loops are io_uring on one thread, and pread and pwrite on 16 threads.

use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::Instant;
use terrace_file::{Completion, Engine, Frame, Frames, Op, Request, Ring, Sink, Slab, perform};

const FILE: u64 = 1 << 30;
const ROUNDS: usize = 5;
const THREADS: u64 = 16;

type Error = Box<dyn std::error::Error>;

struct Bench {
    slab: Arc<Slab>,
    frames: Frames,
    /// Checksum of every piece, as it was written last.
    sums: Vec<AtomicU64>,
}

fn main() -> Result<(), Error> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let path = std::path::Path::new(&directory).join("terrace-engines.tmp");
    let _ = std::fs::remove_file(&path);
    let slab = Arc::new(Slab::create(&path, FILE)?);
    println!("{}: direct {}, alignment {}", slab.name(), slab.is_direct(), slab.align());
    let sums = (0..FILE >> 16).map(|_| AtomicU64::new(0)).collect();
    let bench = Arc::new(Bench { slab, frames: Frames::new(256 << 20)?, sums });
    for (bytes, depth) in [(64 << 10, 16), (4 << 20, 4)] {
        let mut times = [const { Vec::new() }; 8];
        for round in 0..=ROUNDS {
            for (way, times) in times.iter_mut().enumerate() {
                let op = if way % 2 == 0 { Op::Write } else { Op::Read };
                let (begun, before) = (Instant::now(), cpu());
                match way / 2 {
                    0 => raw_ring(&bench, op, bytes, depth)?,
                    1 => engine(&bench, op, bytes, depth)?,
                    2 => threads(&bench, op, bytes, false)?,
                    _ => threads(&bench, op, bytes, true)?,
                }
                // The first round touches everything once.
                if round > 0 {
                    times.push((begun.elapsed().as_secs_f64(), cpu() - before));
                }
            }
        }
        let names = [
            "raw ring put",
            "raw ring get",
            "ring put",
            "ring get",
            "raw threads put",
            "raw threads get",
            "threads put",
            "threads get",
        ];
        for times in &mut times {
            let cpu: f64 = times.iter().map(|(_, cpu)| cpu).sum::<f64>() / ROUNDS as f64;
            times.sort_by(|a, b| a.0.total_cmp(&b.0));
            times[0].1 = cpu;
        }
        for (way, name) in names.iter().enumerate() {
            let rate = |way: usize| FILE as f64 / (1u64 << 30) as f64 / times[way][ROUNDS / 2].0;
            let base = if way % 4 >= 2 { rate(way) / rate(way - 2) } else { 1.0 };
            println!(
                "{:4} KiB {name:16} {:6.2} GiB/s {base:5.2} {:5.2} CPU-s/GiB",
                bytes >> 10,
                rate(way),
                times[way][0].1
            );
        }
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Seconds of processor time of this process so far.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn fill(frame: &mut Frame, piece: u64) {
    frame[..8].copy_from_slice(&piece.to_le_bytes());
}

fn raw_ring(bench: &Bench, op: Op, bytes: usize, depth: usize) -> Result<(), Error> {
    let mut ring = IoUring::new(64)?;
    let mut frames: Vec<Frame> = (0..depth).map(|_| bench.frames.take(bytes)).collect::<Result<_, _>>()?;
    let (pieces, mut next, mut done) = (FILE / bytes as u64, 0, 0);
    let file = types::Fd(bench.slab.as_fd().as_raw_fd());
    let mut free: Vec<usize> = (0..depth).collect();
    while done < pieces {
        while let Some(at) = (next < pieces).then(|| free.pop()).flatten() {
            let frame = &mut frames[at];
            if op == Op::Write {
                fill(frame, next);
            }
            let offset = next * bytes as u64;
            let entry = match op {
                Op::Read => opcode::Read::new(file, frame.as_mut_ptr(), bytes as u32).offset(offset).build(),
                _ => opcode::Write::new(file, frame.as_ptr(), bytes as u32).offset(offset).build(),
            };
            // SAFETY: the frame stays until the completion.
            unsafe { ring.submission().push(&entry.user_data(at as u64)) }?;
            next += 1;
        }
        ring.submit_and_wait(1)?;
        for completion in ring.completion() {
            assert_eq!(completion.result(), bytes as i32);
            free.push(completion.user_data() as usize);
            done += 1;
        }
    }
    Ok(())
}

/// Answers each completion with the next request, on the engine's thread, as a store does.
struct Next {
    bench: Arc<Bench>,
    op: Op,
    bytes: usize,
    engine: OnceLock<Weak<Ring>>,
    /// Pieces begun and done.
    begun: AtomicU64,
    done: Mutex<u64>,
    all: Condvar,
}

impl Next {
    /// The next piece in this frame, if there is one.
    fn next(&self, mut frame: Frame) -> Option<Request> {
        let piece = self.begun.fetch_add(1, Ordering::Relaxed);
        if piece >= FILE / self.bytes as u64 {
            return None;
        }
        if self.op == Op::Write {
            fill(&mut frame, piece);
            self.bench.sums[piece as usize].store(u64::from(crc32fast::hash(&frame)), Ordering::Relaxed);
        }
        let (slab, offset) = (Arc::clone(&self.bench.slab), piece * self.bytes as u64);
        Some(Request { token: piece, op: self.op, slab, offset, bytes: self.bytes, frame: Some(frame) })
    }
}

impl Sink for Next {
    fn completed(&self, mut completion: Completion) {
        verify(&self.bench, self.op, self.bytes, &completion);
        let next = completion.frame.take().and_then(|frame| self.next(frame));
        if let (Some(next), Some(engine)) = (next, self.engine.get().and_then(Weak::upgrade)) {
            engine.submit(vec![next]);
        }
        let mut done = self.done.lock().expect("no panic");
        *done += 1;
        if *done == FILE / self.bytes as u64 {
            self.all.notify_one();
        }
    }
}

fn engine(bench: &Arc<Bench>, op: Op, bytes: usize, depth: usize) -> Result<(), Error> {
    let (begun, done, all, engine) = (AtomicU64::new(0), Mutex::new(0), Condvar::new(), OnceLock::new());
    let next = Arc::new(Next { bench: Arc::clone(bench), op, bytes, engine, begun, done, all });
    let ring = Arc::new(Ring::new(depth as u32, Arc::clone(&next) as Arc<dyn Sink>)?);
    let _ = next.engine.set(Arc::downgrade(&ring));
    let frames: Vec<Frame> = (0..2 * depth).map(|_| bench.frames.take(bytes)).collect::<Result<_, _>>()?;
    ring.submit(frames.into_iter().filter_map(|frame| next.next(frame)).collect());
    let mut done = next.done.lock().expect("no panic");
    while *done < FILE / bytes as u64 {
        done = next.all.wait(done).expect("no panic");
    }
    Ok(())
}

fn verify(bench: &Bench, op: Op, bytes: usize, completion: &Completion) {
    assert_eq!(completion.result, Ok(bytes));
    if let (Op::Read, Some(frame)) = (op, &completion.frame) {
        let sum = bench.sums[completion.token as usize].load(Ordering::Relaxed);
        assert_eq!(u64::from(crc32fast::hash(frame)), sum);
    }
}

fn threads(bench: &Bench, op: Op, bytes: usize, verified: bool) -> Result<(), Error> {
    let next = AtomicU64::new(0);
    let pieces = FILE / bytes as u64;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut frame = Some(bench.frames.take(bytes).expect("there is room"));
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mut own) = (piece < pieces).then(|| frame.take()).flatten() else { return };
                    if op == Op::Write {
                        fill(&mut own, piece);
                    }
                    let offset = piece * bytes as u64;
                    if !verified {
                        let moved = match op {
                            Op::Read => rustix::io::pread(&*bench.slab, &mut own[..], offset),
                            _ => rustix::io::pwrite(&*bench.slab, &own, offset),
                        };
                        assert_eq!(moved, Ok(bytes));
                        frame = Some(own);
                        continue;
                    }
                    if op == Op::Write {
                        bench.sums[piece as usize].store(u64::from(crc32fast::hash(&own)), Ordering::Relaxed);
                    }
                    let slab = Arc::clone(&bench.slab);
                    let completion = perform(Request { token: piece, op, slab, offset, bytes, frame: Some(own) });
                    verify(bench, op, bytes, &completion);
                    frame = completion.frame;
                }
            });
        }
    });
    Ok(())
}
