//! Accounting by task: whose block it is, however it grows, moves and goes.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use terrace_embedded::{
    Bounded, Checked, CurrentTask, FirmwareHeap, FreeQueue, HeapConfig, MemoryCaps, NoQueue, Small, TaskTable,
    TaskUsage, heap_arena,
};

thread_local! {
    static RUNNING: Cell<u8> = const { Cell::new(0) };
}

/// A thread stands for a core, a number for its task.
#[derive(Debug)]
struct Scheduler;

impl CurrentTask for Scheduler {
    fn current_task() -> u8 {
        RUNNING.get()
    }
}

type Table = TaskTable<Scheduler, 4>;
type Heap<C = Bounded, const REGIONS: usize = 1> = FirmwareHeap<C, REGIONS, NoQueue, Table>;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("small")
}

/// Runs a step as a task.
fn by<R>(task: u8, step: impl FnOnce() -> R) -> R {
    RUNNING.set(task);
    step()
}

/// Live bytes and blocks of each task; also checks that they add up.
fn live<C: HeapConfig, const REGIONS: usize>(heap: &Heap<C, REGIONS>) -> [(usize, usize); 4] {
    let (tasks, counters) = (heap.tasks(), heap.counters());
    assert_eq!(tasks.iter().map(|task| task.live).sum::<usize>(), counters.requested);
    assert_eq!(tasks.iter().map(|task| task.blocks).sum::<usize>(), counters.allocations - counters.frees);
    assert_eq!(heap.stats().live, counters.live);
    tasks.map(|task| (task.live, task.blocks))
}

#[test]
fn a_block_is_charged_to_the_task_that_allocated_it_until_any_task_frees_it() {
    let heap: Heap = Heap::empty();
    heap_arena!(heap, 8192).expect("memory");
    let first = by(1, || heap.allocate(layout(100))).expect("room");
    let second = by(2, || heap.allocate(layout(64))).expect("room");
    let third = by(1, || heap.allocate(layout(50))).expect("room");
    assert_eq!(live(&heap), [(0, 0), (150, 2), (64, 1), (0, 0)]);
    // SAFETY: live, and used no more. Another task frees it.
    by(2, || unsafe { heap.free(first, layout(100)) });
    assert_eq!(live(&heap), [(0, 0), (50, 1), (64, 1), (0, 0)]);
    assert_eq!(heap.task(1), TaskUsage { task: 1, live: 50, peak: 150, blocks: 1 });
    // SAFETY: live, and used no more.
    by(3, || unsafe { heap.free(second, layout(64)) });
    // SAFETY: live, and used no more.
    by(0, || unsafe { heap.free(third, layout(50)) });
    assert_eq!(live(&heap), [(0, 0); 4]);
    assert_eq!(heap.tasks().map(|task| task.peak), [0, 150, 64, 0], "only allocations raise it");
}

#[test]
fn numbers_beyond_the_table_share_the_last_row() {
    let heap: Heap = Heap::empty();
    heap_arena!(heap, 4096).expect("memory");
    let blocks = [3, 4, 255].map(|task| by(task, || heap.allocate(layout(10))).expect("room"));
    assert_eq!(live(&heap), [(0, 0), (0, 0), (0, 0), (30, 3)]);
    assert_eq!(heap.task(200), heap.task(3));
    // SAFETY: live, and used no more.
    blocks.into_iter().for_each(|block| unsafe { heap.free(block, layout(10)) });
    assert_eq!(live(&heap), [(0, 0); 4]);
}

