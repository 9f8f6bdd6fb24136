//! The models on recorded traces of real programs, against an independent simulation of PyTorch's rules.

use crate::common;

use std::collections::HashMap;
use std::io::Read;
use terrace_core::{Allocator, Block, Owner, Request};
use terrace_models::{Bfc, Growing, PyTorch, Rmm, Segments};

/// `Some(bytes)` allocates `id`, `None` frees it.
type Event = (u32, Option<u64>);

/// The events of a trace whose blocks are larger than 16 bytes: what a device would be asked for.
fn events(name: &str) -> Vec<Event> {
    let path = format!("{}/../../tests/data/{name}.csv.zst", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut text = String::new();
    zstd::Decoder::new(file).and_then(|mut decoder| decoder.read_to_string(&mut text)).unwrap();
    let mut dropped = std::collections::HashSet::new();
    let mut events = Vec::new();
    for line in text.lines().skip(1) {
        let mut columns = line.split(',').skip(1);
        let op = columns.next().unwrap();
        let id: u32 = columns.next().unwrap().parse().unwrap();
        match (op, columns.next().unwrap()) {
            ("a", size) if size.parse::<u64>().unwrap() <= 16 => {
                dropped.insert(id);
            }
            ("a", size) => events.push((id, Some(size.parse().unwrap()))),
            ("f", _) if dropped.contains(&id) => {}
            ("f", _) => events.push((id, None)),
            (other, _) => panic!("tensor traces have no {other} lines"),
        }
    }
    events
}

/// Replays; returns the peak of requested bytes.
fn replay(events: &[Event], pool: &mut impl Allocator) -> u64 {
    let mut live: HashMap<u32, Block> = HashMap::new();
    let mut peak = 0;
    for &(id, size) in events {
        match size {
            Some(bytes) => {
                let block = pool.allocate(Request::new(bytes).align(64)).unwrap();
                live.insert(id, block);
                peak = peak.max(pool.stats().requested);
            }
            None => pool.free(live.remove(&id).unwrap(), Owner(0)).unwrap(),
        }
    }
    pool.check().unwrap();
    for block in live.into_values() {
        pool.free(block, Owner(0)).unwrap();
    }
    pool.trim();
    pool.check().unwrap();
    assert_eq!((pool.stats().in_use, pool.stats().reserved), (0, 0));
    peak
}

/// Trace, utilisation (rounded to four digits), device allocations.
const EXPECTED: [(&str, f64, u64); 5] = [
    ("train_resnet50", 0.7694, 84),
    ("train_gpt2_small", 0.9664, 159),
    ("train_moe_mixtral", 0.7350, 180),
    ("infer_bert_varlen", 0.8824, 25),
    ("decode_t5_beam", 0.9354, 55),
];

#[test]
fn pytorch_reproduces_an_independent_simulation() {
    for (name, utilisation, calls) in EXPECTED {
        let events = events(name);
        let mut pool = PyTorch::new(Segments::new(0));
        let peak = replay(&events, &mut pool);
        let stats = pool.stats();
        let measured = (peak as f64 / stats.peak_reserved as f64 * 1e4).round() / 1e4;
        assert_eq!((name, measured, stats.misses), (name, utilisation, calls));
        assert_eq!(stats.source_calls, calls + stats.returns, "one call a segment, each way");
    }
}

#[test]
fn every_model_replays_every_trace() {
    for (name, ..) in EXPECTED {
        let events = events(name);
        replay(&events, &mut common::expandable(0));
        replay(&events, &mut PyTorch::new(Growing::new(0)));
        replay(&events, &mut Bfc::new(Segments::new(0)));
        replay(&events, &mut Rmm::new(Segments::new(0)));
    }
}
