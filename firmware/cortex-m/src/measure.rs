//! The calls that are counted, and nothing else.
#![no_std]
#![no_main]

use core::mem::MaybeUninit;
use core::panic::PanicInfo;

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};
use measure::{STATE, measure};

/// Half of the RAM of the smallest board; elsewhere as much as is filled within seconds, one instruction at a time.
const BYTES: usize = if cfg!(target_feature = "v7") { 64 << 10 } else { 8 << 10 };

// Nothing clears it at the start, one instruction at a time.
#[unsafe(link_section = ".uninit.arena")]
static mut ARENA: [MaybeUninit<u8>; BYTES] = [MaybeUninit::uninit(); BYTES];

#[entry]
fn main() -> ! {
    let arena = &raw mut ARENA;
    // SAFETY: the only reference that is ever made.
    let whole = measure(unsafe { &mut *arena });
    hprintln!("state {} {}\n{}", STATE[0], STATE[1], if whole { "PASS" } else { "FAIL" });
    finish(whole)
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