#[test]
fn the_byte_lies_in_the_rounding_where_there_is_room() {
    let (plain, heap): (FirmwareHeap, Heap) = (FirmwareHeap::empty(), Heap::empty());
    heap_arena!(plain, 4096).expect("memory");
    heap_arena!(heap, 4096).expect("memory");
    assert_eq!(size_of::<Heap>() - size_of::<FirmwareHeap>(), 4 * 3 * size_of::<usize>(), "three words a task");
    for size in (1..=64).step_by(if cfg!(miri) { 7 } else { 1 }) {
        let before = [plain.stats().live, heap.stats().live];
        let _kept = (plain.allocate(layout(size)).expect("room"), heap.allocate(layout(size)).expect("room"));
        let cost = [plain.stats().live - before[0], heap.stats().live - before[1]];
        let more = if size % 8 == 0 { 8 } else { 0 };
        assert_eq!(cost, [size.next_multiple_of(8), size.next_multiple_of(8) + more], "{size}");
    }
    live(&heap);
}

#[test]
fn a_resized_block_stays_its_tasks() {
    let heap: Heap<Checked<Bounded>, 2> = Heap::empty();
    heap_arena!(heap, 8192, MemoryCaps::INTERNAL).expect("memory");
    heap_arena!(heap, 16_384, MemoryCaps::EXTERNAL).expect("memory");
    for size in [40, 64, 1000] {
        let block = by(1, || heap.allocate(layout(size))).expect("room");
        // SAFETY: a fresh block of `size` bytes.
        unsafe { block.write_bytes(9, size) };
        // In place, up and down; behind another block, which makes it move; into the other region.
        RUNNING.set(2);
        // SAFETY: live; only the returned pointer is used from here on.
        let grown = unsafe { heap.reallocate(block, layout(size), size + 17) }.expect("room");
        assert_eq!((grown, live(&heap)[1]), (block, (size + 17, 1)));
        // SAFETY: as above.
        let shrunk = unsafe { heap.reallocate(grown, layout(size + 17), size) }.expect("always in place");
        assert_eq!((shrunk, live(&heap)[1]), (block, (size, 1)));
        let behind = by(3, || heap.allocate(layout(8))).expect("room");
        // SAFETY: as above.
        let moved = by(2, || unsafe { heap.reallocate(shrunk, layout(size), 3000) }).expect("room");
        assert!(moved != block && live(&heap) == [(0, 0), (3000, 1), (0, 0), (8, 1)], "{:?}", heap.tasks());
        // SAFETY: as above.
        let out = unsafe { heap.reallocate(moved, layout(3000), 9000) }.expect("room in the second region");
        assert_eq!((live(&heap)[1], heap.usage_of(MemoryCaps::INTERNAL).live), ((9000, 1), 16));
        // SAFETY: the first `size` bytes were written above, and moved along.
        assert!(unsafe { std::slice::from_raw_parts(out.as_ptr(), size) }.iter().all(|&byte| byte == 9));
        // SAFETY: live, and unchanged when there is no room.
        assert_eq!(unsafe { heap.reallocate(out, layout(9000), 40_000) }, None);
        // SAFETY: live, and used no more.
        unsafe { heap.free(out, layout(9000)) };
        // SAFETY: live, and used no more.
        unsafe { heap.free(behind, layout(8)) };
        assert_eq!(live(&heap), [(0, 0); 4]);
    }
    assert_eq!(heap.tasks().map(|task| task.peak), [0, 12_000, 0, 8], "old and new place, while one was copied");
    assert_eq!(heap.counters().refused, 0);
    heap.check().expect("every invariant holds");
}

#[test]
fn refused_frees_are_charged_to_no_task() {
    let heap: Heap<Checked<Bounded>> = Heap::empty();
    heap_arena!(heap, 4096).expect("memory");
    let block = by(1, || heap.allocate(layout(100))).expect("room");
    let mut elsewhere = [0u64; 2];
    // SAFETY: refused: it lies in no region, and neither does the byte behind it.
    unsafe { heap.free(NonNull::from(&mut elsewhere).cast(), layout(8)) };
    // SAFETY: refused: another size.
    unsafe { heap.free(block, layout(40)) };
    assert_eq!((live(&heap)[1], heap.counters().refused), ((100, 1), 2));
    // SAFETY: live, and used no more.
    unsafe { heap.free(block, layout(100)) };
    // SAFETY: refused: it is no longer live.
    unsafe { heap.free(block, layout(100)) };
    assert_eq!((live(&heap), heap.counters().refused), ([(0, 0); 4], 3));
    let none = Layout::from_size_align(0, 8).expect("a layout");
    assert_eq!(heap.allocate(none), None, "no bytes but the task's");
}

