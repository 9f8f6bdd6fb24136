//! The program of `adapters/embedded/README.md`, which a test compares with this file.
#![no_std]
#![no_main]
extern crate alloc;

use alloc::{boxed::Box, vec::Vec};
use cortex_m::asm::wfi;
use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};
use terrace_embedded::{FirmwareHeap, heap_arena};

#[global_allocator]
static HEAP: FirmwareHeap = FirmwareHeap::empty();

#[entry]
fn main() -> ! {
    heap_arena!(HEAP, 32 * 1024).expect("main runs once");
    let squares: Vec<u32> = (0..1000).map(|i| i * i).collect();
    let last = Box::new(squares[999]);
    hprintln!("{}: {}", last, HEAP.stats());
    debug::exit(debug::EXIT_SUCCESS);
    loop {
        wfi();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    debug::exit(debug::EXIT_FAILURE);
    loop {
        wfi();
    }
}
