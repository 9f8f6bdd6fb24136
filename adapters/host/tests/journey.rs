//! The journey of a block, hop by hop: cache, span, page heap; and back, from another thread, through the transfer cache. And
//! that of a large one: C's `malloc`, the interface, large blocks, the page heap.
//!
//! This program uses the system's allocator, so that the statistics count the test's own blocks only. One test allocates: they
//! are of the whole process.

use std::collections::BTreeSet;
use terrace_host::{Setting, api, check, class, ready, stats, trim};

/// Frees one of the blocks that this test allocated, each once.
fn free(block: *mut u8) {
    // SAFETY: see above.
    unsafe { api::free(block) };
}

#[test]
fn a_block_goes_the_shortest_way_there_is() {
    Setting::PurgeDelay(None).apply().expect("a setting");
    assert_eq!(stats(), Default::default(), "nothing is there before the first block");

    // The first block: mapping, span, batch. The cap of the class doubles with each miss: 8, of which 5 are filled at first.
    assert!(ready());
    let size = 100;
    let block_bytes = class::size(class::of(size));
    let first = api::allocate(size, 1);
    let one = stats();
    assert!(one.mapped >= 4 << 20 && one.caches == 1, "{one:?}");
    assert_eq!((one.spans, one.live_blocks, one.in_use), (1, 1, block_bytes));
    let cached = one.cached / block_bytes;
    assert!((1..64).contains(&cached), "{cached}");

    // Hits: blocks come from the cache in the order of addresses, and nothing else changes.
    let mut blocks = vec![first];
    for taken in 1..=cached {
        let block = api::allocate(size, 1);
        assert_eq!(block.addr() - blocks[taken - 1].addr(), block_bytes);
        blocks.push(block);
        assert_eq!(stats().cached, one.cached - taken * block_bytes);
    }
    assert_eq!((stats().spans, stats().reserved), (1, one.reserved));

    // Misses: batches from the same span, until it has none.
    while stats().spans == 1 {
        blocks.push(api::allocate(size, 1));
    }
    let full = stats();
    assert!(blocks.len() > class::SLICE / block_bytes - 64 && full.mapped == one.mapped);

    // A freed block is the next one allocated.
    let last = blocks.pop().expect("many");
    free(last);
    assert_eq!(api::allocate(size, 1), last);
    blocks.push(last);

    // Another thread frees what this one allocated: its cache fills, then batches wait for the next thread.
    let addresses: Vec<usize> = blocks.iter().map(|block| block.addr()).collect();
    let lent: Vec<usize> = blocks.iter().map(|block| block.expose_provenance()).collect();
    std::thread::spawn(move || {
        lent.into_iter().for_each(|block| free(std::ptr::with_exposed_provenance_mut(block)));
    })
    .join()
    .expect("no panic");
    let freed = stats();
    assert_eq!((freed.live_blocks, freed.in_use, freed.caches), (0, 0, 2), "{freed:?}");
    assert!(freed.cached > full.cached);
    // This thread's next blocks are among them: no new span, no new memory.
    let again: Vec<*mut u8> = (0..cached + 200).map(|_| api::allocate(size, 1)).collect();
    assert!(again.iter().filter(|block| addresses.contains(&block.addr())).count() > 100);
    assert_eq!((stats().spans, stats().mapped), (full.spans, full.mapped));
    again.into_iter().for_each(free);

    // A large block is slices of its own, grown in place, and freed.
    let large = api::allocate(100_000, 1);
    assert_eq!((stats().large_blocks, stats().live_blocks), (1, 1));
    // SAFETY: our block.
    let grown = unsafe { api::resize(large, 1 << 20, 1) };
    // SAFETY: our block.
    assert_eq!((grown, unsafe { api::usable(grown) }), (large, 1 << 20));
    free(grown);
    // One of 4 MiB is reserved as requested, and its slices are the next block's.
    let (before, bytes) = (stats(), 4 << 20);
    let large = api::allocate_small(bytes);
    assert_eq!((stats().reserved - before.reserved, stats().large_blocks), (bytes, 1));
    free(large);
    assert_eq!((stats().reserved, stats().large_blocks), (before.reserved, 0));
    assert_eq!(api::allocate_small(bytes), large);
    free(large);

    // Everything is freed: no span, no block; caches stay, empty.
    assert!(trim());
    let end = stats();
    assert_eq!((end.spans, end.live_blocks, end.large_blocks, end.in_use, end.cached), (0, 0, 0, 0, 0), "{end:?}");
    check().expect("every structure agrees");
}

/// The files that a large request passes through.
const MALLOC: &str = include_str!("../../capi/src/malloc.rs");
const API: &str = include_str!("../src/api/mod.rs");
const LARGE: &str = include_str!("../src/api/large.rs");
const PAGE_HEAP: &str = include_str!("../src/page_heap/mod.rs");

/// Its way down, until the core's range allocator has a gap: file, function, and the call there that leads on.
const HOPS: [(&str, &str, &str); 11] = [
    (MALLOC, "malloc", "api::allocate_small("),
    (API, "allocate_small", "allocate_larger("),
    (API, "allocate_larger", "allocate("),
    (API, "allocate", "allocate_of("),
    (API, "allocate_of", "large::allocate("),
    (LARGE, "allocate", "allocate_now("),
    (LARGE, "allocate_now", "allocate_or_purge("),
    (LARGE, "allocate_or_purge", "allocate_slices("),
    (LARGE, "allocate_slices", "page_heap::allocate("),
    (PAGE_HEAP, "allocate", "take_slices("),
    (PAGE_HEAP, "take_slices", "range.allocate("),
];

#[test]
fn a_large_malloc_is_read_in_four_files() {
    for (file, function, call) in HOPS {
        let (_, body) = file.split_once(&format!("fn {function}(")).expect(function);
        let (body, _) = body.split_once("\n}").expect(function);
        assert!(body.contains(call), "`{function}` leads on by `{call}`:{body}");
    }
    let files: BTreeSet<&str> = HOPS.iter().map(|(file, ..)| *file).collect();
    assert_eq!(files.len(), 4);
}
