//! A 23LC1024 in SPI mode.
//!
//! Promises upward: as DS20005142 says, except that a transfer that would wrap around is an error.
//! Asks from below: the bytes of one transaction.

use super::{Byte, Chip, Wrong, address, run, sent};

/// The chip.
pub struct SramModel {
    pub memory: Vec<u8>,
    /// The mode register. 0x40 (sequential) after power-up.
    pub mode: u8,
    /// Bits of the mode register that cannot be set: a broken or another chip.
    pub stuck: u8,
    /// The mode it works in, if not that of its register: as if a glitch had changed it after it was read back.
    pub acts_as: Option<u8>,
}

impl SramModel {
    /// A chip after power-up, with arbitrary contents.
    pub fn new() -> Self {
        Self {
            memory: (0..1 << 17).map(|i: u32| (i * 7 + (i >> 8)) as u8).collect(),
            mode: 0x40,
            stuck: 0,
            acts_as: None,
        }
    }
}

impl Chip for SramModel {
    fn select(&mut self, _: u64, bytes: &mut [Byte<'_>]) -> Result<(), Wrong> {
        let [command] = sent(bytes)?;
        match command {
            0x01 => {
                let [_, mode] = sent(bytes)?;
                self.mode = mode & !self.stuck;
                if bytes.len() == 2 { Ok(()) } else { Err(Wrong::Wraps) }
            }
            0x05 => run(&mut [self.mode], bytes.get_mut(1..).ok_or(Wrong::CutShort)?, false, |_| Some(0)),
            0x02 | 0x03 => {
                let start = address(bytes, self.memory.len())?;
                let end = match self.acts_as.unwrap_or(self.mode) & 0xC0 {
                    0x00 => start + 1,
                    0x80 => start / 32 * 32 + 32,
                    _ => self.memory.len(),
                };
                let place = |i| Some(start + i).filter(|&at| at < end);
                run(&mut self.memory, &mut bytes[4..], command == 0x02, place)
            }
            other => Err(Wrong::Command(other)),
        }
    }
}
