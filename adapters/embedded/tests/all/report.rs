//! Statistics for people: the line of CSV, the high-water mark in whole granules, the largest free block.

use std::alloc::Layout;

use terrace_embedded::{FirmwareHeap, HeapStats, TaskUsage, heap_arena};

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("small")
}

#[test]
fn the_high_water_mark_counts_whole_granules() {
    let heap: FirmwareHeap = FirmwareHeap::empty();
    heap_arena!(heap, 4096).expect("memory");
    let blocks = [1, 9, 16].map(|size| (heap.allocate(layout(size)).expect("room"), layout(size)));
    let counters = heap.counters();
    assert_eq!((counters.requested, counters.peak), (26, 26));
    assert_eq!((counters.live, counters.peak_live, heap.stats().live), (40, 40, 40));
    let [(first, size), ..] = blocks;
    // SAFETY: live; only the returned pointer is used from here on.
    let longer = unsafe { heap.reallocate(first, size, 17) }.expect("room");
    assert_eq!((heap.counters().live, heap.counters().peak_live), (56, 56), "{}", heap.stats());
    // SAFETY: live, and used no more.
    unsafe { heap.free(longer, layout(17)) };
    for (block, layout) in blocks.into_iter().skip(1) {
        // SAFETY: live, and used no more.
        unsafe { heap.free(block, layout) };
    }
    let counters = heap.counters();
    assert_eq!((counters.live, counters.peak_live, heap.stats().live), (0, 56, 0), "the mark stays");
}

#[test]
fn counters_and_the_walk_agree_after_every_call() {
    let heap: FirmwareHeap = FirmwareHeap::empty();
    heap_arena!(heap, 65_536).expect("memory");
    let mut random = fastrand::Rng::with_seed(3);
    let (mut live, mut most) = (Vec::new(), 0);
    for _ in 0..if cfg!(miri) { 50 } else { 3000 } {
        let size = random.usize(1..2000);
        match random.u8(..3) {
            0 => live.extend(heap.allocate(layout(size)).map(|block| (block, layout(size)))),
            _ if live.is_empty() => {}
            1 => {
                let (block, old) = live.swap_remove(random.usize(..live.len()));
                // SAFETY: live, and used no more.
                unsafe { heap.free(block, old) };
            }
            _ => {
                let at = random.usize(..live.len());
                let (block, old) = live[at];
                // SAFETY: live; only the returned pointer is used from here on.
                if let Some(new) = unsafe { heap.reallocate(block, old, size) } {
                    live[at] = (new, layout(size));
                }
            }
        }
        let stats = heap.stats();
        let held: usize = live.iter().map(|(_, layout)| layout.size().next_multiple_of(8)).sum();
        most = most.max(held);
        assert_eq!((stats.live, stats.counters.live), (held, held));
        assert!(stats.counters.peak_live >= most && stats.largest_free <= stats.free);
        assert_eq!(heap.allocate(layout(stats.largest_free + 1)), None, "nothing larger fits: {stats}");
        // Eight lists for each power of two: what is an eighth smaller is found.
        let size = (stats.largest_free * 7 / 8).max(1);
        let block = heap.allocate(layout(size)).expect("room");
        // SAFETY: live, and used no more.
        unsafe { heap.free(block, layout(size)) };
        most = most.max(held + size);
    }
}

#[test]
fn a_line_of_csv_has_a_number_for_each_name() {
    let heap: FirmwareHeap = FirmwareHeap::empty();
    heap_arena!(heap, 4096).expect("memory");
    let _kept = heap.allocate(layout(20)).expect("room");
    let stats = heap.stats();
    let line = stats.csv().to_string();
    let numbers: Vec<usize> = line.split(',').map(|number| number.parse().expect("a number")).collect();
    let of = |name: &str| numbers[HeapStats::CSV_HEADER.split(',').position(|known| known == name).expect(name)];
    let c = stats.counters;
    let all = [
        ("total", stats.total),
        ("tables", stats.tables),
        ("live", stats.live),
        ("peak_live", c.peak_live),
        ("requested", c.requested),
        ("peak", c.peak),
        ("free", stats.free),
        ("largest_free", stats.largest_free),
        ("free_blocks", stats.free_blocks),
        ("allocations", c.allocations),
        ("frees", c.frees),
        ("failures", c.failures),
        ("refused", c.refused),
    ];
    assert_eq!(HeapStats::CSV_HEADER.split(',').count(), all.len());
    assert_eq!(numbers.len(), all.len());
    all.into_iter().for_each(|(name, value)| assert_eq!(of(name), value, "{name}"));
    assert_eq!((of("live"), of("requested")), (24, 20));
    // Distinct values, so that no two fields are exchanged.
    let c = terrace_embedded::HeapCounters {
        requested: 5,
        peak: 6,
        live: 3,
        peak_live: 4,
        allocations: 10,
        frees: 11,
        failures: 12,
        refused: 13,
    };
    let stats = HeapStats { total: 1, tables: 2, live: 3, free: 7, largest_free: 8, free_blocks: 9, counters: c };
    assert_eq!(stats.csv().to_string(), "1,2,3,4,5,6,7,8,9,10,11,12,13");
    let task = TaskUsage { task: 1, live: 2, peak: 3, blocks: 4 };
    assert_eq!(format!("{}\n{}", TaskUsage::CSV_HEADER, task.csv()), "task,live,peak,blocks\n1,2,3,4");
    assert!(stats.to_string().starts_with("3 of 1 bytes live, at most 4 (5 requested, at most 6), 7 free"), "{stats}");
}
