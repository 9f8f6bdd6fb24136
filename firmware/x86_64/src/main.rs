//! A kernel's skeleton: a heap behind a spin lock, and a serial port. A boot loader that enters at `_start` in 64-bit mode
//! with a stack is left to you; this program is built, not run.
#![no_std]
#![no_main]

use core::arch::asm;
use core::fmt;
use core::panic::PanicInfo;

use terrace_embedded::{SpinHeap, heap_arena};

#[global_allocator]
static HEAP: SpinHeap = SpinHeap::empty();

/// The data register of the first serial port.
const COM1: u16 = 0x3F8;

struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: writes a byte to a port and nothing else.
            unsafe { asm!("out dx, al", in("dx") COM1, in("al") byte, options(nomem, nostack)) };
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    if heap_arena!(HEAP, 1024 * 1024).is_ok() {
        let _ = exercise::run(&mut Serial, size_of::<SpinHeap>(), || HEAP.stats());
    }
    halt()
}

fn halt() -> ! {
    loop {
        // SAFETY: waits for an interrupt and does nothing else.
        unsafe { asm!("hlt", options(nomem, nostack)) };
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    halt()
}
