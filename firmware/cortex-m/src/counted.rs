//! Answers a host's questions about heaps, line by line: what is asked on the emulator's standard input is answered on its
//! standard output. See the crate `counted`. For the larger board, and an emulator whose clock instructions move.
#![no_std]
#![no_main]

use core::arch::naked_asm;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::ptr::NonNull;

use cortex_m::peripheral::syst::SystClkSource;
use cortex_m::peripheral::{Peripherals, SYST};
use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, nr, syscall};
use counted::{Clock, Known, Memory, answer};
use measure::calls::Calls;

/// The board's second memory, which the start-up code leaves alone.
const PSRAM: *mut u8 = 0x2100_0000 as *mut u8;
/// What the largest workload needs, of 16 MiB.
const BYTES: usize = 4 << 20;
/// A question's longest: 120 calls of at most 31 characters, and a heap's name.
const LINE: usize = 4096;

/// The timer that every Cortex-M has.
struct SysTick;

/// Nanoseconds of a tick: 25 MHz.
const TICK: u32 = 40;
/// Nanoseconds of an instruction: as the emulator is told, 2^9.
const INSTRUCTION: u32 = 512;
/// It counts down, 24 bits of it.
const LAST_TICK: u32 = 0xff_ffff;

impl Clock for SysTick {
    #[inline(always)]
    fn now() -> u32 {
        SYST::get_current()
    }

    /// To the nearest: a tick more or less does not matter. 2^24 ticks of 40 ns are below 2^32.
    fn instructions(from: u32, to: u32) -> u32 {
        ((from.wrapping_sub(to) & LAST_TICK) * TICK + INSTRUCTION / 2) / INSTRUCTION
    }
}

/// Functions of one instruction, whatever they are called with.
mod nothing {
    use super::*;

    #[unsafe(naked)]
    pub extern "C" fn alloc(_: usize, _: usize) -> *mut u8 {
        naked_asm!("bx lr")
    }

    #[unsafe(naked)]
    pub extern "C" fn free(_: NonNull<u8>, _: usize, _: usize) {
        naked_asm!("bx lr")
    }

    #[unsafe(naked)]
    pub extern "C" fn resize(_: NonNull<u8>, _: usize, _: usize, _: usize) -> bool {
        naked_asm!("bx lr")
    }
}

/// The same with ten more.
mod ten {
    use super::*;

    #[unsafe(naked)]
    pub extern "C" fn alloc(_: usize, _: usize) -> *mut u8 {
        naked_asm!(".rept 10", "nop", ".endr", "bx lr")
    }

    #[unsafe(naked)]
    pub extern "C" fn free(_: NonNull<u8>, _: usize, _: usize) {
        naked_asm!(".rept 10", "nop", ".endr", "bx lr")
    }

    #[unsafe(naked)]
    pub extern "C" fn resize(_: NonNull<u8>, _: usize, _: usize, _: usize) -> bool {
        naked_asm!(".rept 10", "nop", ".endr", "bx lr")
    }
}

const NOTHING: Calls = Calls {
    fresh: |_, _| true,
    sound: || true,
    empty: || true,
    alloc: nothing::alloc,
    free: nothing::free,
    resize: nothing::resize,
};

const KNOWN: Known =
    Known { nothing: NOTHING, ten: Calls { alloc: ten::alloc, free: ten::free, resize: ten::resize, ..NOTHING } };

/// A file of the machine that emulates.
struct Host(usize);

impl Host {
    /// A name that ends in 0, and a mode of `nr::open`.
    fn open(name: &[u8], mode: usize) -> Option<Self> {
        // SAFETY: the call takes an address, a mode, and a length without the 0.
        let file = unsafe { syscall!(OPEN, name.as_ptr(), mode, name.len() - 1) };
        (file as isize != -1).then_some(Self(file))
    }

    /// As many bytes as there are, at least one; 0 at the end.
    fn read(&self, into: &mut [u8]) -> usize {
        // SAFETY: the call writes at most so many bytes there, and returns how many it did not.
        let missing = unsafe { syscall!(READ, self.0, into.as_mut_ptr(), into.len()) };
        into.len().saturating_sub(missing)
    }
}

impl fmt::Write for Host {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the call reads so many bytes there, and returns how many it did not write.
        let missing = unsafe { syscall!(WRITE, self.0, text.as_ptr(), text.len()) };
        if missing == 0 { Ok(()) } else { Err(fmt::Error) }
    }
}

/// A line of an answer: one write instead of one for each piece.
#[derive(Default)]
struct Line {
    bytes: [u8; 32],
    used: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.used..self.used + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

#[entry]
fn main() -> ! {
    if let Some(mut peripherals) = Peripherals::take() {
        peripherals.SYST.set_clock_source(SystClkSource::Core);
        peripherals.SYST.set_reload(LAST_TICK);
        peripherals.SYST.clear_current();
        peripherals.SYST.enable_counter();
    }
    finish(serve().is_some())
}

/// Until there are no more questions.
fn serve() -> Option<()> {
    let input = Host::open(b"/dev/stdin\0", nr::open::R)?;
    let mut output = Host::open(b"/dev/stdout\0", nr::open::W_TRUNC)?;
    let (mut line, mut used) = ([0; LINE], 0);
    loop {
        let read = input.read(line.get_mut(used..)?);
        if read == 0 {
            return (used == 0).then_some(());
        }
        used += read;
        while let Some(end) = line[..used].iter().position(|&byte| byte == b'\n') {
            reply(core::str::from_utf8(&line[..end]).ok()?, &mut output)?;
            line.copy_within(end + 1..used, 0);
            used -= end + 1;
        }
    }
}

fn reply(question: &str, output: &mut Host) -> Option<()> {
    let memory = Memory { start: NonNull::new(PSRAM)?, bytes: BYTES };
    let mut said = Line::default();
    // SAFETY: nothing else uses this memory.
    unsafe { answer::<SysTick>(question, memory, &KNOWN, &mut said) }.ok()?;
    output.write_str(core::str::from_utf8(&said.bytes[..said.used]).ok()?).ok()
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
