//! PSRAM with an SPI face: ESP-PSRAM64, LY68L6400, APS6404L and their like, used on one data line.
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
//! The chip refreshes itself only while it is not selected, so it may not be selected for more than 8 us (tCEM of the
//! data sheets): at 20 MHz that is 20 bytes, the command included.

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{Operation, SpiDevice};

use super::{SpiError, SpiMemory, check_bounds, command_read, command_write, header};

const READ: u8 = 0x03;
const FAST_READ: u8 = 0x0B;
const WRITE: u8 = 0x02;
const RESET_ENABLE: u8 = 0x66;
const RESET: u8 = 0x99;
const READ_ID: u8 = 0x9F;

/// What a chip that passed its maker's tests answers ("known good die"); one that failed says 0x55.
const GOOD: u8 = 0x5D;
/// A burst stays in a page of 2^10 bytes, at any clock and on every maker's chip.
const PAGE: u32 = 1 << 10;
/// READ without a wait byte is specified up to here.
const PLAIN_HZ: u32 = 33_000_000;
/// Command and address, and the byte that FAST READ waits for.
const OVERHEAD: u32 = 5;
/// The data sheets ask for 150 us from power-up to the first command; after a reset no more than that.
const WAKE_US: u32 = 150;

/// How a PSRAM is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsramSettings {
    /// Bytes of the chip: at most 2^24.
    pub capacity: u32,
    /// Data bytes of a transaction: at least 1.
    pub burst: u32,
    /// FAST READ instead of READ: needed above 33 MHz.
    pub fast: bool,
}

impl PsramSettings {
    /// For a chip of 8 MiB (64 Mbit) at a clock: the longest burst of which the chip select takes at most 6 us, which
    /// leaves 2 us for what the driver does between two bytes. `None` below 8 MHz: not a single byte would fit.
    ///
    /// ```
    /// use terrace_embedded::spi::PsramSettings;
    /// // 40 bits take a microsecond: 240 in six, 30 bytes, and five go to command, address and waiting.
    /// assert_eq!(PsramSettings::at_clock(40_000_000).map(|settings| settings.burst), Some(25));
    /// assert_eq!(PsramSettings::at_clock(1_000_000), None);
    /// ```
    pub const fn at_clock(hz: u32) -> Option<Self> {
        // Six bits for each MHz; 8 bits a byte.
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
    /// `burst` is not 0, `capacity` at most 2^24.
    settings: PsramSettings,
}

impl<D: SpiDevice> Psram<D> {
    /// Waits for power-up, resets the chip, and looks whether it is one. The bus runs at no more than 33 MHz so far; what
    /// the chip held is lost.
    ///
    /// # Errors
    /// [`SpiError::WrongId`] when it is not there or bad; [`SpiError::BadSettings`] before anything is sent.
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

    /// The maker's number (0x0D for AP Memory and Espressif), and the byte that says whether the chip is good (0x5D).
    ///
    /// # Errors
    /// [`SpiError::Bus`].
    pub fn id(&mut self) -> Result<[u8; 2], SpiError<D::Error>> {
        let mut id = [0; 2];
        command_read(&mut self.device, &header(READ_ID, 0), &mut id)?;
        Ok(id)
    }

    /// The device, for other uses.
    pub fn release(self) -> D {
        self.device
    }

    /// Of so many bytes at an address, as many as one transaction may have.
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
