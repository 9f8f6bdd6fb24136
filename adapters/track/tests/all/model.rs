//! The tracker beside a model, by many threads, with modes that change in the middle.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_track::{Stamp, TrackMode, Tracker, tag};

const THREADS: u64 = if cfg!(miri) { 2 } else { 8 };
const STEPS: usize = if cfg!(miri) { 60 } else { 20_000 };
/// Steps of each thread between two changes of the mode.
const SWITCH: usize = if cfg!(miri) { 8 } else { 400 };
const TAGS: [&str; 4] = ["", "model a", "model b", "model c"];

/// A block of the model: its key, its bytes, its tag, and what the tracker gave for it.
type ModelBlock = (u64, u64, &'static str, Stamp);

/// Each thread allocates, and frees what any thread allocated.
fn run(tracker: &Tracker, switching: bool) -> Vec<ModelBlock> {
    let blocks: Mutex<Vec<ModelBlock>> = Mutex::default();
    let next = AtomicU64::new(1);
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (blocks, next) = (&blocks, &next);
            threads.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for step in 0..STEPS {
                    if switching && step % SWITCH == 0 {
                        tracker.set_mode(TrackMode::ALL[random.usize(0..4)]);
                    }
                    let name = TAGS[random.usize(0..TAGS.len())];
                    let _tag = tag(name);
                    if random.usize(0..100) < 52 {
                        let (key, bytes) = (next.fetch_add(1, Ordering::Relaxed) << 8, random.u64(0..200_000));
                        let stamp = tracker.allocated(key, bytes, (key % 2) as u8);
                        blocks.lock().unwrap().push((key, bytes, name, stamp));
                    } else {
                        let mut all = blocks.lock().unwrap();
                        let at = random.usize(0..all.len().max(1));
                        let block = (at < all.len()).then(|| all.swap_remove(at));
                        drop(all);
                        if let Some((key, bytes, _, stamp)) = block {
                            tracker.freed(stamp, key, bytes);
                        }
                    }
                }
            });
        }
    });
    blocks.into_inner().unwrap()
}

#[test]
fn records_and_counters_are_those_of_a_model() {
    let tracker = Tracker::new("model", &["device 0", "device 0 pinned"]);
    tracker.set_mode(TrackMode::Records);
    let left = run(&tracker, false);
    let mut expected: Vec<_> = left.iter().map(|(key, bytes, name, _)| (*key, *bytes, name.to_string())).collect();
    let live = tracker.live();
    let mut found: Vec<_> = live.blocks.iter().map(|block| (block.key, block.bytes, block.tag.clone())).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let mut ids: Vec<u64> = live.blocks.iter().map(|block| block.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), left.len(), "ids are unique");
    let counted = tracker.by_tag();
    for name in TAGS {
        let of_tag = || left.iter().filter(|block| block.2 == name);
        let stats = counted.get(name).expect("every tag was used");
        assert_eq!(
            (stats.live_blocks(), stats.live_bytes),
            (of_tag().count() as u64, of_tag().map(|block| block.1).sum())
        );
    }
    assert_eq!(counted.total.live_bytes, live.bytes());
    assert_eq!(counted.tags.iter().map(|stats| stats.allocations).sum::<u64>(), counted.total.allocations);
    left.iter().for_each(|(key, bytes, _, stamp)| tracker.freed(*stamp, *key, *bytes));
    assert_eq!((tracker.recorded(), tracker.total().live_bytes, tracker.total().live_blocks()), (0, 0, 0));
}

#[test]
fn nothing_is_lost_where_modes_change_in_the_middle() {
    let tracker = Tracker::new("switched model", &["device 0", "device 0 pinned"]);
    let left = run(&tracker, true);
    let tracked: HashMap<u64, u64> =
        left.iter().filter(|block| !block.3.is_none()).map(|block| (block.0, block.1)).collect();
    assert!(!tracked.is_empty() && tracked.len() < left.len(), "some blocks are tracked and some are not");
    let total = tracker.total();
    assert_eq!((total.live_blocks(), total.live_bytes), (tracked.len() as u64, tracked.values().sum()));
    let live = tracker.live();
    assert!(live.blocks.iter().all(|block| tracked.get(&block.key) == Some(&block.bytes)));
    left.iter().for_each(|(key, bytes, _, stamp)| tracker.freed(*stamp, *key, *bytes));
    assert_eq!((tracker.recorded(), tracker.total().live_bytes, tracker.total().live_blocks()), (0, 0, 0));
}
