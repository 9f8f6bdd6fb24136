//! Checks of every structure while other threads allocate and free: none is taken for a violation, and none faults.

use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_host::{Global, Heap, check};

#[global_allocator]
static A: Global = Global::new();

#[test]
fn a_check_goes_through_while_other_threads_allocate() {
    let (heap, done) = (Heap::new().expect("a heap"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (heap, done) = (&heap, &done);
            scope.spawn(move || {
                for turn in first.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let own = Heap::new().expect("a heap");
                    // Spans come and go, and large blocks of one and of two slices.
                    for bytes in [turn * 7 % 5000 + 1, 40_000, 70_000, 130_000] {
                        let layout = Layout::from_size_align(bytes, 16).expect("a layout");
                        own.allocate(layout).expect("memory");
                        let block = heap.allocate(layout).expect("memory");
                        // SAFETY: our block, of this layout.
                        unsafe { heap.deallocate(block, layout) };
                        drop(vec![1u8; bytes]);
                    }
                }
            });
        }
        let sound = (0..500).try_for_each(|_| check());
        done.store(true, Ordering::Relaxed);
        sound.expect("every structure agrees");
    });
    check().expect("every structure agrees");
}
