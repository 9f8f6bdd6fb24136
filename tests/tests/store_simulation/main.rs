//! The store on a simulated disk: random programs with faults, power cuts and kills, held against a map.
//!
//! | file | what it is |
//! | --- | --- |
//! | `program` | one seed: a random program with faults, power cuts and kills |
//! | `scenario`, `completeness` | one short scenario with every fault and every power cut at every order |
//! | `session` | a store whose operations are begun, driven and judged |
//! | `reopen` | power cuts, kills, restarts, and what is found then |
//! | `model` | what a store must hold |
//! | `excuse` | which errors are just |
//! | `content`, `tally` | what pieces hold; what ran |
//!
//! `TERRACE_SEEDS` says how many seeds, `TERRACE_SEED` replays one and shows every order. What ran is counted, printed and
//! asserted, so that the simulation cannot go blind.
#![cfg(target_os = "linux")]

mod completeness;
mod content;
mod excuse;
mod model;
mod program;
mod reopen;
mod scenario;
mod session;
mod tally;

use session::Trace;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tally::Tally;
use terrace_file::Frames;

/// Seeds of a usual run: some seconds with the dev profile.
const SEEDS: u64 = 1000;

/// Lines of the log that a failure shows.
const SHOWN: usize = 250;

/// Room for frames: two of 256 KiB for the log, and some of 16 KiB for what is under way.
const FRAMES: usize = 4 << 20;

thread_local! {
    /// The first panic on this thread. Tasks catch theirs; one that nobody waits for would never be heard of.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Has every panic noted, also of tasks.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let _ = PANIC.try_with(|panic| _ = panic.borrow_mut().get_or_insert_with(|| info.to_string()));
            usual(info);
        }));
    });
}

/// Runs one case; what goes wrong is told with the orders that led to it, and how to have it again.
fn judge(name: &str, trace: &Trace, run: impl FnOnce() -> session::Verdict) -> Result<(), String> {
    note_panics();
    PANIC.with(|panic| *panic.borrow_mut() = None);
    let verdict = catch_unwind(AssertUnwindSafe(run));
    let panicked = PANIC.with(|panic| panic.borrow_mut().take());
    let why = match (verdict, panicked) {
        (_, Some(panic)) => format!("a panic: {panic}"),
        (Ok(Ok(())), None) => return Ok(()),
        (Ok(Err(why)), None) => why,
        (Err(_), None) => "a panic".into(),
    };
    let log = trace.disk.borrow().as_ref().map(|disk| disk.log()).unwrap_or_default();
    let lines = trace.before.borrow().clone() + &log;
    let from = lines.lines().count().saturating_sub(if trace.whole { SHOWN } else { 0 });
    let last: String = lines.lines().skip(from).flat_map(|line| [line, "\n"]).collect();
    Err(format!("{name}: {why}\nlast orders:\n{last}"))
}

fn frames() -> Frames {
    Frames::new(FRAMES).expect("a mapping")
}

fn run_seed(seed: u64, frames: &Frames, tally: &mut Tally, whole: bool) -> Result<(), String> {
    let trace = Trace { whole, ..Trace::default() };
    let name = format!("TERRACE_SEED={seed} cargo test -p terrace-tests --test store_simulation seeds");
    judge(&name, &trace, || program::run(seed, frames, tally, &trace))
}

/// All seeds, on all cores; the failure of the lowest seed that failed.
fn run_seeds(seeds: u64) -> (Tally, Option<(u64, String)>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let (next, mut total, mut failure) = (AtomicU64::new(0), Tally::default(), None);
    let work = || {
        let (mut tally, frames) = (Tally::default(), frames());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return (tally, None);
            }
            if let Err(why) = run_seed(seed, &frames, &mut tally, false) {
                next.store(seeds, Ordering::Relaxed);
                return (tally, Some((seed, why)));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (tally, failed) = worker.join().expect("panics are caught");
            total.add(&tally);
            failure = [failure.take(), failed].into_iter().flatten().min_by_key(|(seed, _)| *seed);
        }
    });
    (total, failure)
}

#[test]
fn seeds() {
    if let Some(seed) = number("TERRACE_SEED") {
        let mut tally = Tally::default();
        let verdict = run_seed(seed, &frames(), &mut tally, true);
        println!("{tally}");
        return verdict.unwrap_or_else(|why| panic!("{why}"));
    }
    let (seeds, start) = (number("TERRACE_SEEDS").unwrap_or(SEEDS), Instant::now());
    let (tally, failure) = run_seeds(seeds);
    println!("{tally}\n{:.0} seeds/s", tally.seeds as f64 / start.elapsed().as_secs_f64());
    if let Some((seed, why)) = failure {
        // Once more, with every order.
        let whole = run_seed(seed, &frames(), &mut Tally::default(), true).err();
        panic!("{}", whole.unwrap_or(why));
    }
    tally.is_broad(seeds >= SEEDS).unwrap_or_else(|blind| panic!("the simulation has gone blind: {blind}"));
}
