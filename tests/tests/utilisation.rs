//! How much of what is reserved is used, over recorded runs of real models, against PyTorch's policy.
//!
//! Blocks of 16 bytes and less are left out: on a device those scalars would not be allocated.

use std::fs::File;
use std::path::{Path, PathBuf};
use terrace::engine::arena::ArenaSettings;
use terrace::engine::{Allocator, Arena, ArenaCapacity, BestFit, Block, NoFence, Owner, Request, Source, heap_parts};
use terrace::recording::Reader;
use terrace_core::event::Kind;
use terrace_models::{Growing, PyTorch, Segments};

/// The runs in tests/data; two more are too large for it.
const KEPT: [&str; 5] =
    ["train_resnet50", "train_gpt2_small", "train_moe_mixtral", "infer_bert_varlen", "decode_t5_beam"];
const ALL: [&str; 7] = [
    "train_resnet50",
    "train_gpt2_small",
    "train_moe_mixtral",
    "infer_bert_varlen",
    "decode_t5_beam",
    "train_lora_ckpt",
    "decode_llama_concurrent",
];

/// Utilisation and calls to the source.
fn replay(path: &Path, pool: &mut dyn Allocator) -> (f64, u64) {
    let file = File::open(path).expect("the trace is there");
    let mut live: Vec<Option<(Block, u64)>> = Vec::new();
    let (mut bytes, mut peak) = (0, 0);
    for entry in Reader::new(&path.display().to_string(), file).expect("a trace") {
        let entry = entry.expect("well formed");
        let Some(slot) = entry.slot.map(|slot| slot as usize) else { continue };
        live.resize(live.len().max(slot + 1), None);
        match entry.event.kind {
            Kind::Allocate if entry.event.bytes > 16 => {
                let request = Request::new(entry.event.bytes).align(entry.event.align);
                live[slot] = Some((pool.allocate(request).expect("not limited"), entry.event.bytes));
                bytes += entry.event.bytes;
                peak = peak.max(bytes);
            }
            Kind::Free => {
                if let Some((block, size)) = live[slot].take() {
                    pool.free(block, Owner(0)).expect("live");
                    bytes -= size;
                }
            }
            _ => {}
        }
    }
    pool.check().expect("every invariant holds");
    let stats = pool.stats();
    (peak as f64 / stats.peak_reserved as f64, stats.source_calls)
}

fn arena(source: impl Source + 'static, settings: ArenaSettings) -> Box<dyn Allocator> {
    Box::new(
        Arena::new(source, NoFence, heap_parts(ArenaCapacity::default(), BestFit::new), settings)
            .expect("valid settings"),
    )
}

/// Replays each run on ours and on PyTorch's policy; returns the geometric mean of ours.
fn compare(folder: &Path, names: &[&str], ours: fn() -> Box<dyn Allocator>, judge: fn(&str, [(f64, u64); 2])) -> f64 {
    let mut product = 1.0;
    for name in names {
        let path = folder.join(format!("{name}.csv.zst"));
        let mine = replay(&path, &mut *ours());
        let theirs = replay(&path, &mut PyTorch::new(Segments::new(0)));
        judge(name, [mine, theirs]);
        product *= mine.0;
    }
    f64::powf(product, 1.0 / names.len() as f64)
}

/// On pages: at least 0.97 on each run, with at most 4 times the device calls of PyTorch's policy.
fn on_pages(name: &str, [(used, calls), (_, theirs)]: [(f64, u64); 2]) {
    assert!(used >= 0.97, "{name}: {used}");
    assert!(calls <= 4 * theirs, "{name}: {calls} calls against {theirs}");
}

/// On segments: never below PyTorch's policy, with at most twice its device calls.
fn on_segments(name: &str, [(used, calls), (theirs, their_calls)]: [(f64, u64); 2]) {
    assert!(used >= theirs, "{name}: {used} against {theirs}");
    assert!(calls <= 2 * their_calls, "{name}: {calls} calls against {their_calls}");
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

#[test]
fn pages_are_used_to_97_percent() {
    let mean = compare(&data(), &KEPT, || arena(Growing::new(0), ArenaSettings::growing()), on_pages);
    assert!(mean >= 0.985, "{mean}");
}

#[test]
fn segments_are_used_better_than_by_pytorch() {
    let mean = compare(&data(), &KEPT, || arena(Segments::new(0), ArenaSettings::segments()), on_segments);
    assert!(mean >= 0.9, "{mean}");
}

#[test]
fn all_recorded_runs_reach_the_same() {
    let Some(folder) = std::env::var_os("TERRACE_TRACES").map(PathBuf::from) else {
        println!("SKIP all_recorded_runs_reach_the_same: set TERRACE_TRACES");
        return;
    };
    let pages = compare(&folder, &ALL, || arena(Growing::new(0), ArenaSettings::growing()), on_pages);
    let segments = compare(&folder, &ALL, || arena(Segments::new(0), ArenaSettings::segments()), on_segments);
    assert!(pages >= 0.985 && segments >= 0.9, "{pages} {segments}");
}
