//! First-class heaps: blocks that are freed one by one, or all at once.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_host::{Global, Heap, api, check, stats, trim};

#[global_allocator]
static A: Global = Global::new();

/// One test at a time: statistics are of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fill(heap: &Heap, bytes: usize, mark: u8) -> (NonNull<u8>, Layout) {
    let layout = Layout::from_size_align(bytes, 16).expect("a layout");
    let block = heap.allocate(layout).expect("memory");
    // SAFETY: so many bytes are ours.
    unsafe { block.write_bytes(mark, bytes) };
    (block, layout)
}

#[test]
fn a_heap_goes_back_whole_and_leaves_others_alone() {
    let _alone = alone();
    let other = Heap::new().expect("a heap");
    let (kept, layout) = fill(&other, 300, 9);
    trim();
    let before = stats().reserved;
    let heap = Heap::new().expect("a heap");
    let blocks: Vec<_> = (0..5000).map(|i| fill(&heap, 1 + i * 37 % 100_000, 5)).collect();
    assert!(heap.spans() > 100 && stats().reserved > before + (100 << 20), "{}", stats());
    // Some are freed one by one, some of these as C would, by address alone.
    for (at, &(block, layout)) in blocks.iter().enumerate().step_by(3) {
        if at % 2 == 0 {
            // SAFETY: our block, of this layout.
            unsafe { heap.deallocate(block, layout) };
        } else {
            // SAFETY: our block.
            unsafe { api::free(block.as_ptr()) };
        }
    }
    // The other blocks are whole.
    for &(block, layout) in blocks.iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, block)| block) {
        // SAFETY: written above, not freed.
        let bytes = unsafe { NonNull::slice_from_raw_parts(block, layout.size()).as_ref() };
        assert!(bytes.iter().all(|&byte| byte == 5));
    }
    drop((blocks, heap));
    let after = stats().reserved;
    assert!(after <= before + (1 << 20), "{after} bytes stay of a heap that is gone, {before} before");
    // SAFETY: written above; its heap lives.
    assert!(unsafe { NonNull::slice_from_raw_parts(kept, layout.size()).as_ref() }.iter().all(|&byte| byte == 9));
    check().expect("every structure agrees");
}

#[test]
fn threads_share_a_heap() {
    let _alone = alone();
    let heap = Heap::new().expect("a heap");
    std::thread::scope(|scope| {
        for mark in 0..4 {
            let heap = &heap;
            scope.spawn(move || {
                for bytes in 1..2000 {
                    let (block, layout) = fill(heap, bytes * 7 % 5000 + 1, mark);
                    // SAFETY: written above.
                    let held = unsafe { NonNull::slice_from_raw_parts(block, layout.size()).as_ref() };
                    assert!(held.iter().all(|&byte| byte == mark));
                    if bytes % 3 != 0 {
                        // SAFETY: our block, of this layout.
                        unsafe { heap.deallocate(block, layout) };
                    }
                }
            });
        }
    });
    check().expect("every structure agrees");
}

#[test]
fn heaps_come_and_go() {
    let _alone = alone();
    for _ in 0..3000 {
        let heap = Heap::new().expect("a heap: those before are gone");
        fill(&heap, 100, 1);
        fill(&heap, 70_000, 1);
    }
    check().expect("every structure agrees");
}
