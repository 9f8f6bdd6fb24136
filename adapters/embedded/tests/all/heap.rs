//! Init and its mistakes, out of memory, hooks, queues of deferred frees.

use std::alloc::{GlobalAlloc, Layout};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use terrace_embedded::{
    BadFree, Bounded, Checked, FirmwareHeap, FreeError, FreeQueue, InitError, QueueFull, RegionError, Small, heap_arena,
};

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("small")
}

/// Adds memory, of which a refusal leaves only the error.
fn add<const REGIONS: usize>(
    heap: &FirmwareHeap<Bounded, REGIONS>,
    memory: &'static mut [MaybeUninit<u8>],
) -> Result<(), InitError> {
    Ok(heap.add_memory(memory)?)
}

/// Memory for one test, leaked.
fn memory(bytes: usize) -> &'static mut [MaybeUninit<u8>] {
    Box::leak(Box::new_uninit_slice(bytes))
}

#[test]
fn before_init_every_request_fails_and_nothing_breaks() {
    static HEAP: FirmwareHeap = FirmwareHeap::empty();
    // SAFETY: the layout has bytes.
    assert!(unsafe { HEAP.alloc(layout(1)) }.is_null());
    // SAFETY: as above.
    assert!(unsafe { HEAP.alloc_zeroed(layout(4096)) }.is_null());
    // SAFETY: a null block is no block: nothing happens.
    unsafe { HEAP.dealloc(ptr::null_mut(), layout(1)) };
    assert_eq!(HEAP.counters().failures, 2);
    assert_eq!(HEAP.stats().total, 0);
    assert!(!HEAP.contains(&raw const HEAP as *const u8));
    heap_arena!(HEAP, 4096).expect("and works afterwards");
    assert!(HEAP.allocate(layout(1)).is_some());
}

#[test]
fn absurd_layouts_get_nothing() {
    static HEAP: FirmwareHeap<Small> = FirmwareHeap::empty();
    heap_arena!(HEAP, 65_536).expect("memory");
    let most = isize::MAX as usize;
    for (size, align) in [(0, 1), (most, 1), (most - 7, 8), (65_536, 1), (1, 1 << 20), (1, 1 << 62)] {
        let layout = Layout::from_size_align(size, align).expect("a layout");
        assert_eq!(HEAP.allocate(layout), None, "{layout:?}");
    }
    let half = Layout::from_size_align(100, 32_768).expect("a layout");
    let block = HEAP.allocate(half).expect("aligned to half of the arena");
    assert_eq!(block.addr().get() % 32_768, 0);
    HEAP.check().expect("every invariant holds");
}

#[test]
fn several_regions_and_every_mistake_in_giving_them() {
    let heap: FirmwareHeap<Bounded, 3> = FirmwareHeap::empty();
    // SAFETY: refused: null is no memory.
    assert_eq!(unsafe { heap.init(ptr::null_mut(), 1000) }, Err(InitError::Null));
    assert_eq!(add(&heap, memory(0)), Err(InitError::Region(RegionError::TooSmall)));
    assert_eq!(add(&heap, memory(16)), Err(InitError::Region(RegionError::TooSmall)));
    let (first, second) = memory(10_000).split_at_mut(5_000);
    let (start, bytes) = (first.as_mut_ptr().cast::<u8>(), first.len());
    heap.add_memory(first).expect("the first");
    // SAFETY: refused: the heap has it already.
    let again = unsafe { heap.init(start, bytes) };
    assert_eq!(again, Err(InitError::Region(RegionError::Overlaps)), "init twice");
    // SAFETY: refused: the heap has some of it already.
    let part = unsafe { heap.init(start.wrapping_add(100), 200) };
    assert_eq!(part, Err(InitError::Region(RegionError::Overlaps)));
    // SAFETY: refused: it would end behind the last address.
    let wrapped = unsafe { heap.init(ptr::without_provenance_mut(usize::MAX - 15), 1000) };
    assert!(wrapped.is_err(), "{wrapped:?}");
    heap.add_memory(second).expect("right behind the first");
    heap.add_memory(memory(20_000)).expect("elsewhere");
    assert_eq!(add(&heap, memory(20_000)), Err(InitError::Region(RegionError::TooMany)));

    let sizes = [15_000, 4_000, 4_000];
    let blocks = sizes.map(|size| heap.allocate(layout(size)).expect("one region for each"));
    assert!(blocks.iter().all(|block| heap.contains(block.as_ptr())));
    // SAFETY: they are live, and not used any more.
    blocks.into_iter().zip(sizes).for_each(|(block, size)| unsafe { heap.free(block, layout(size)) });
    assert_eq!((heap.stats().live, heap.counters().refused), (0, 0));
    heap.check().expect("every invariant holds");
}

#[test]
fn an_arena_is_given_once() {
    let heap: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    let give = || heap_arena!(heap, 2048);
    assert_eq!(give(), Ok(()));
    assert_eq!(give(), Err(InitError::Taken));
    assert_eq!(heap.stats().total, 2048, "no byte is lost to alignment");
}

