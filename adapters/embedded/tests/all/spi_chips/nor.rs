//! A W25Q16 or a chip like it in SPI mode, with sectors of 4 KiB and pages of 256 bytes.
//!
//! Promises upward: as the data sheets say, except that a program command that would wrap around in its page is an error, and so
//! is each command that the chip would ignore: while it is busy, or a change without write enable.
//! Asks from below: the bytes of one transaction, and the time.

use super::{Byte, Chip, Wrong, address, run, sent};

/// Microseconds for a page, for a sector, and to wake up.
const PROGRAM_US: u64 = 700;
const ERASE_US: u64 = 45_000;
const WAKE_US: u64 = 30;

/// The chip.
pub struct NorModel {
    pub memory: Vec<u8>,
    /// The capacity that it reports, as log2.
    pub log2: u8,
    /// Address of a byte that can no longer be programmed.
    pub worn: Option<usize>,
    /// Whether it stays busy for ever.
    pub hangs: bool,
    pub erased: usize,
    pub programmed: usize,
    busy_until: u64,
    asleep: bool,
    enabled: bool,
}

impl NorModel {
    /// A chip in deep power-down, with arbitrary contents.
    pub fn new(log2: u8) -> Self {
        let memory = (0..1u32 << log2).map(|i| (i * 5 + (i >> 9)) as u8).collect();
        let (worn, hangs) = (None, false);
        Self { memory, log2, worn, hangs, erased: 0, programmed: 0, busy_until: 0, asleep: true, enabled: false }
    }

    fn change(&mut self, now_us: u64, takes_us: u64) -> Result<(), Wrong> {
        if !std::mem::replace(&mut self.enabled, false) {
            return Err(Wrong::NotReady);
        }
        self.busy_until = if self.hangs { u64::MAX } else { now_us + takes_us };
        Ok(())
    }

    fn program(&mut self, now_us: u64, bytes: &mut [Byte<'_>]) -> Result<(), Wrong> {
        let start = address(bytes, self.memory.len())?;
        let end = start / 256 * 256 + 256;
        let mut data = vec![0xFF; self.memory.len()];
        run(&mut data, &mut bytes[4..], true, |i| Some(start + i).filter(|&at| at < end))?;
        self.change(now_us, PROGRAM_US)?;
        let worn = self.worn.filter(|&at| (start..end).contains(&at)).map(|at| (at, self.memory[at]));
        self.memory[start..end].iter_mut().zip(&data[start..end]).for_each(|(is, data)| *is &= data);
        worn.into_iter().for_each(|(at, was)| self.memory[at] = was);
        self.programmed += 1;
        Ok(())
    }
}

impl Chip for NorModel {
    fn select(&mut self, now_us: u64, bytes: &mut [Byte<'_>]) -> Result<(), Wrong> {
        let [command] = sent(bytes)?;
        let busy = now_us < self.busy_until;
        match command {
            0xAB if self.asleep => {
                self.asleep = false;
                self.busy_until = now_us + WAKE_US;
                Ok(())
            }
            0xAB => Ok(()),
            0x05 if !self.asleep => {
                let status = u8::from(busy) | u8::from(self.enabled) << 1;
                run(&mut [status], bytes.get_mut(1..).ok_or(Wrong::CutShort)?, false, |_| Some(0))
            }
            _ if busy || self.asleep => Err(Wrong::NotReady),
            0x9F => run(&mut [0xEF, 0x40, self.log2], &mut bytes[1..], false, |i| Some(i).filter(|&i| i < 3)),
            0x06 => {
                self.enabled = true;
                if bytes.len() == 1 { Ok(()) } else { Err(Wrong::Wraps) }
            }
            0x03 => {
                let (start, end) = (address(bytes, self.memory.len())?, self.memory.len());
                run(&mut self.memory, &mut bytes[4..], false, |i| Some(start + i).filter(|&at| at < end))
            }
            0x02 => self.program(now_us, bytes),
            0x20 if bytes.len() == 4 => {
                let start = address(bytes, self.memory.len())? / 4096 * 4096;
                self.change(now_us, ERASE_US)?;
                self.memory[start..start + 4096].fill(0xFF);
                self.erased += 1;
                Ok(())
            }
            0x20 => Err(Wrong::Wraps),
            other => Err(Wrong::Command(other)),
        }
    }
}