#[test]
fn a_heap_with_a_table_refuses_foreign_blocks_unchecked() {
    let heap: Heap = Heap::empty();
    heap_arena!(heap, 4096).expect("memory");
    let mut elsewhere = [0u64; 2];
    let foreign = NonNull::from(&mut elsewhere).cast();
    // SAFETY: refused: no region has a byte for its task.
    unsafe { heap.free(foreign, layout(8)) };
    // SAFETY: as above.
    assert_eq!(unsafe { heap.reallocate(foreign, layout(8), 4) }, None);
    assert_eq!((heap.counters().refused, live(&heap)), (2, [(0, 0); 4]));
    heap.check().expect("every invariant holds");
}

#[test]
fn deferred_frees_and_retries_are_charged_right() {
    static HEAP: FirmwareHeap<Small, 1, FreeQueue<4>, Table> = FirmwareHeap::empty();
    heap_arena!(HEAP, 4096).expect("memory");
    let blocks: Vec<_> = std::iter::from_fn(|| by(1, || HEAP.allocate(layout(500)))).collect();
    assert_eq!(HEAP.task(1).blocks, blocks.len());
    let later = blocks.iter().take(3);
    // SAFETY: live, and used no more.
    later.for_each(|&block| by(2, || unsafe { HEAP.free_later(block, layout(500)) }).expect("four places"));
    assert_eq!(HEAP.task(1).blocks, blocks.len(), "until a call completes them");
    let large = by(3, || HEAP.allocate(layout(1200))).expect("once all three are free");
    assert_eq!((HEAP.task(1).blocks, HEAP.task(2).peak), (blocks.len() - 3, 0));
    assert_eq!((HEAP.task(3).live, HEAP.task(3).blocks), (1200, 1));
    // SAFETY: live, and used no more.
    unsafe { HEAP.dealloc(large.as_ptr(), layout(1200)) };
    assert_eq!(HEAP.task(3).live, 0);
}

#[test]
fn threads_are_charged_apart_while_they_free_each_others_blocks() {
    static HEAP: Heap<Checked<Bounded>> = Heap::empty();
    heap_arena!(HEAP, if cfg!(miri) { 1 << 14 } else { 1 << 18 }).expect("memory");
    let (sender, receiver) = std::sync::mpsc::channel::<(AtomicPtr<u8>, usize)>();
    let rounds = if cfg!(miri) { 40 } else { 4000 };
    let giver = std::thread::spawn(move || {
        RUNNING.set(1);
        for i in 0..rounds {
            let block = HEAP.allocate(layout(1 + i % 90)).expect("room");
            sender.send((AtomicPtr::new(block.as_ptr()), 1 + i % 90)).expect("the other thread listens");
        }
    });
    RUNNING.set(2);
    let mut own = Vec::new();
    for (block, size) in receiver {
        own.push(HEAP.allocate(layout(24)).expect("room"));
        let block = NonNull::new(block.into_inner()).expect("a block");
        // SAFETY: the other thread allocated it, and uses it no more.
        unsafe { HEAP.free(block, layout(size)) };
        if own.len() > 50 {
            // SAFETY: live, and used no more.
            own.drain(..).for_each(|block| unsafe { HEAP.free(block, layout(24)) });
        }
    }
    giver.join().expect("no panic");
    assert_eq!(live(&HEAP), [(0, 0), (0, 0), (24 * own.len(), own.len()), (0, 0)]);
    assert!(HEAP.task(1).peak >= rounds.min(90) && HEAP.task(2).peak == 24 * rounds.min(51));
    HEAP.check().expect("every invariant holds");
}