#[test]
fn a_block_grows_where_it_is_or_moves_with_what_it_holds() {
    let heap: FirmwareHeap = FirmwareHeap::empty();
    heap.add_memory(memory(32_768)).expect("memory");
    let block = heap.allocate(layout(100)).expect("room");
    // SAFETY: the block has 100 bytes.
    unsafe { block.write_bytes(7, 100) };
    // SAFETY: live, and the size is not 0.
    let grown = unsafe { heap.reallocate(block, layout(100), 5_000) };
    assert_eq!(grown, Some(block), "nothing is behind it");
    let behind = heap.allocate(layout(8)).expect("room");
    // SAFETY: as above.
    let moved = unsafe { heap.reallocate(block, layout(5_000), 9_000) }.expect("room elsewhere");
    assert!(moved != block && moved != behind);
    // SAFETY: the first 100 bytes were written above, and moved along.
    let bytes = unsafe { std::slice::from_raw_parts(moved.as_ptr(), 100) };
    assert!(bytes.iter().all(|&byte| byte == 7));
    // SAFETY: as above.
    assert_eq!(unsafe { heap.reallocate(moved, layout(9_000), 100_000) }, None, "too much: as it was");
    // SAFETY: live; refused for its size of 0.
    assert_eq!(unsafe { heap.reallocate(moved, layout(9_000), 0) }, None);
    // SAFETY: live, and the size is not 0.
    assert_eq!(unsafe { heap.reallocate(moved, layout(9_000), 10) }, Some(moved), "smaller is always in place");
    let counters = heap.counters();
    assert_eq!((counters.requested, counters.peak), (18, 5_000 + 8 + 9_000), "both blocks lived while one was copied");
    heap.check().expect("every invariant holds");
}

#[test]
fn the_hook_makes_room_and_the_request_is_tried_again() {
    static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    static CACHE: Mutex<Vec<AtomicPtr<u8>>> = Mutex::new(Vec::new());
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    heap_arena!(HEAP, 8192).expect("memory");
    let fill = || HEAP.allocate(layout(1000)).map(|block| AtomicPtr::new(block.as_ptr()));
    CACHE.lock().expect("alone").extend(std::iter::from_fn(fill));
    let cached = CACHE.lock().expect("alone").len();
    assert!(cached >= 7, "{cached} blocks fill it");

    HEAP.on_out_of_memory(|wanted| {
        assert_eq!(wanted, layout(3000));
        CALLS.fetch_add(1, Ordering::Relaxed);
        assert_eq!(HEAP.allocate(layout(4000)), None, "a request inside fails without calling the hook again");
        let Some(block) = CACHE.lock().expect("alone").pop() else { return false };
        let block = NonNull::new(block.into_inner()).expect("a block");
        // SAFETY: live, and the cache uses it no more.
        unsafe { HEAP.free(block, layout(1000)) };
        true
    });
    let failures = HEAP.counters().failures;
    assert!(HEAP.allocate(layout(3000)).is_some());
    let calls = CALLS.load(Ordering::Relaxed);
    assert!((2..=4).contains(&calls), "once for each block that it frees: {calls}");
    assert_eq!(HEAP.counters().failures, failures + calls, "only those inside");
}

#[test]
fn a_hook_that_promises_and_frees_nothing_is_called_once() {
    static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    heap_arena!(HEAP, 1024).expect("memory");
    HEAP.on_out_of_memory(|_| CALLS.fetch_add(1, Ordering::Relaxed) < 100);
    assert_eq!(HEAP.allocate(layout(5000)), None, "no endless loop");
    assert_eq!(CALLS.swap(0, Ordering::Relaxed), 1);
    HEAP.on_out_of_memory(|_| CALLS.fetch_add(1, Ordering::Relaxed) == 0 && heap_arena!(HEAP, 8192).is_ok());
    assert!(HEAP.allocate(layout(5000)).is_some(), "a region is room too");
    assert_eq!((CALLS.load(Ordering::Relaxed), HEAP.counters().failures), (1, 1));
}

#[test]
fn a_hook_that_takes_and_frees_its_own_is_not_asked_for_ever() {
    static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    heap_arena!(HEAP, 8192).expect("memory");
    HEAP.on_out_of_memory(|_| {
        let line = HEAP.allocate(layout(80)).expect("a line of a log");
        // SAFETY: live, and used no more.
        unsafe { HEAP.free(line, layout(80)) };
        CALLS.fetch_add(1, Ordering::Relaxed) < 1000
    });
    assert_eq!(HEAP.allocate(layout(9000)), None);
    assert_eq!(CALLS.load(Ordering::Relaxed), 1, "memory use did not fall");
}

