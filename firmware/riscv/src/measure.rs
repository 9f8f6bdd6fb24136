//! The calls that are counted, and nothing else.
#![no_std]
#![no_main]

use core::fmt::Write;
use core::mem::MaybeUninit;

use board::{Uart, finish};
use measure::{STATE, measure};

/// As much as is filled within seconds, one instruction at a time.
const BYTES: usize = 64 << 10;

// Nothing clears it at the start, one instruction at a time.
#[unsafe(link_section = ".uninit.arena")]
static mut ARENA: [MaybeUninit<u8>; BYTES] = [MaybeUninit::uninit(); BYTES];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let arena = &raw mut ARENA;
    // SAFETY: the only reference that is ever made.
    let whole = measure(unsafe { &mut *arena });
    let said = writeln!(Uart, "state {} {}\n{}", STATE[0], STATE[1], if whole { "PASS" } else { "FAIL" });
    finish(whole && said.is_ok())
}
