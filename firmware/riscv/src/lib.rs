//! The board: QEMU's `virt` with one hart in machine mode.
//!
//! Promises upward: `main` runs with a stack and cleared variables; [`Uart`] prints; [`finish`] ends the machine.
//! Asks from below: the addresses below, which are the machine's.
#![no_std]

use core::arch::global_asm;
use core::fmt;
use core::panic::PanicInfo;

// Links the critical section in.
use riscv as _;

/// The transmit register of a 16550 UART, which the emulator always takes a byte from.
const UART: *mut u8 = 0x1000_0000 as *mut u8;
/// The "sifive_test" device ends the machine.
const TEST: *mut u32 = 0x10_0000 as *mut u32;
/// With status 0.
const TEST_PASS: u32 = 0x5555;
/// With status 1: it stands in the high half.
const TEST_FAIL: u32 = 1 << 16 | 0x3333;

global_asm!(
    ".section .text.start",
    ".global _start",
    "_start:",
    ".option push",
    ".option norelax",
    "la sp, _stack",
    "la t0, _bss",
    "la t1, _bss_end",
    "1: bgeu t0, t1, 2f",
    "sw zero, (t0)",
    "addi t0, t0, 4",
    "j 1b",
    "2: call main",
    ".option pop",
);

/// The console.
#[derive(Debug)]
pub struct Uart;

impl fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the device's register, which takes any byte.
        text.bytes().for_each(|byte| unsafe { UART.write_volatile(byte) });
        Ok(())
    }
}

/// Ends the machine.
pub fn finish(passed: bool) -> ! {
    // SAFETY: the device's register; the machine stops here.
    unsafe { TEST.write_volatile(if passed { TEST_PASS } else { TEST_FAIL }) };
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    finish(false)
}
