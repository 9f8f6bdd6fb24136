//! Pools of objects and arrays beside those that programs have today.
//!
//! Every round runs each subject once, in turn, so that a slow moment of the machine meets all of them; the table has medians. What one
//! thread does costs the time of a get, a write to the object, and a return; two threads do it at once, each as often.

use allocator_api2::vec::Vec as VecIn;
use clap::Parser;
use comfy_table::Table;
use crossbeam_queue::ArrayQueue;
use std::hint::black_box;
use std::time::Instant;
use terrace::buffers::{ArrayPool, ObjectPool};

/// Beside other pools: `cargo run --release -p terrace-benches --example pools -- --rounds 11 --csv pools.csv`
#[derive(Parser)]
struct Options {
    /// Times that each subject is measured.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Gets and returns of each measurement; arrays that come eight at a time, a tenth of it.
    #[arg(long, default_value_t = 2_000_000)]
    calls: u32,
    /// File for every measurement: subject, round, nanoseconds.
    #[arg(long)]
    csv: Option<std::path::PathBuf>,
}

/// What the object pools keep.
type Object = Box<[u8; 64]>;

fn object() -> Object {
    Box::new([0; 64])
}

/// A pool as programs write it on a queue: the guard pushes its object back.
struct Queued<'a>(&'a ArrayQueue<Object>, Option<Object>);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if let Some(object) = self.1.take() {
            let _ = self.0.push(object);
        }
    }
}

/// What `opool` asks for.
struct Objects;

impl opool::PoolAllocator<Object> for Objects {
    fn allocate(&self) -> Object {
        object()
    }
}

/// One subject: its name, and what it does so many times.
struct Subject<'a> {
    name: &'static str,
    threads: usize,
    scale: u32,
    run: Box<dyn Fn(u32) + Sync + 'a>,
}

/// Keeps the compiler from leaving out what makes this.
fn touch<T>(made: &mut T) {
    black_box(made);
}

/// Runs `each` so many times.
fn times(calls: u32, mut each: impl FnMut()) {
    (0..calls).for_each(|_| each());
}

const BYTES: usize = 64 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let ours = ObjectPool::builder(object).most(64).build()?;
    let with_hooks = ObjectPool::builder(object).most(64).reset(|object| object[0] = 0).validate(|_| true).build()?;
    let queue = ArrayQueue::new(64);
    let opool = opool::Pool::new(64, Objects);
    let linear = lockfree_object_pool::LinearObjectPool::<Object>::new(object, |_| {});
    let spin = lockfree_object_pool::SpinLockObjectPool::<Object>::new(object, |_| {});
    let mutex = lockfree_object_pool::MutexObjectPool::<Object>::new(object, |_| {});
    let arrays = ArrayPool::<u8>::new();
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    macro_rules! objects {
        ($name:literal, $get:expr) => {
            for threads in [1, 2] {
                let run = |calls| {
                    times(calls, || {
                        let mut object = $get;
                        black_box(&mut **object)[0] = 1;
                    })
                };
                subjects.push(Subject { name: $name, threads, scale: 1, run: Box::new(run) });
            }
        };
    }
    objects!("terrace", ours.try_get().expect("64 are enough"));
    objects!("terrace, reset and validate", with_hooks.try_get().expect("64 are enough"));
    objects!("terrace, owned guard", ours.try_get_owned().expect("64 are enough"));
    objects!("ArrayQueue", QueuedRef(Queued(&queue, Some(queue.pop().unwrap_or_else(object)))));
    objects!("opool", opool.get());
    objects!("lockfree-object-pool, linear", linear.pull());
    objects!("lockfree-object-pool, spin lock", spin.pull());
    objects!("lockfree-object-pool, mutex", mutex.pull());
    macro_rules! arrays {
        ($name:literal, $scale:literal, $make:expr) => {
            let run = |calls| times(calls, || touch(&mut $make));
            subjects.push(Subject { name: $name, threads: 1, scale: $scale, run: Box::new(run) });
        };
    }
    /// A vector with its first byte touched.
    macro_rules! touched {
        ($vec:expr) => {{
            let mut vec = $vec;
            vec.push(black_box(1_u8));
            vec
        }};
    }
    /// A rented array with its first byte touched.
    macro_rules! rented {
        () => {{
            let mut array = arrays.rent(BYTES).expect("memory is enough");
            array[0] = black_box(1);
            array
        }};
    }
    arrays!("array pool, 64 KiB", 1, rented!());
    arrays!("Vec on terrace, 64 KiB", 1, touched!(VecIn::<u8, _>::with_capacity_in(BYTES, terrace::Global::new())));
    arrays!("Vec on the system's malloc, 64 KiB", 1, touched!(Vec::<u8>::with_capacity(BYTES)));
    arrays!("array pool, 8 x 64 KiB", 10, std::array::from_fn::<_, 8, _>(|_| rented!()));
    arrays!(
        "Vec on terrace, 8 x 64 KiB",
        10,
        std::array::from_fn::<_, 8, _>(|_| touched!(VecIn::<u8, _>::with_capacity_in(BYTES, terrace::Global::new())))
    );
    arrays!(
        "Vec on the system's malloc, 8 x 64 KiB",
        10,
        std::array::from_fn::<_, 8, _>(|_| touched!(Vec::<u8>::with_capacity(BYTES)))
    );
    let measured = measure(&subjects, &options);
    report(&subjects, &measured);
    if let Some(path) = options.csv {
        let mut text = String::from("subject,threads,round,nanoseconds\n");
        for (subject, rounds) in subjects.iter().zip(&measured) {
            for (round, nanoseconds) in rounds.iter().enumerate() {
                text += &format!("\"{}\",{},{round},{nanoseconds:.2}\n", subject.name, subject.threads);
            }
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// A [`Queued`] that reads as its object.
struct QueuedRef<'a>(Queued<'a>);

impl std::ops::Deref for QueuedRef<'_> {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.1.as_ref().expect("the guard has its object until it is dropped")
    }
}

impl std::ops::DerefMut for QueuedRef<'_> {
    fn deref_mut(&mut self) -> &mut Object {
        self.0.1.as_mut().expect("the guard has its object until it is dropped")
    }
}

/// Nanoseconds of a call, by subject and round.
fn measure(subjects: &[Subject<'_>], options: &Options) -> Vec<Vec<f64>> {
    let mut measured = vec![Vec::new(); subjects.len()];
    for _ in 0..options.rounds {
        for (subject, rounds) in subjects.iter().zip(&mut measured) {
            let calls = options.calls / subject.scale;
            (subject.run)(calls / 20);
            let start = Instant::now();
            if subject.threads == 1 {
                (subject.run)(calls);
            } else {
                std::thread::scope(|threads| {
                    (0..subject.threads).for_each(|_| drop(threads.spawn(|| (subject.run)(calls))));
                });
            }
            rounds.push(start.elapsed().as_nanos() as f64 / f64::from(calls));
        }
    }
    measured
}

fn report(subjects: &[Subject<'_>], measured: &[Vec<f64>]) {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["", "threads", "ns, median", "lowest", "highest"]);
    for (subject, rounds) in subjects.iter().zip(measured) {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let [low, median, high] = [0, sorted.len() / 2, sorted.len() - 1].map(|at| format!("{:.1}", sorted[at]));
        table.add_row([subject.name.to_string(), subject.threads.to_string(), median, low, high]);
    }
    println!("{table}");
}
