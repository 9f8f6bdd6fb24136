//! The board: QEMU's `virt` with its virtualization extensions, which starts programs at EL2, as a hypervisor is.
//!
//! Promises upward: `main` runs on the first core with a stack, cleared variables and normal cached memory; [`start_second`]
//! runs `second` on the other core; [`Uart`] prints; [`finish`] ends the machine.
//! Asks from below: the addresses below, which are the machine's, and PSCI behind `smc`.
#![no_std]

use core::arch::{asm, global_asm};
use core::fmt;
use core::panic::PanicInfo;

/// The data register of a PL011 UART, which the emulator always takes a byte from.
const UART: *mut u32 = 0x0900_0000 as *mut u32;
/// PSCI (Arm DEN0022): start a core.
const CPU_ON: u64 = 0xC400_0003;
/// PSCI: end the machine.
const SYSTEM_OFF: u64 = 0x8400_0008;

// Atomic operations need normal memory: `enable` maps the first GiB as devices, the second as normal memory shared between
// cores, and turns the caches on. A table of level 1, 39 bits of addresses, of which two entries are used:
//   device  0x441 = block, access flag, bit 6 (always 1), attribute 0; bit 54: never executed
//   normal  0x745 = block, access flag, bit 6, inner shareable, attribute 1
// MAIR attribute 0 = 0x00 (nGnRnE device), 1 = 0xFF (write-back). TCR_EL2: T0SZ 25, write-back and inner shareable walks,
// 4 KiB granule, 40 address bits, and the bits that are always 1. SCTLR_EL2: M, C, I, and the bits that are always 1.
// CPTR_EL2 0x33ff: floating point is not trapped.
global_asm!(
    ".section .text.start",
    ".global _start",
    "_start:",
    "ldr x1, =_bss",
    "ldr x2, =_bss_end",
    "1: cmp x1, x2",
    "b.hs 2f",
    "stp xzr, xzr, [x1], #16",
    "b 1b",
    "2: ldr x1, =_stack",
    "mov sp, x1",
    "bl enable",
    "bl main",
    ".global _start_second",
    "_start_second:",
    "ldr x1, =_stack_second",
    "mov sp, x1",
    "bl enable",
    "bl second",
    "enable:",
    "ldr x0, =table",
    "mov x1, #0x441",
    "movk x1, #0x40, lsl #48",
    "str x1, [x0]",
    "ldr x1, =0x40000745",
    "str x1, [x0, #8]",
    "dsb sy",
    "msr ttbr0_el2, x0",
    "mov x1, #0xff00",
    "msr mair_el2, x1",
    "ldr x1, =0x80823519",
    "msr tcr_el2, x1",
    "mov x1, #0x33ff",
    "msr cptr_el2, x1",
    "tlbi alle2",
    "dsb sy",
    "isb",
    "ldr x1, =0x30c51835",
    "msr sctlr_el2, x1",
    "isb",
    "ret",
    ".section .bss.table, \"aw\", @nobits",
    ".balign 4096",
    "table: .space 4096",
);

/// The console. One core at a time.
#[derive(Debug)]
pub struct Uart;

impl fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the device's register, which takes any byte.
        text.bytes().for_each(|byte| unsafe { UART.write_volatile(u32::from(byte)) });
        Ok(())
    }
}

/// 2 for EL2.
pub fn exception_level() -> u64 {
    let level: u64;
    // SAFETY: reads a register and nothing else.
    unsafe { asm!("mrs {}, CurrentEL", out(reg) level, options(nomem, nostack)) };
    level >> 2
}

/// Starts the other core, which runs `second`. False: the firmware refused.
pub fn start_second() -> bool {
    unsafe extern "C" {
        fn _start_second();
    }
    // Core 1, where it starts, and a word for it.
    psci(CPU_ON, 1, (_start_second as *const ()).addr() as u64, 0) == 0
}

/// Ends the machine. Its status is 0 in any case; what was printed says how it went.
pub fn finish() -> ! {
    psci(SYSTEM_OFF, 0, 0, 0);
    loop {
        core::hint::spin_loop();
    }
}

/// Calls the firmware.
fn psci(function: u64, first: u64, second: u64, third: u64) -> u64 {
    let result;
    // SAFETY: the firmware keeps the registers that are not named here (SMCCC), and touches no memory of ours.
    unsafe {
        asm!(
            "smc #0",
            inout("x0") function => result,
            inout("x1") first => _, inout("x2") second => _, inout("x3") third => _,
            out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _, out("x10") _,
            out("x11") _, out("x12") _, out("x13") _, out("x14") _, out("x15") _, out("x16") _, out("x17") _,
        );
    }
    result
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    finish()
}
