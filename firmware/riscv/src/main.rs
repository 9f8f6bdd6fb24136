//! A RISC-V program with a heap, on QEMU's `virt`.
#![no_std]
#![no_main]

use board::{Uart, finish};
use terrace_embedded::{Heap, heap_arena};

#[global_allocator]
static HEAP: Heap = Heap::empty();

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let passed =
        heap_arena!(HEAP, 32 * 1024).is_ok() && exercise::run(&mut Uart, size_of::<Heap>(), || HEAP.stats()).is_ok();
    finish(passed)
}
