//! The store beside raw loops on the same disk, in one run.
//!
//! `cargo run --release -p terrace-file --example store [DIRECTORY [WORD...]]`: the parts whose names have one of the words
//! (`ring 64`, `threads 4096`, `ring durable`, `idle`, `reopen`, and so on), or all.
//!
//! A gigabyte, put and got whole in pieces of 64 KiB (16 at once) and of 4 MiB (4 at once), five rounds in which every way has
//! its turn. The raw loops are io_uring on one thread, and pread and pwrite on 16 threads. One ratio is over the better of the
//! raw loop at this depth and at twice the depth; the other over the raw loop that takes a checksum of its bytes too: a disk of
//! a virtual machine is a thread of the host's that copies, and slower when its bytes are looked at. Then durable puts,
//! processor time when idle, the page cache, and opening a store of a million entries.

mod durable;
mod raw;

use futures_util::stream::{FuturesUnordered, StreamExt};
use raw::{FILE, Raw, Work};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use terrace_file::{Directory, Disk, EngineKind, Frames, Piece, Store, StoreOptions, Tasks};

const ROUNDS: usize = 5;

/// Raw at this depth and at twice the depth, raw with checksums, and the store.
const WAYS: usize = 4;

type Error = Box<dyn std::error::Error>;

/// A store on its disk. The disk last: the store's tasks run on its threads.
struct Ground {
    store: Store,
    frames: Frames,
    tasks: Tasks,
    _disk: Arc<Directory>,
}

impl Ground {
    fn open(path: &Path, kind: EngineKind, cap: u64) -> Result<Self, Error> {
        let (tasks, frames) = (Tasks::new(), Frames::new(384 << 20)?);
        let disk = Arc::new(Directory::open(path, kind, &tasks)?);
        let store = Store::open(Arc::clone(&disk) as Arc<dyn Disk>, &tasks, &frames, StoreOptions::new(cap)).wait()?;
        Ok(Self { store, frames, tasks, _disk: disk })
    }

    /// Puts a gigabyte from `threads` threads, each with `depth` puts under way.
    fn put(&self, bytes: usize, threads: usize, depth: usize) -> Vec<Arc<Piece>> {
        let (next, pieces) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
        each(threads, || {
            let spare = RefCell::new(Vec::new());
            let begin = || {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                let frame = || self.frames.take(bytes).expect("room");
                (piece < FILE / bytes as u64).then(|| {
                    let mut frame = spare.borrow_mut().pop().unwrap_or_else(frame);
                    frame[..8].copy_from_slice(&piece.to_le_bytes());
                    let put = self.store.put(frame, bytes);
                    async move { (piece, put.await) }
                })
            };
            self.window(depth, begin, |(piece, put)| {
                pieces.lock().expect("no panic").insert(piece, put.result.expect("room"));
                spare.borrow_mut().extend(put.frame);
            });
        });
        pieces.into_inner().expect("no panic").into_values().collect()
    }

    /// Gets pieces on `threads` threads, each with `depth` gets under way.
    fn get(&self, pieces: &[Arc<Piece>], threads: usize, depth: usize) {
        let next = AtomicUsize::new(0);
        let begin = || Some(self.store.get(pieces.get(next.fetch_add(1, Ordering::Relaxed))?));
        each(threads, || self.window(depth, begin, |got| drop(got.expect("right bytes"))));
    }

    /// Keeps `depth` of what `begin` begins under way until it begins nothing more; they end in any order, as in the raw loops.
    fn window<F: Future>(&self, depth: usize, begin: impl Fn() -> Option<F>, end: impl Fn(F::Output)) {
        self.tasks.block_on(|| async {
            let mut under_way = FuturesUnordered::new();
            loop {
                let room = depth - under_way.len();
                under_way.extend(std::iter::from_fn(&begin).take(room));
                match under_way.next().await {
                    Some(done) => end(done),
                    None => return,
                }
            }
        });
    }
}

fn each(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".into());
    let words: Vec<String> = arguments.collect();
    let wanted = |part: String| words.is_empty() || words.iter().any(|word| part.contains(word));
    let home = tempfile::tempdir_in(directory)?;
    let raw = Raw::new(home.path())?;
    for (name, kind, threads) in [("ring", EngineKind::Ring, 1), ("threads", EngineKind::Threads, raw::THREADS)] {
        let ground = Ground::open(&home.path().join(name), kind, 3 << 30)?;
        for (bytes, depth) in [(64 << 10, 16), (4 << 20, 4)] {
            if wanted(format!("{name} {}", bytes >> 10)) {
                engine(&ground, &raw, (name, threads), (bytes, depth))?;
            }
        }
        if wanted(format!("{name} durable")) {
            durable::puts(&ground)?;
        }
        if wanted("idle".into()) && kind == EngineKind::Ring {
            durable::idle_and_cache(&ground)?;
        }
    }
    match wanted("reopen".into()) {
        true => durable::reopen(&home.path().join("many")),
        false => Ok(()),
    }
}

/// One engine at one size.
fn engine(
    ground: &Ground,
    raw: &Raw,
    (name, threads): (&str, usize),
    (bytes, depth): (usize, usize),
) -> Result<(), Error> {
    let own = if threads == 1 { 2 * depth } else { 1 };
    let mut times = [const { Vec::new() }; 2 * WAYS];
    for round in 0..=ROUNDS {
        let mut timed = |way: usize, work: &mut dyn FnMut() -> Result<(), Error>| {
            let (begun, before) = (Instant::now(), cpu());
            work()?;
            // The first round touches everything once.
            if round > 0 {
                times[way].push((begun.elapsed().as_secs_f64(), cpu() - before));
            }
            Ok::<_, Error>(())
        };
        let mut pieces = Vec::new();
        for (way, write) in [(0, true), (WAYS, false)] {
            let one = |depth, checked| match (threads, Work { write, checked, bytes }) {
                (1, work) => raw.ring(work, depth),
                (_, work) => raw.threads(work),
            };
            timed(way, &mut || one(depth, false))?;
            timed(way + 1, &mut || one(2 * depth, false))?;
            timed(way + 2, &mut || one(2 * depth, true))?;
            timed(way + 3, &mut || {
                match write {
                    true => pieces = ground.put(bytes, threads, own),
                    false => ground.get(&pieces, threads, own),
                }
                Ok(())
            })?;
        }
    }
    for (way, what) in [(0, "put"), (WAYS, "get")] {
        let median = |way: usize| {
            let mut sorted: Vec<f64> = times[way].iter().map(|time| time.0).collect();
            sorted.sort_by(f64::total_cmp);
            FILE as f64 / f64::from(1 << 30) / sorted[ROUNDS / 2]
        };
        let cpu = |way: usize| times[way].iter().map(|time| time.1).sum::<f64>() / ROUNDS as f64;
        let (base, checked, ours) = (median(way).max(median(way + 1)), median(way + 2), median(way + 3));
        println!(
            "{name:8} {:5} KiB {what}  raw {base:5.2} GiB/s {:5.2} CPU-s/GiB   checked {checked:5.2} {:5.2}   \
             store {ours:5.2} {:5.2}   over raw {:5.2}, over checked {:5.2}",
            bytes >> 10,
            cpu(way),
            cpu(way + 2),
            cpu(way + 3),
            ours / base,
            ours / checked,
        );
    }
    Ok(())
}

/// Seconds of processor time of this process so far.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
