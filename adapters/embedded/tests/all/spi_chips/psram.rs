//! An ESP-PSRAM64 or LY68L6400 in SPI mode.
//!
//! Promises upward: as the data sheets say, except that a transfer that would wrap around in its page is an error.
//! Asks from below: the bytes of one transaction, and the time.

use super::{Byte, Chip, Wrong, address, run, sent};

/// Microseconds from power-up to the first command.
const POWER_UP_US: u64 = 150;
/// Microseconds after a reset.
const RESET_US: u64 = 50;

/// The chip.
pub struct PsramModel {
    pub memory: Vec<u8>,
    /// Bytes of a page.
    pub page: usize,
    /// The "known good die" byte.
    pub good: u8,
    /// The most bytes of a transaction, command included: 8 us of the bus's clock.
    pub longest: usize,
    /// Whether READ without a wait byte is too fast for the bus's clock.
    pub fast_only: bool,
    /// The time from which it takes commands; `None` before the first reset.
    ready: Option<u64>,
    /// Whether the last command was RESET ENABLE.
    enabled: bool,
}

impl PsramModel {
    /// A chip at power-up. `capacity` in bytes; `longest`: the most bytes of a transaction.
    pub fn new(capacity: usize, longest: usize) -> Self {
        let memory = (0..capacity).map(|i| (i * 13 + (i >> 10)) as u8).collect();
        Self { memory, page: 1024, good: 0x5D, longest, fast_only: false, ready: None, enabled: false }
    }

    fn data(&mut self, command: u8, wait: usize, bytes: &mut [Byte<'_>]) -> Result<(), Wrong> {
        let start = address(bytes, self.memory.len())?;
        if wait == 1 {
            let [_, _, _, _, _] = sent(bytes)?;
        }
        let end = start / self.page * self.page + self.page;
        let place = |i| Some(start + i).filter(|&at| at < end);
        run(&mut self.memory, &mut bytes[4 + wait..], command == 0x02, place)
    }
}

impl Chip for PsramModel {
    fn select(&mut self, now_us: u64, bytes: &mut [Byte<'_>]) -> Result<(), Wrong> {
        let [command] = sent(bytes)?;
        let enabled = std::mem::replace(&mut self.enabled, false);
        if bytes.len() > self.longest {
            return Err(Wrong::Burst(bytes.len()));
        }
        match command {
            0x66 if now_us >= POWER_UP_US => {
                self.enabled = true;
                Ok(())
            }
            0x99 if enabled => {
                self.ready = Some(now_us + RESET_US);
                Ok(())
            }
            0x02 | 0x03 | 0x0B | 0x9F if self.ready.is_none_or(|ready| now_us < ready) => Err(Wrong::NotReady),
            0x66 | 0x99 => Err(Wrong::NotReady),
            0x9F => {
                // The chip ignores the address; the rest of the answer is the maker's own.
                let [_, _, _, _] = sent(bytes)?;
                run(&mut [0x0D, self.good], &mut bytes[4..], false, |i| Some(i).filter(|&i| i < 2))
            }
            0x03 if self.fast_only => Err(Wrong::Command(0x03)),
            0x0B => self.data(command, 1, bytes),
            0x02 | 0x03 => self.data(command, 0, bytes),
            other => Err(Wrong::Command(other)),
        }
    }
}
