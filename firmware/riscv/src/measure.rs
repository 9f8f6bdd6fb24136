//! The calls that are counted, and nothing else.
#![no_std]
#![no_main]

use board::{Uart, finish};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    finish(measure::report(&mut Uart))
}
