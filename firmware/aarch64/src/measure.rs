//! The calls that are counted, and nothing else.
#![no_std]
#![no_main]

use board::{Uart, finish};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    // What was printed says how it went.
    measure::report(&mut Uart);
    finish()
}

/// The second core is never started here.
#[unsafe(no_mangle)]
extern "C" fn second() -> ! {
    finish()
}