#[test]
fn a_checked_heap_reports_bad_frees_and_stays_whole() {
    static HEAP: FirmwareHeap<Checked<Bounded>> = FirmwareHeap::empty();
    static SEEN: Mutex<Vec<FreeError>> = Mutex::new(Vec::new());
    heap_arena!(HEAP, 8192).expect("memory");
    HEAP.on_bad_free(|BadFree(error)| SEEN.lock().expect("alone").push(error));
    let block = HEAP.allocate(layout(100)).expect("room");
    let _next = HEAP.allocate(layout(100)).expect("room");
    let mut elsewhere = 0u64;
    let foreign = NonNull::from(&mut elsewhere).cast();
    // SAFETY: refused: a checked heap compares the size.
    unsafe { HEAP.free(block, layout(50)) };
    // SAFETY: refused: it is not of this heap.
    unsafe { HEAP.free(foreign, layout(8)) };
    // SAFETY: live, and not used any more.
    unsafe { HEAP.free(block, layout(100)) };
    // SAFETY: refused: it is not live.
    unsafe { HEAP.free(block, layout(100)) };
    // SAFETY: refused: it is not live.
    assert_eq!(unsafe { HEAP.reallocate(block, layout(100), 200) }, None);
    let [stale, other] = [block, foreign].map(|block| block.addr().get() as u64);
    let (wrong, stale) = (FreeError::WrongLayout { address: stale }, FreeError::Stale { address: stale });
    assert_eq!(*SEEN.lock().expect("alone"), [wrong, FreeError::Foreign { address: other }, stale, stale]);
    assert_eq!((HEAP.counters().refused, HEAP.counters().frees), (4, 1));
    HEAP.check().expect("every invariant holds");
}

#[test]
fn a_queue_is_emptied_two_a_call_and_all_before_a_request_fails() {
    let heap: FirmwareHeap<Checked<Bounded>, 1, FreeQueue<8>> = FirmwareHeap::empty();
    heap.add_memory(memory(8192)).expect("memory");
    let blocks: Vec<_> = std::iter::from_fn(|| heap.allocate(layout(504))).collect();
    let failures = heap.counters().failures;
    // SAFETY: live blocks that are not used any more.
    let pushed = blocks.iter().take(8).map(|&block| unsafe { heap.free_later(block, layout(504)) });
    assert_eq!(pushed.filter(Result::is_ok).count(), 8);
    assert_eq!(heap.counters().frees, 0, "they count as live until a later call");
    // SAFETY: live until it is pushed, and it is not.
    let full = unsafe { heap.free_later(blocks[8], layout(504)) }.expect_err("eight places");
    assert_eq!(full.0.parts(), (blocks[8], layout(504)), "handed back");

    assert!(heap.allocate(layout(504)).is_some());
    assert_eq!(heap.counters().frees, 2, "two a call");
    // SAFETY: handed back, and not used any more.
    unsafe { heap.free(blocks[8], layout(504)) };
    assert_eq!(heap.counters().frees, 5, "two and its own");
    assert!(heap.allocate(layout(3000)).is_some(), "only with all of them");
    assert_eq!((heap.counters().frees, heap.counters().failures), (9, failures), "without a failure");
    assert_eq!(heap.collect(), 0);
    heap.check().expect("every invariant holds");
}

#[test]
fn a_hook_that_frees_through_the_queue_is_called_while_that_makes_room() {
    static HEAP: FirmwareHeap<Bounded, 1, FreeQueue<8>> = FirmwareHeap::empty();
    static CACHE: Mutex<Vec<AtomicPtr<u8>>> = Mutex::new(Vec::new());
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    heap_arena!(HEAP, 8192).expect("memory");
    let block = || HEAP.allocate(layout(504)).map(|block| AtomicPtr::new(block.as_ptr()));
    CACHE.lock().expect("alone").extend(std::iter::from_fn(block).take(5));
    HEAP.on_out_of_memory(|_| {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        if let Some(block) = CACHE.lock().expect("alone").pop() {
            let block = NonNull::new(block.into_inner()).expect("a block");
            // SAFETY: live, and the cache uses it no more.
            unsafe { HEAP.free_later(block, layout(504)) }.expect("eight places");
        }
        call < 100
    });
    assert_eq!(HEAP.allocate(layout(9000)), None, "more than there is");
    assert_eq!(CALLS.load(Ordering::Relaxed), 6, "five blocks, and the call that frees none");
    assert_eq!((HEAP.counters().frees, HEAP.counters().failures), (5, 1));
}

#[test]
fn without_a_queue_every_push_comes_back() {
    let heap: FirmwareHeap = FirmwareHeap::empty();
    heap.add_memory(memory(1024)).expect("memory");
    let block = heap.allocate(layout(8)).expect("room");
    // SAFETY: live, and still the caller's afterwards.
    let QueueFull(back) = unsafe { heap.free_later(block, layout(8)) }.expect_err("no queue");
    assert_eq!(back.parts(), (block, layout(8)));
    assert_eq!(heap.collect(), 0);
}
