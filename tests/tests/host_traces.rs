//! Recorded programs on the host allocator, on four threads at once: each block stamped, owned by one thread, freed by
//! whichever the model says; and the test itself lives on that allocator too.
//!
//! The model: every act of a recording is done by the thread that its number and its turn choose, so that blocks wander; a
//! turn ends when all have done their part. What is live is known exactly, with its size and its stamp.

use std::alloc::{GlobalAlloc, Layout};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use terrace::recording::Reader;
use terrace_core::event::Kind;
use terrace_host::{Global, stats, trim};

#[global_allocator]
static A: Global = Global::new();

const KEPT: [&str; 3] = ["malloc_lua_embedded", "malloc_python_ast", "malloc_rustfmt"];
const MORE: [&str; 6] =
    ["malloc_cc1plus", "malloc_python_http", "malloc_redis", "malloc_rg", "malloc_sqlite", "malloc_torch_host"];
const THREADS: usize = 4;
/// Acts between two meetings of the threads.
const TURN: usize = 2000;
/// Acts of a recording that are replayed at most: a minute's worth of the longest.
const ACTS: usize = 400_000;
/// Larger blocks are left out: their contents alone would take all the time.
const LARGEST: u64 = 64 << 20;

/// One act: the block's number, and its new layout; `None` when it is freed.
type Act = (usize, Option<Layout>);

fn read(path: &Path) -> Vec<Act> {
    let file = File::open(path).expect("the trace is there");
    let (mut acts, mut live) = (Vec::new(), Vec::<bool>::new());
    for entry in Reader::new(&path.display().to_string(), file).expect("a trace").take(ACTS) {
        let entry = entry.expect("well formed");
        let Some(slot) = entry.slot.map(|slot| slot as usize) else { continue };
        live.resize(live.len().max(slot + 1), false);
        let size = match entry.event.kind {
            Kind::Allocate | Kind::Reallocate if entry.event.bytes <= LARGEST => entry.event.bytes as usize,
            Kind::Allocate | Kind::Reallocate | Kind::Free => 0,
            _ => continue,
        };
        if size > 0 || live[slot] {
            live[slot] = size > 0;
            let layout = Layout::from_size_align(size, entry.event.align.max(1) as usize).expect("a layout");
            acts.push((slot, (size > 0).then_some(layout)));
        }
    }
    acts
}

/// A live block.
struct Held {
    at: *mut u8,
    layout: Layout,
    stamp: u64,
}

// SAFETY: a block belongs to whoever has the value.
unsafe impl Send for Held {}

impl Held {
    fn new(layout: Layout, stamp: u64) -> Self {
        // SAFETY: the size is not 0.
        let at = unsafe { A.alloc(layout) };
        assert!(!at.is_null() && at.addr() % layout.align() == 0);
        let held = Self { at, layout, stamp };
        held.each_word(|word| {
            // SAFETY: inside the block.
            unsafe { word.write_unaligned(stamp) };
        });
        held
    }

    /// First and last word of the block, and one of every page: what another block's owner would hit.
    fn each_word(&self, mut each: impl FnMut(*mut u64)) {
        let Some(last) = self.layout.size().checked_sub(8) else { return };
        // Words that end before the last one begins.
        (0..last.saturating_sub(7))
            .step_by(4096)
            .chain([last])
            .for_each(|offset| each(self.at.wrapping_add(offset).cast()));
    }

    fn check(&self, upto: usize) {
        let end = self.at.addr() + upto;
        self.each_word(|word| {
            // SAFETY: inside the block, written by `new`.
            let found = unsafe { word.read_unaligned() };
            assert!(found == self.stamp || word.addr() + 8 > end, "somebody wrote into a live block");
        });
    }

    fn resize(mut self, layout: Layout, stamp: u64) -> Self {
        self.check(self.layout.size());
        let kept = layout.size().min(self.layout.size());
        // SAFETY: our block, of this layout; sizes are not 0.
        self.at = unsafe { A.realloc(self.at, self.layout, layout.size()) };
        assert!(!self.at.is_null());
        // The last word of the old size may be cut, or lie where the new one has none; the pages' first words stay.
        (0..kept.saturating_sub(15)).step_by(4096).for_each(|offset| {
            // SAFETY: inside both the old and the new block.
            let found = unsafe { self.at.wrapping_add(offset).cast::<u64>().read_unaligned() };
            assert_eq!(found, self.stamp, "realloc lost what was in the block");
        });
        self.layout = Layout::from_size_align(layout.size(), self.layout.align()).expect("a layout");
        self.stamp = stamp;
        self.each_word(|word| {
            // SAFETY: inside the block.
            unsafe { word.write_unaligned(stamp) };
        });
        self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.check(self.layout.size());
        // SAFETY: our block, of this layout.
        unsafe { A.dealloc(self.at, self.layout) };
    }
}

/// Replays a recording on all threads. In a turn, the acts of one block are done by one thread, in their order; in another
/// turn by another thread.
fn replay(acts: &[Act]) -> usize {
    let slots = acts.iter().map(|act| act.0 + 1).max().unwrap_or(0);
    let table: Vec<Mutex<Option<Held>>> = (0..slots).map(|_| Mutex::new(None)).collect();
    let barrier = Barrier::new(THREADS);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, barrier, done) = (&table, &barrier, &done);
            scope.spawn(move || {
                for (turn, part) in acts.chunks(TURN).enumerate() {
                    for (at, &(slot, layout)) in part.iter().enumerate() {
                        if (slot / 7 + turn * 3) % THREADS != thread {
                            continue;
                        }
                        let mut place = table[slot].lock().unwrap_or_else(PoisonError::into_inner);
                        let stamp = (turn * TURN + at) as u64 * 0x9e37_79b9 + 1;
                        let before = place.take();
                        *place = match (before, layout) {
                            (Some(held), Some(layout)) => Some(held.resize(layout, stamp)),
                            (None, Some(layout)) => Some(Held::new(layout, stamp)),
                            (_, None) => None,
                        };
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            });
        }
    });
    done.into_inner()
}

fn run(path: &Path) {
    let acts = read(path);
    assert!(acts.len() > 1000, "{} is a recording", path.display());
    assert_eq!(replay(&acts), acts.len());
}

#[test]
fn recorded_programs_run_on_four_threads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    KEPT.iter().for_each(|name| run(&folder.join(format!("{name}.csv.zst"))));
    // All that the replays held is free: what stays is the test's own, and what blocks of other threads' caches keep.
    trim();
    let stats = stats();
    assert!(stats.purged > 0 && stats.reserved < stats.peak_reserved, "{stats}");
}

#[test]
fn larger_recordings_run_on_four_threads() {
    let Some(folder) = std::env::var_os("TERRACE_TRACES") else {
        println!("SKIP larger_recordings_run_on_four_threads: set TERRACE_TRACES");
        return;
    };
    MORE.iter().for_each(|name| run(&Path::new(&folder).join(format!("{name}.csv.zst"))));
}
