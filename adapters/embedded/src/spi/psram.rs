//! SPI PSRAM: ESP-PSRAM64, LY68L6400, APS6404L and compatible chips, on one data line.
//!
//! Promises upward: transfers of any length, cut into bursts that neither cross a page nor keep the chip selected for
//! longer than it can wait for its refresh.
//! Asks from below: a `SpiDevice` whose transactions hold the chip select, and a delay after power-up and reset.
//!
//! ```text
//! RESET      66 | 99                  each with a chip select of its own
//! ID         9f xx xx xx | vendor, known good die (5d) ...
//! READ       03 aa aa aa | d0 d1 ...           up to 33 MHz
//! FAST READ  0b aa aa aa ww | d0 d1 ...        above: one byte to wait
//! WRITE      02 aa aa aa | d0 d1 ...
//! ```
//!
//! The chip refreshes itself only while it is not selected, so it must not be selected for more than 8 us (tCEM of the
//! data sheets): at 20 MHz that is 20 bytes, the command included.

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{Operation, SpiDevice};

use super::error::SpiError;
use super::memory::SpiMemory;
use super::transaction::{check_bounds, command_read, command_write, header};

const READ: u8 = 0x03;
const FAST_READ: u8 = 0x0B;
const WRITE: u8 = 0x02;
const RESET_ENABLE: u8 = 0x66;
const RESET: u8 = 0x99;
const READ_ID: u8 = 0x9F;

/// The "known good die" byte of a chip that passed its maker's tests; one that failed has 0x55.
const GOOD: u8 = 0x5D;
/// Bytes of a page. A burst never crosses a page's end, which is right at any clock and on every maker's chip.
const PAGE: u32 = 1 << 10;
/// The highest clock at which READ, without a wait byte, is specified.
const PLAIN_HZ: u32 = 33_000_000;
/// Bytes before the data: command, address, and FAST READ's wait byte.
const OVERHEAD: u32 = 5;
/// Wait in us after power-up or a reset before the next command: chips need at most 150 by the data sheets.
const WAKE_US: u32 = 150;

/// Size and timing of a PSRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsramSettings {
    /// Capacity of the chip in bytes, at most 2^24.
    pub capacity: u32,
    /// Maximum number of data bytes in a transaction, at least 1.
    pub burst: u32,
    /// Whether to use FAST READ instead of READ: needed above 33 MHz.
    pub fast: bool,
}

impl PsramSettings {
    /// Settings for a chip of 8 MiB (64 Mbit) on a bus with a clock of `hz`.
    ///
    /// `None` below 8 MHz, where no data byte fits into a burst.
    ///
    /// The burst is the longest that takes at most 6 us, which leaves 2 us for gaps that the bus driver makes between bytes.
    ///
    /// ```
    /// use terrace_embedded::spi::PsramSettings;
    /// // 40 bits a microsecond: 240 bits in six are 30 bytes, five of which are command, address and wait byte.
    /// assert_eq!(PsramSettings::at_clock(40_000_000).map(|settings| settings.burst), Some(25));
    /// assert_eq!(PsramSettings::at_clock(1_000_000), None);
    /// ```
    pub const fn at_clock(hz: u32) -> Option<Self> {
        // The bus transfers 6 bits in 6 us for each MHz of its clock; a byte has 8 bits.
        let bytes = hz / 1_000_000 * 6 / 8;
        if bytes <= OVERHEAD {
            return None;
        }
        Some(Self { capacity: 8 << 20, burst: bytes - OVERHEAD, fast: hz > PLAIN_HZ })
    }
}

/// A PSRAM, in SPI mode.
#[derive(Debug)]
pub struct Psram<D> {
    device: D,
    /// `burst` is at least 1, `capacity` at most 2^24.
    settings: PsramSettings,
}

impl<D: SpiDevice> Psram<D> {
    /// Waits for power-up, resets the chip, and checks its id. The chip loses its contents.
    ///
    /// The bus must run at no more than 33 MHz until this returns.
    ///
    /// # Errors
    /// [`SpiError::WrongId`]: no chip, or a bad one; [`SpiError::BadSettings`] before anything is sent; [`SpiError::Bus`].
    pub fn open(device: D, delay: &mut impl DelayNs, settings: PsramSettings) -> Result<Self, SpiError<D::Error>> {
        if settings.burst == 0 || settings.capacity > 1 << 24 {
            return Err(SpiError::BadSettings);
        }
        let mut chip = Self { device, settings };
        delay.delay_us(WAKE_US);
        chip.device.write(&[RESET_ENABLE]).map_err(SpiError::Bus)?;
        chip.device.write(&[RESET]).map_err(SpiError::Bus)?;
        delay.delay_us(WAKE_US);
        let [_, found] = chip.id()?;
        if found != GOOD {
            return Err(SpiError::WrongId { expected: GOOD, found });
        }
        Ok(chip)
    }

    /// The chip's id: the maker's number and the "known good die" byte.
    ///
    /// The maker's number is 0x0D for AP Memory and Espressif; a good die's byte is 0x5D.
    ///
    /// # Errors
    /// [`SpiError::Bus`].
    pub fn id(&mut self) -> Result<[u8; 2], SpiError<D::Error>> {
        let mut id = [0; 2];
        command_read(&mut self.device, &header(READ_ID, 0), &mut id)?;
        Ok(id)
    }

    /// Returns the device.
    pub fn release(self) -> D {
        self.device
    }

    /// How many of the `bytes` bytes from `address` on fit into one transaction.
    fn transfer_len(&self, address: u32, bytes: usize) -> usize {
        bytes.min((PAGE - address % PAGE).min(self.settings.burst) as usize)
    }
}

impl<D: SpiDevice> SpiMemory for Psram<D> {
    type Error = D::Error;

    fn capacity(&self) -> u32 {
        self.settings.capacity
    }

    fn read(&mut self, mut address: u32, mut bytes: &mut [u8]) -> Result<(), SpiError<D::Error>> {
        check_bounds(self.settings.capacity, address, bytes.len())?;
        let (command, wait): (_, &[u8]) = if self.settings.fast { (FAST_READ, &[0]) } else { (READ, &[]) };
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at_mut(self.transfer_len(address, bytes.len()));
            let (head, moved) = (header(command, address), now.len() as u32);
            let mut operations = [Operation::Write(&head), Operation::Write(wait), Operation::Read(now)];
            self.device.transaction(&mut operations).map_err(SpiError::Bus)?;
            (address, bytes) = (address + moved, later);
        }
        Ok(())
    }

    fn write(&mut self, mut address: u32, mut bytes: &[u8]) -> Result<(), SpiError<D::Error>> {
        check_bounds(self.settings.capacity, address, bytes.len())?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(self.transfer_len(address, bytes.len()));
            command_write(&mut self.device, &header(WRITE, address), now)?;
            (address, bytes) = (address + now.len() as u32, later);
        }
        Ok(())
    }
}
