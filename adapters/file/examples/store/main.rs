//! Benchmarks the store beside raw loops on the same disk, in one run.
//!
//! `cargo run --release -p terrace-file --example store [DIRECTORY [WORD...]]`: the parts whose names have one of the words
//! (`ring 64`, `threads 4096`, `ring durable`, `idle`, `reopen`, and so on), or all.
//!
//! Each round puts and gets a gigabyte in pieces of 64 KiB and of 4 MiB; there are five rounds, which alternate between all ways.
//! The raw loops are io_uring on one thread, with up to 64 and 16 requests in flight, and pread and pwrite on 16 threads. The
//! store serves one caller, and four with 64 and 32 requests in flight together, of which it submits 16 at once. One ratio is to
//! the best raw loop, the other to one that also takes a checksum of its bytes: on a virtual machine a thread of the host copies
//! the disk's bytes, and slows down when the guest reads them. Then come durable puts, processor time when idle, the page cache,
//! and opening a store of a million entries.

mod durable;

use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use terrace_file::{Directory, Disk, EngineKind, Executor, FramePool, Piece, Store, StoreOptions};
use terrace_raw::{Blocks, Cost, Error, Look, RawFile, Work, each, timed};
use terrace_tests::rounds::{Rounds, spread};

const ROUNDS: usize = 5;

/// Bytes to move.
const FILE: u64 = 1 << 30;

/// A store on its disk. The disk is dropped last: its threads run the store's tasks.
struct StoreFixture {
    store: Store,
    frames: FramePool,
    tasks: Executor,
    _disk: Arc<Directory>,
}

impl StoreFixture {
    fn open(path: &Path, kind: EngineKind, cap: u64) -> Result<Self, Error> {
        let (tasks, frames) = (Executor::new(), FramePool::new(384 << 20)?);
        let disk = Arc::new(Directory::open(path, kind, &tasks)?);
        let store = Store::open(Arc::clone(&disk) as Arc<dyn Disk>, &tasks, &frames, StoreOptions::new(cap)).wait()?;
        Ok(Self { store, frames, tasks, _disk: disk })
    }

    /// Puts a gigabyte on `threads` threads, each with `depth` puts in flight.
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

    /// Gets pieces on `threads` threads, each with `depth` gets in flight.
    fn get(&self, pieces: &[Arc<Piece>], threads: usize, depth: usize) {
        let next = AtomicUsize::new(0);
        let begin = || Some(self.store.get(pieces.get(next.fetch_add(1, Ordering::Relaxed))?));
        each(threads, || self.window(depth, begin, |got| drop(got.expect("right bytes"))));
    }

    /// Keeps `depth` futures of `begin` in flight until it returns none; they end in any order, as in the raw loops.
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

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".into());
    let words: Vec<String> = arguments.collect();
    let wanted = |part: String| words.is_empty() || words.iter().any(|word| part.contains(word));
    let home = tempfile::tempdir_in(directory)?;
    let raw = RawFile::create(&home.path().join("raw"), FILE, 256 << 20)?;
    println!("raw: {}", raw.access());
    for (name, kind, sides) in [
        ("ring", EngineKind::IoUring, [RING_64K, RING_4M]),
        ("threads", EngineKind::Threads, [THREADS_64K, THREADS_4M]),
    ] {
        let fixture = StoreFixture::open(&home.path().join(name), kind, 3 << 30)?;
        for sides in sides {
            if wanted(format!("{name} {}", sides.bytes >> 10)) {
                engine(&fixture, &raw, name, sides)?;
            }
        }
        if wanted(format!("{name} durable")) {
            durable::puts(&fixture)?;
        }
        if wanted("idle".into()) && kind == EngineKind::IoUring {
            durable::idle_and_cache(&fixture)?;
        }
    }
    match wanted("reopen".into()) {
        true => durable::reopen(&home.path().join("many")),
        false => Ok(()),
    }
}

/// A comparison at one size of pieces.
#[derive(Clone, Copy)]
struct Sides {
    bytes: usize,
    /// Requests in flight of the raw ring loops; empty for threads, which have one each.
    depths: &'static [usize],
    /// Threads that call the store, and requests in flight of each.
    callers: usize,
    own: usize,
}

