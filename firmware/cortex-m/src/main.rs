//! A Cortex-M program with a heap: `Box`, `Vec`, `String` and maps as anywhere else.
//!
//! Prints through semihosting: a debugger's console, or QEMU's.
#![no_std]
#![no_main]

use core::panic::PanicInfo;

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hio};
use terrace_embedded::{FirmwareHeap, heap_arena};

#[global_allocator]
static HEAP: FirmwareHeap = FirmwareHeap::empty();

/// Half of the RAM of the smallest board.
const HEAP_BYTES: usize = 8 * 1024;

#[entry]
fn main() -> ! {
    let passed = heap_arena!(HEAP, HEAP_BYTES).is_ok()
        && hio::hstdout()
            .is_ok_and(|mut out| exercise::run(&mut out, size_of::<FirmwareHeap>(), || HEAP.stats()).is_ok());
    finish(passed)
}

fn finish(passed: bool) -> ! {
    debug::exit(if passed { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
    loop {
        cortex_m::asm::wfi();
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    finish(false)
}
