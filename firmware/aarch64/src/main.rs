//! Two cores at EL2 that share a heap: each frees what the other allocated.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec;
use core::fmt::Write;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use board::{Uart, exception_level, finish, start_second};
use terrace_embedded::{SpinHeap, heap_arena};

#[global_allocator]
static HEAP: SpinHeap = SpinHeap::empty();

/// Blocks that go from one core to the other.
const HANDED: usize = 500;

/// A block under way from the first core to the second; null when there is none.
static BLOCK: AtomicPtr<Block> = AtomicPtr::new(ptr::null_mut());
/// Blocks that the second core found right.
static RIGHT: AtomicUsize = AtomicUsize::new(0);
/// The second core is done.
static DONE: AtomicBool = AtomicBool::new(false);

struct Block {
    number: usize,
    bytes: Box<[u8]>,
}

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let ready = heap_arena!(HEAP, 64 * 1024).is_ok();
    let shared = ready && start_second() && hand_over();
    // Here the second core is done, and sleeps: the console and the heap are this one's alone.
    let said =
        writeln!(Uart, "EL{}, {} blocks from core 0 to core 1", exception_level(), RIGHT.load(Ordering::Relaxed));
    if !shared || said.is_err() || exception_level() != 2 {
        let _ = writeln!(Uart, "FAIL: two cores at EL2");
    } else {
        let _ = exercise::run(&mut Uart, size_of::<SpinHeap>(), || HEAP.stats());
    }
    finish()
}

/// Allocates blocks for the other core, and works with some of its own meanwhile. Whether all came right.
fn hand_over() -> bool {
    let mut own = vec![];
    for number in 0..HANDED {
        let bytes = vec![number as u8; 1 + number % 300].into_boxed_slice();
        let block = Box::into_raw(Box::new(Block { number, bytes }));
        while BLOCK.compare_exchange(ptr::null_mut(), block, Ordering::Release, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
        }
        own.push(vec![number; 3]);
        if number % 7 == 6 {
            own.clear();
        }
    }
    while !DONE.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    RIGHT.load(Ordering::Relaxed) == HANDED && HEAP.check().is_ok()
}

#[unsafe(no_mangle)]
extern "C" fn second() -> ! {
    for number in 0..HANDED {
        let block = loop {
            let block = BLOCK.swap(ptr::null_mut(), Ordering::Acquire);
            if !block.is_null() {
                break block;
            }
            core::hint::spin_loop();
        };
        // SAFETY: the first core made the pointer from a box and uses it no more; the swap took it once.
        let block = unsafe { Box::from_raw(block) };
        let own = vec![number as u8; 50 + number % 50];
        let right = block.number == number
            && block.bytes.iter().all(|&byte| byte == number as u8)
            && own.iter().all(|&byte| byte == number as u8);
        RIGHT.fetch_add(usize::from(right), Ordering::Relaxed);
    }
    DONE.store(true, Ordering::Release);
    loop {
        core::hint::spin_loop();
    }
}
