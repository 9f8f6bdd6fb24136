//! `defmt`: statistics and errors reach a logger, encoded. A logger that collects bytes stands for a debug probe.

use std::alloc::Layout;
use std::sync::Mutex;

use terrace_embedded::{
    BadFree, FirmwareHeap, FreeError, InitError, MemoryCaps, QueueFull, RefusedMemory, RegionError, TaskUsage,
    heap_arena,
};

#[defmt::global_logger]
struct Kept;

static FRAME: Mutex<Vec<u8>> = Mutex::new(Vec::new());

// SAFETY: the one test here is the only caller, and nothing interrupts it.
unsafe impl defmt::Logger for Kept {
    fn acquire() {}
    unsafe fn flush() {}
    unsafe fn release() {}
    unsafe fn write(bytes: &[u8]) {
        FRAME.lock().expect("alone").extend_from_slice(bytes);
    }
}

defmt::timestamp!("");

/// The encoding of a value, without the index of the line's own format string.
fn frame(of: &impl defmt::Format) -> Vec<u8> {
    FRAME.lock().expect("alone").clear();
    defmt::println!("{}", of);
    FRAME.lock().expect("alone").split_off(2)
}

/// The encoding of a value that is itself a format string with arguments, without the index 0 that ends it.
fn words(of: &impl defmt::Format) -> Vec<u8> {
    let mut frame = frame(of);
    assert_eq!(frame.split_off(frame.len() - 2), [0, 0]);
    frame
}

#[test]
fn statistics_and_errors_are_formatted() {
    static HEAP: FirmwareHeap = FirmwareHeap::empty();
    heap_arena!(HEAP, 0x4000).expect("memory");
    let layout = Layout::new::<[u8; 77]>();
    let block = HEAP.allocate(layout).expect("room");

    // The index of the struct's format string, then each field.
    let stats = HEAP.stats();
    let c = stats.counters;
    let counters = [c.requested, c.peak, c.live, c.peak_live, c.allocations, c.frees, c.failures, c.refused];
    let fields = [stats.total, stats.tables, stats.live, stats.free, stats.largest_free, stats.free_blocks];
    // defmt's targets have at most 32 bits: a usize is written as four bytes.
    let bytes = |fields: &[usize]| fields.iter().flat_map(|&field| (field as u32).to_le_bytes()).collect::<Vec<_>>();
    let printed = frame(&stats);
    assert_eq!((counters[0], fields[0]), (77, 0x4000));
    assert_eq!(printed[2..26], bytes(&fields), "{printed:?}");
    assert!(printed.ends_with(&bytes(&counters)), "{printed:?}");

    let errors = [
        InitError::Null,
        InitError::Taken,
        InitError::Region(RegionError::TooSmall),
        InitError::Region(RegionError::TooLarge { max: 0x1234_5678 }),
        InitError::Region(RegionError::Overlaps),
        InitError::Region(RegionError::TooMany),
    ];
    let mut all = errors.map(|error| words(&error)).to_vec();
    assert!(all[3].ends_with(&0x1234_5678u32.to_le_bytes()), "{all:?}");
    let [stale, foreign] =
        [FreeError::Stale { address: 7 }, FreeError::Foreign { address: 7 }].map(|e| words(&BadFree(e)));
    assert!(stale.ends_with(&7u64.to_le_bytes()) && foreign.ends_with(&7u64.to_le_bytes()), "{stale:?} {foreign:?}");
    all.extend([stale, foreign]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 8, "each in words of its own");

    let refused = RefusedMemory { error: InitError::Null, memory: &mut [] };
    assert_eq!(words(&refused), words(&InitError::Null));
    let task = frame(&TaskUsage { task: 3, live: 0x1111, peak: 0x2222, blocks: 0x3333 });
    assert_eq!((task[2], &task[3..]), (3, &*bytes(&[0x1111, 0x2222, 0x3333])), "{task:?}");
    let has = frame(&(MemoryCaps::DMA | MemoryCaps::user::<0>()));
    assert!(has.ends_with(&0x104u32.to_le_bytes()), "{has:?}");

    // SAFETY: live; without a queue the block comes back.
    let full: QueueFull = unsafe { HEAP.free_later(block, layout) }.expect_err("no queue");
    let address = (block.addr().get() as u32).to_le_bytes();
    let mut printed = words(&full);
    assert_eq!(printed.split_off(printed.len() - 2), [0, 0], "the block's words end inside");
    assert!(printed.ends_with(&[&77u32.to_le_bytes()[..], &address].concat()), "{printed:?}");
}
