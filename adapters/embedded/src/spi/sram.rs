//! SPI SRAM: Microchip's 23LC1024 and compatible chips, 128 KiB, without wait times or refresh.
//!
//! Promises upward: transfers of any length in each of the chip's three modes, split as the mode requires.
//! Asks from below: a `SpiDevice` whose transactions hold the chip select.
//!
//! ```text
//! READ   03 aa aa aa | d0 d1 ...      byte mode:        one byte a transaction
//! WRITE  02 aa aa aa | d0 d1 ...      page mode:        wraps at the end of a page of 32 bytes
//! RDMR   05          | mode           sequential mode:  wraps at the end of the chip
//! WRMR   01 mode
//! ```
//!
//! Commands, modes and sizes: Microchip DS20005142, sections 2.2 to 2.6.

use embedded_hal::spi::SpiDevice;

use super::error::SpiError;
use super::memory::SpiMemory;
use super::transaction::{check_bounds, command_read, command_write, header};

const READ: u8 = 0x03;
const WRITE: u8 = 0x02;
const READ_MODE: u8 = 0x05;
const WRITE_MODE: u8 = 0x01;

/// Bytes of the chip: 17 address bits.
const CAPACITY: u32 = 1 << 17;
/// Bytes of a page: 2^5.
const PAGE: u32 = 1 << 5;
/// The mode is in the two highest bits of its register; the others are written as 0.
const MODE_BITS: u8 = 0b1100_0000;

/// How the chip advances the address after each byte of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SramMode {
    /// The address does not advance: a transaction transfers one byte.
    Byte = 0b0000_0000,
    /// The address wraps at the end of a page of 32 bytes: a transaction transfers at most one page.
    Page = 0b1000_0000,
    /// The address wraps at the end of the chip: one transaction transfers any length.
    #[default]
    Sequential = 0b0100_0000,
}

/// A 23LC1024 (or 23A1024), in SPI mode.
#[derive(Debug)]
pub struct Sram23<D> {
    device: D,
    /// The value that was last written to the mode register and read back.
    mode: SramMode,
}

impl<D: SpiDevice> Sram23<D> {
    /// Sets the mode and reads it back. The chip keeps its contents.
    ///
    /// # Errors
    /// [`SpiError::WrongMode`] when another value comes back: no chip, or one of another type; [`SpiError::Bus`].
    pub fn open(device: D, mode: SramMode) -> Result<Self, SpiError<D::Error>> {
        let mut chip = Self { device, mode };
        chip.set_mode(mode)?;
        Ok(chip)
    }

    /// Sets the mode and reads it back.
    ///
    /// # Errors
    /// As [`Sram23::open`]. After an error the chip's mode is unknown: call `set_mode` again before any other method.
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

    /// Returns the device.
    pub fn release(self) -> D {
        self.device
    }

    /// How many of the `bytes` bytes from `address` on fit into one transaction.
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
