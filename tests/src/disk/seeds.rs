//! Many seeds, on all cores; what goes wrong is told with the orders that led to it, and how to have it again.
//!
//! Promises upward: a panic, also one in a task that nobody waits for, is the seed's failure; of several the lowest seed's is
//! told. `TERRACE_SEEDS` says how many seeds and `TERRACE_FROM` which comes first, so that many can run in pieces;
//! `TERRACE_SEED` replays one and shows every order.

use super::SimDisk;
use std::cell::RefCell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

/// What went wrong, for people.
pub type Verdict<T = ()> = Result<T, String>;

/// Lines of the log that a failure shows.
const SHOWN: usize = 250;

/// What seeds did, in numbers.
pub trait Counts: Default + Display + Send {
    /// Takes in what others did.
    fn add(&mut self, other: &Self);
}

/// The disks of the seed that runs, for their logs should it fail.
#[derive(Debug, Default)]
pub struct Trace {
    disk: RefCell<Option<Arc<SimDisk>>>,
    /// Logs of the disks before.
    before: RefCell<String>,
    /// Every order is kept.
    whole: bool,
}

impl Trace {
    /// Of the last orders, or of every one.
    pub fn new(whole: bool) -> Self {
        Self { whole, ..Self::default() }
    }

    /// A disk begins.
    pub fn begin(&self, disk: &Arc<SimDisk>) {
        if self.whole {
            disk.keep_log();
        }
        *self.disk.borrow_mut() = Some(Arc::clone(disk));
    }

    /// It ends.
    pub fn end(&self) {
        if let Some(disk) = self.disk.borrow_mut().take()
            && self.whole
        {
            *self.before.borrow_mut() += &format!("{}======== the disk is off\n", disk.log());
        }
    }

    /// What happened, one order a line.
    pub fn lines(&self) -> String {
        let now = self.disk.borrow().as_ref().map(|disk| disk.log()).unwrap_or_default();
        self.before.borrow().clone() + &now
    }
}

thread_local! {
    /// The first panic on this thread. Tasks catch theirs; one that nobody waits for would never be heard of.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
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

/// Runs one case.
///
/// # Errors
/// What went wrong, with the orders that led to it.
pub fn judge(name: &str, trace: &Trace, run: impl FnOnce() -> Verdict) -> Verdict {
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
    let lines = trace.lines();
    let from = lines.lines().count().saturating_sub(if trace.whole { SHOWN } else { 0 });
    let last: String = lines.lines().skip(from).flat_map(|line| [line, "\n"]).collect();
    Err(format!("{name}: {why}\nlast orders:\n{last}"))
}

/// A number that the environment sets.
///
/// # Panics
/// When it is none.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs the seeds that the environment says, one in `share` of them, or `usual` many; `worker` gives what runs one. What they
/// did, and how many they were; nothing when one was replayed.
///
/// # Panics
/// When one fails.
pub fn run_seeds<T: Counts, W>(
    name: &str,
    (usual, share): (u64, u64),
    worker: impl Fn() -> W + Sync,
) -> Option<(T, u64)>
where
    W: FnMut(u64, &Trace, &mut T) -> Verdict,
{
    let run = |work: &mut W, seed: u64, tally: &mut T, whole: bool| {
        let trace = Trace::new(whole);
        let name = format!("TERRACE_SEED={seed} cargo test -p terrace-tests --test {name} seeds");
        judge(&name, &trace, || work(seed, &trace, tally))
    };
    if let Some(seed) = number("TERRACE_SEED") {
        let mut tally = T::default();
        let verdict = run(&mut worker(), seed, &mut tally, true);
        println!("{tally}");
        verdict.unwrap_or_else(|why| panic!("{why}"));
        return None;
    }
    let (seeds, start) = (number("TERRACE_SEEDS").map_or(usual, |all| all / share), Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let first = number("TERRACE_FROM").unwrap_or(0);
    let (next, mut total, mut failure) = (AtomicU64::new(first), T::default(), None);
    let work = || {
        let (mut tally, mut work) = (T::default(), worker());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return (tally, None);
            }
            if let Err(why) = run(&mut work, seed, &mut tally, false) {
                next.store(first + seeds, Ordering::Relaxed);
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
    println!("{total}");
    if let Some((seed, why)) = failure {
        // Once more, with every order.
        let whole = run(&mut worker(), seed, &mut T::default(), true).err();
        panic!("{}", whole.unwrap_or(why));
    }
    println!("{seeds} seeds from {first}: {:.0} a second", seeds as f64 / start.elapsed().as_secs_f64());
    Some((total, seeds))
}
