//! A RISC-V program with a heap, on QEMU's `virt`.
#![no_std]
#![no_main]

use board::{Uart, finish};
use terrace_embedded::{FirmwareHeap, heap_arena};

#[global_allocator]
static HEAP: FirmwareHeap = FirmwareHeap::empty();

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let passed = heap_arena!(HEAP, 32 * 1024).is_ok()
        && exercise::run(&mut Uart, size_of::<FirmwareHeap>(), || HEAP.stats()).is_ok();
    finish(passed)
}