const RING_64K: Sides = Sides { bytes: 64 << 10, depths: &[16, 32, 64], callers: 1, own: 64 };
const RING_4M: Sides = Sides { bytes: 4 << 20, depths: &[4, 8, 16], callers: 1, own: 16 };
const THREADS_64K: Sides = Sides { bytes: 64 << 10, depths: &[], callers: 4, own: 16 };
const THREADS_4M: Sides = Sides { bytes: 4 << 20, depths: &[], callers: 4, own: 8 };

/// How a gigabyte is put or got.
#[derive(Clone, Copy)]
enum Way {
    /// A raw loop: requests in flight of the ring, if it is one, and whether it takes checksums.
    Raw(Option<usize>, bool),
    Store,
}

/// Compares one engine at one size.
fn engine(fixture: &StoreFixture, raw: &RawFile, name: &str, sides: Sides) -> Result<(), Error> {
    let Sides { bytes, depths, callers, own } = sides;
    let plain = if depths.is_empty() { vec![None] } else { depths.iter().copied().map(Some).collect() };
    let best = plain.last().copied().flatten();
    let ways = plain.into_iter().map(|depth| Way::Raw(depth, false)).chain([Way::Raw(best, true), Way::Store]);
    let ways: Vec<Way> = ways.collect();
    let mut contestants: Vec<(bool, Way)> =
        [true, false].into_iter().flat_map(|write| ways.iter().map(move |&way| (write, way))).collect();
    let mut pieces = Vec::new();
    // The first round only warms up.
    let rounds = Rounds { warm_up: 1, ..Rounds::new(ROUNDS) };
    let (blocks, order) = (Blocks::new(bytes, 0), (0..FILE / bytes as u64).collect::<Vec<_>>());
    let times = rounds.by_contestant(&mut contestants, |&mut (write, way), _| {
        let work = |checked| {
            let look = if checked { Look::Checksum } else { Look::Nothing };
            Work { write, look, blocks: &blocks, order: &order }
        };
        let ((), time) = timed(|| {
            match way {
                Way::Raw(Some(depth), checked) => drop(raw.ring(work(checked), depth)?),
                Way::Raw(None, checked) => drop(raw.threads(work(checked))?),
                Way::Store if write => pieces = fixture.put(bytes, callers, own),
                Way::Store => fixture.get(&pieces, callers, own),
            }
            Ok(())
        })?;
        if matches!((write, way), (false, Way::Store)) {
            // Freed between the measurements.
            pieces.clear();
        }
        Ok::<_, Error>(time)
    })?;
    for (times, what) in times.chunks(ways.len()).zip(["put", "get"]) {
        let [plain @ .., checked, store] = times else { continue };
        let (base, base_cpu) =
            plain.iter().map(|times| speed(times)).max_by(|a, b| a.0.total_cmp(&b.0)).ok_or("a raw loop")?;
        let ((checked, checked_cpu), (ours, our_cpu)) = (speed(checked), speed(store));
        println!(
            "{name:8} {:5} KiB {what}  raw {base:5.2} GiB/s {base_cpu:5.2} CPU-s/GiB   checked {checked:5.2} {checked_cpu:5.2}   \
             store {ours:5.2} {our_cpu:5.2}   over raw {:5.2}, over checked {:5.2}",
            bytes >> 10,
            ours / base,
            ours / checked,
        );
    }
    Ok(())
}

/// GiB a second in the median round, and processor seconds for a GiB.
fn speed(costs: &[Cost]) -> (f64, f64) {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let walls: Vec<f64> = costs.iter().map(|cost| seconds(cost.wall_ns)).collect();
    let gib = FILE as f64 / f64::from(1 << 30);
    let median = spread(&walls).map_or(f64::NAN, |all| all.median);
    (gib / median, costs.iter().map(|cost| seconds(cost.cpu_ns)).sum::<f64>() / ROUNDS as f64 / gib)
}
