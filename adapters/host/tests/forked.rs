//! A forked child may use heaps that other threads of its parent were using.
#![cfg(target_os = "linux")]

use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_host::{Heap, check};

/// Enough to meet a thread that holds a heap's lock many times.
const FORKS: usize = 100;

/// Allocates a block and frees it.
fn pair(heap: &Heap) {
    let layout = Layout::new::<[u64; 8]>();
    let block = heap.allocate(layout).expect("memory");
    // SAFETY: the heap's block, of this layout.
    unsafe { heap.deallocate(block, layout) };
}

/// Forks; whether the child, which uses the heap, ends well within ten seconds.
fn child_ends_well(heap: &Heap) -> bool {
    // SAFETY: the child calls the heap, which permits that, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process if it waits for a lock that no thread of it holds.
        unsafe { libc::alarm(10) };
        pair(heap);
        // SAFETY: runs nothing of the parent's at the end.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is local and writable.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    (ended, status) == (child, 0)
}

#[test]
fn a_child_uses_heaps_that_other_threads_were_using() {
    let (heap, stop) = (&Heap::new().expect("a heap"), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    pair(heap);
                }
            });
        }
        let ended = (0..FORKS).take_while(|_| child_ends_well(heap)).count();
        stop.store(true, Relaxed);
        assert_eq!(ended, FORKS, "children that ended well, before one that did not");
    });
    check().expect("every structure agrees");
}
