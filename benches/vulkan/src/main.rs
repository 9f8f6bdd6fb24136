//! terrace-vulkan beside gpu-allocator and vk-mem, in one process on one device: time of a hit, memory over recorded tensor traces.
//!
//! `cargo run --release --manifest-path benches/vulkan/Cargo.toml [DIRECTORY]`: the traces of `tests/data`, or of a directory.
//! vk-mem compiles C++ (VMA), so a C++ compiler is needed. Memory is what `vkAllocateMemory` gave and `vkFreeMemory` took, counted
//! between each allocator and the driver; live is the sum of what was asked for.

mod device;
mod subjects;

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;
use subjects::{GpuAllocator, Ours, VkMem};
use terrace::recording::Reader;
use terrace_models::scenarios::{Outcome, Scenario, Subject, run};

/// Blocks of up to 16 bytes are left out: on a device those scalars would not be allocated.
const LEAST: u64 = 17;

/// Calls of a round of hits, and rounds.
const CALLS: u32 = 100_000;
const ROUNDS: usize = 15;

/// Sizes that are allocated in turn, and freed in their order.
const SIZES: [u64; 8] = [1 << 20, 4096, 300 << 10, 64 << 10, 2 << 20, 700 << 10, 16 << 10, 1000];

const NAMES: [&str; 3] = ["terrace", "gpu-allocator", "vk-mem"];

fn main() -> Result<(), Box<dyn Error>> {
    let opened = device::open()?;
    println!("{}", opened.name);
    for live in [20, 1000] {
        hits(&opened, live, &[1 << 20])?;
        hits(&opened, live, &SIZES)?;
    }
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data"), PathBuf::from);
    let scenarios = recorded(&folder)?;
    println!("\nreserved / live at the peaks; calls of vkAllocateMemory and vkFreeMemory; ns a step");
    for (hidden, what) in
        [(false, "memory that the host sees too, as the driver says"), (true, "memory that the host does not see")]
    {
        device::HIDDEN.store(hidden, Ordering::Relaxed);
        println!("{what}:\n{:24} {:>9} {:>30} {:>30} {:>30}", "", "peak MiB", NAMES[0], NAMES[1], NAMES[2]);
        for scenario in &scenarios {
            let ours = replay(scenario, Ours::new(&opened)?);
            let shown = [ours, replay(scenario, GpuAllocator::new(&opened)?), replay(scenario, VkMem::new(&opened)?)];
            println!("{:24} {:9} {}", scenario.name, scenario.peak >> 20, shown.join(" "));
        }
    }
    Ok(())
}

/// Allocates and frees these sizes beside so many live blocks of 1 MiB, the three in turn; prints the median of the rounds.
fn hits(opened: &device::Opened, live: u32, sizes: &[u64]) -> Result<(), Box<dyn Error>> {
    let (mut ours, mut peer, mut vma) = (Ours::new(opened)?, GpuAllocator::new(opened)?, VkMem::new(opened)?);
    let kept = (hold(&mut ours, live), hold(&mut peer, live), hold(&mut vma, live));
    let mut rounds = [(); 3].map(|()| Vec::new());
    for _ in 0..ROUNDS {
        rounds[0].push(hit(&mut ours, sizes));
        rounds[1].push(hit(&mut peer, sizes));
        rounds[2].push(hit(&mut vma, sizes));
    }
    release(&mut ours, kept.0);
    release(&mut peer, kept.1);
    release(&mut vma, kept.2);
    let told = rounds.into_iter().zip(NAMES).map(|(mut times, name)| {
        times.sort_by(f64::total_cmp);
        format!("{name} {:.0} ({:.0} to {:.0})", times[ROUNDS / 2], times[0], times[ROUNDS - 1])
    });
    let what = if sizes.len() == 1 { "1 MiB" } else { "eight sizes in turn, each" };
    println!("allocate + free of {what} on a hit, {live} live, ns: {}", told.collect::<Vec<_>>().join(", "));
    Ok(())
}

/// Holds blocks of 1 MiB, half of which, every other one, are freed again.
fn hold<S: Subject>(subject: &mut S, live: u32) -> Vec<S::Block> {
    let mut blocks: Vec<_> = (0..2 * live).map(|_| subject.allocate(1 << 20, 0).expect("room")).collect();
    let mut at = 0;
    let freed: Vec<_> = blocks
        .extract_if(.., |_| {
            at += 1;
            at % 2 == 0
        })
        .collect();
    release(subject, freed);
    blocks
}

fn release<S: Subject>(subject: &mut S, blocks: Vec<S::Block>) {
    blocks.into_iter().for_each(|block| subject.free(block, 0));
}

/// Nanoseconds of an allocation and its free.
fn hit<S: Subject>(subject: &mut S, sizes: &[u64]) -> f64 {
    let mut blocks = Vec::with_capacity(sizes.len());
    let start = Instant::now();
    for _ in 0..CALLS / sizes.len() as u32 {
        blocks.extend(sizes.iter().map(|&bytes| subject.allocate(black_box(bytes), 0).expect("room")));
        blocks.drain(..).for_each(|block| subject.free(black_box(block), 0));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn replay<S: Subject>(scenario: &Scenario, mut subject: S) -> String {
    device::reset();
    let start = Instant::now();
    let outcome: Outcome = run(scenario, &mut subject);
    let each = start.elapsed().as_secs_f64() * 1e9 / scenario.steps.len() as f64;
    let (peak, failed) = (outcome.totals.peak_reserved, outcome.failed);
    let refused = if failed == 0 { String::new() } else { format!(" {failed} refused") };
    format!("{:14.3} {:6} {each:8.0}{refused}", peak as f64 / outcome.peak_live as f64, outcome.totals.calls)
}

fn recorded(folder: &Path) -> Result<Vec<Scenario>, Box<dyn Error>> {
    let mut traces: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    traces.retain(|path| path.to_string_lossy().ends_with(".csv.zst") && !path.to_string_lossy().contains("malloc_"));
    traces.sort();
    let scenario = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace(".csv", "");
        let entries = Reader::open(path)?.collect::<Result<Vec<_>, _>>()?;
        Ok(Scenario::recorded(name, LEAST, entries.into_iter().map(|entry| (entry.event, entry.slot))))
    };
    traces.iter().map(scenario).collect()
}
