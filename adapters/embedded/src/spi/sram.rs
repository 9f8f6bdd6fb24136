//! Microchip's 23LC1024 and its like: 128 KiB of static RAM, no waiting, no refresh.
//!
//! Promises upward: transfers of any length in any of the chip's three modes, cut where the mode asks for it.
//! Asks from below: a `SpiDevice` whose transactions hold the chip select.
//!
//! ```text
//! READ   03 aa aa aa | d0 d1 ...      byte mode:        one byte, whatever follows
//! WRITE  02 aa aa aa | d0 d1 ...      page mode:        wraps at the end of a page of 32 bytes
//! RDMR   05          | mode           sequential mode:  wraps at the end of the chip
//! WRMR   01 mode
//! ```
//!
//! Commands, modes and sizes: Microchip DS20005142, sections 2.2 to 2.6.

use embedded_hal::spi::SpiDevice;

use super::{SpiError, SpiMemory, check_bounds, command_read, command_write, header};

const READ: u8 = 0x03;
const WRITE: u8 = 0x02;
const READ_MODE: u8 = 0x05;
const WRITE_MODE: u8 = 0x01;

/// 17 address bits: 2^17 bytes.
const CAPACITY: u32 = 1 << 17;
/// Bytes of a page: 5 address bits.
const PAGE: u32 = 1 << 5;
/// The mode is in the two highest bits of its register; the others are kept 0.
const MODE_BITS: u8 = 0b1100_0000;

/// How the chip goes on after a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SramMode {
    /// It does not: one byte a transaction.
    Byte = 0b0000_0000,
    /// To the next byte of its page of 32: at most a page a transaction.
    Page = 0b1000_0000,
    /// To the next byte of the chip: one transaction for everything.
    #[default]
    Sequential = 0b0100_0000,
}

/// A 23LC1024 (or 23A1024), in SPI mode.
#[derive(Debug)]
pub struct Sram23<D> {
    device: D,
    /// What the mode register holds.
    mode: SramMode,
}

impl<D: SpiDevice> Sram23<D> {
    /// Sets the mode and reads it back. The chip keeps what it holds.
    ///
    /// # Errors
    /// [`SpiError::WrongMode`] when another value comes back: no chip there, or another one.
    pub fn open(device: D, mode: SramMode) -> Result<Self, SpiError<D::Error>> {
        let mut chip = Self { device, mode };
        chip.set_mode(mode)?;
        Ok(chip)
    }

    /// Sets another mode and reads it back.
    ///
    /// # Errors
    /// As [`Sram23::open`]. Call it again before the chip is used: its mode is not known.
    pub fn set_mode(&mut self, mode: SramMode) -> Result<(), SpiError<D::Error>> {
        let written = mode as u8;
        self.device.write(&[WRITE_MODE, written]).map_err(SpiError::Bus)?;
        let mut found = [0];
        command_read(&mut self.device, &[READ_MODE], &mut found)?;
        let [found] = found;
        if found & MODE_BITS != written {
            return Err(SpiError::WrongMode { written, found });
        }
        self.mode = mode;
        Ok(())
    }

    /// The device, for other uses.
    pub fn release(self) -> D {
        self.device
    }

    /// Of so many bytes at an address, as many as one transaction may have.
    fn transfer_len(&self, address: u32, bytes: usize) -> usize {
        match self.mode {
            SramMode::Byte => bytes.min(1),
            SramMode::Page => bytes.min((PAGE - address % PAGE) as usize),
            SramMode::Sequential => bytes,
        }
    }
}

impl<D: SpiDevice> SpiMemory for Sram23<D> {
    type Error = D::Error;

    fn capacity(&self) -> u32 {
        CAPACITY
    }

    fn read(&mut self, mut address: u32, mut bytes: &mut [u8]) -> Result<(), SpiError<D::Error>> {
        check_bounds(CAPACITY, address, bytes.len())?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at_mut(self.transfer_len(address, bytes.len()));
            command_read(&mut self.device, &header(READ, address), now)?;
            (address, bytes) = (address + now.len() as u32, later);
        }
        Ok(())
    }

    fn write(&mut self, mut address: u32, mut bytes: &[u8]) -> Result<(), SpiError<D::Error>> {
        check_bounds(CAPACITY, address, bytes.len())?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(self.transfer_len(address, bytes.len()));
            command_write(&mut self.device, &header(WRITE, address), now)?;
            (address, bytes) = (address + now.len() as u32, later);
        }
        Ok(())
    }
}
