//! A standard program on the heap: the test harness itself, with its threads and output.

use std::collections::BTreeMap;
use std::thread;

use terrace_embedded::{Bounded, Checked, FirmwareHeap, heap_arena};

#[global_allocator]
static HEAP: FirmwareHeap<Checked<Bounded>> = FirmwareHeap::empty();

/// Adds memory before `main`, since the standard library allocates there.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn add_memory() {
        // If this fails, the first test does too.
        let _tested = heap_arena!(HEAP, 16 << 20);
    }
    add_memory
};

/// Fills a map with strings as keys and vectors that grow, which allocates, resizes and frees.
fn work(seed: u64) -> usize {
    let mut map = BTreeMap::new();
    for i in 0..2000 {
        let key = (seed + i * 7919) % 503;
        map.entry(key.to_string()).or_insert_with(Vec::new).push(i);
        if i % 3 == 0 {
            map.remove(&((seed + i) % 503).to_string());
        }
    }
    map.values().map(Vec::len).sum()
}

#[test]
#[cfg(target_os = "linux")]
fn a_standard_program_runs_on_it_with_threads() {
    let before = HEAP.counters();
    let alone: Vec<usize> = (0..4).map(work).collect();
    let threads: Vec<_> = (0..4).map(|seed| thread::spawn(move || work(seed))).collect();
    let together: Vec<usize> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    assert_eq!(alone, together);
    HEAP.check().expect("every invariant holds");

    let after = HEAP.counters();
    assert!(after.allocations - before.allocations > 10_000, "it was this heap: {after:?}");
    assert_eq!((after.failures, after.refused), (0, 0));
    let stats = HEAP.stats();
    assert_eq!(stats.total, 16 << 20);
    assert_eq!(stats.total, stats.tables + stats.live + stats.free);
    assert!(stats.counters.requested <= stats.live && stats.counters.requested <= stats.counters.peak, "{stats}");
}

#[test]
#[cfg(target_os = "linux")]
fn zeroed_and_aligned_memory_is_both() {
    assert!(vec![0u64; 10_000].iter().all(|&word| word == 0));
    #[repr(align(4096))]
    struct Page(#[expect(dead_code, reason = "only its place matters")] [u8; 100]);
    let pages: Vec<Box<Page>> = (0..50).map(|_| Box::new(Page([1; 100]))).collect();
    assert!(pages.iter().all(|page| (&raw const **page).addr() % 4096 == 0));
    assert!(pages.iter().all(|page| HEAP.contains((&raw const **page).cast())));
}
