//! SPI NOR flash: W25Q, MX25L, GD25Q, AT25SF and compatible chips, on one data line.
//!
//! Promises upward: any byte may be overwritten, as in RAM. A sector is erased only when a bit must go from 0 to 1.
//! Bytes that a call does not name keep their values, also when the bus fails half way: the driver keeps the sector's
//! bytes in RAM, and the next call finishes writing them. Every page programmed is read back and compared.
//! Asks from below: a `SpiDevice` whose transactions hold the chip select, and a delay between two polls. Power must stay on
//! while a sector is erased and programmed: if it fails, up to 4 KiB around the last write are lost.
//!
//! ```text
//! WAKE       ab                       JEDEC ID   9f | maker, type, log2 of the bytes
//! STATUS     05 | s                   bit 0: busy. Polled until it is 0
//! ENABLE     06                       before each of the two below
//! ERASE      20 aa aa aa              4 KiB become ff
//! PROGRAM    02 aa aa aa | d0 d1 ...  bits become 0; stays in a page of 256 bytes
//! READ       03 aa aa aa | d0 d1 ...
//! ```

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::SpiDevice;

use super::error::SpiError;
use super::memory::SpiMemory;
use super::transaction::{check_bounds, command_read, command_write, header};

const WAKE: u8 = 0xAB;
const READ_ID: u8 = 0x9F;
const STATUS: u8 = 0x05;
const ENABLE: u8 = 0x06;
const ERASE: u8 = 0x20;
const PROGRAM: u8 = 0x02;
const READ: u8 = 0x03;

/// Bit of the status register that is set while the chip is busy.
const BUSY: u8 = 1;
/// Bytes of a sector, the unit of erasing.
const SECTOR: u32 = 1 << 12;
/// Bytes of a page, the maximum that one command programs.
const PAGE: u32 = 1 << 8;
/// Wait in us between the wake command and the next one: these chips need at most 30 (tRES1).
const WAKE_US: u32 = 50;
/// Programming a page takes 0.4 to 3 ms (tPP), erasing a sector 45 to 400 ms (tSE): the limits are five times the
/// longest.
const PROGRAM_WAIT: PollLimit = PollLimit { step_us: 100, steps: 150 };
const ERASE_WAIT: PollLimit = PollLimit { step_us: 2000, steps: 1000 };

/// Microseconds between two polls, and the maximum number of polls.
#[derive(Clone, Copy)]
struct PollLimit {
    step_us: u32,
    steps: u32,
}

/// A NOR flash of 64 KiB to 16 MiB. The driver holds the sector that it is writing: 4 KiB of RAM.
///
/// Sectors wear out after about 100,000 erasures: a [`SpiRegion`](super::SpiRegion) with lines of 4096 bytes gathers many writes
/// to a sector into one.
#[derive(Debug)]
pub struct Nor25<D, T> {
    device: D,
    delay: T,
    capacity: u32,
    /// What remains to be done until the chip holds the bytes of `sector`; `None`: nothing.
    unfinished: Option<PendingSector>,
    sector: [u8; SECTOR as usize],
}

/// A sector that is not completely written yet.
#[derive(Clone, Copy, Debug)]
struct PendingSector {
    /// Address of the sector's first byte.
    at: u32,
    /// Whether the sector must be erased first, since a bit goes from 0 to 1.
    erase: bool,
    /// Offset in the sector of the first page that may still differ on the chip.
    page: u32,
}

impl<D: SpiDevice, T: DelayNs> Nor25<D, T> {
    /// Wakes the chip and reads its capacity. The chip keeps its contents.
    ///
    /// # Errors
    /// [`SpiError::WrongCapacity`]: no chip, or one that needs four address bytes; [`SpiError::Busy`]; [`SpiError::Bus`].
    pub fn open(device: D, delay: T) -> Result<Self, SpiError<D::Error>> {
        let mut chip = Self { device, delay, capacity: 0, unfinished: None, sector: [0; SECTOR as usize] };
        chip.device.write(&[WAKE]).map_err(SpiError::Bus)?;
        chip.delay.delay_us(WAKE_US);
        chip.wait(ERASE_WAIT)?;
        let [_, _, log2] = chip.id()?;
        // Three address bytes reach 2^24 bytes.
        if !(16..=24).contains(&log2) {
            return Err(SpiError::WrongCapacity { log2 });
        }
        chip.capacity = 1 << log2;
        Ok(chip)
    }

    /// The chip's JEDEC id: maker, type, and log2 of its bytes.
    ///
    /// # Errors
    /// [`SpiError::Bus`].
    pub fn id(&mut self) -> Result<[u8; 3], SpiError<D::Error>> {
        let mut id = [0; 3];
        command_read(&mut self.device, &[READ_ID], &mut id)?;
        Ok(id)
    }

    /// Finishes a write that a bus error interrupted, and returns device and delay.
    ///
    /// # Errors
    /// Returns the driver with the error, so that the unfinished write is not lost.
    #[expect(clippy::result_large_err, reason = "the chip itself comes back, to be tried again")]
    #[expect(clippy::type_complexity, reason = "two pairs")]
    pub fn release(mut self) -> Result<(D, T), (Self, SpiError<D::Error>)> {
        match self.finish() {
            Ok(()) => Ok((self.device, self.delay)),
            Err(error) => Err((self, error)),
        }
    }

    /// Polls until the chip is not busy.
    fn wait(&mut self, limit: PollLimit) -> Result<(), SpiError<D::Error>> {
        for _ in 0..limit.steps {
            let mut status = [0];
            command_read(&mut self.device, &[STATUS], &mut status)?;
            if status[0] & BUSY == 0 {
                return Ok(());
            }
            self.delay.delay_us(limit.step_us);
        }
        Err(SpiError::Busy { ms: limit.step_us * limit.steps / 1000 })
    }

    /// Erases or programs: enables writing, sends the command, and waits. The chip must not be busy.
    fn modify(&mut self, command: u8, address: u32, bytes: &[u8], limit: PollLimit) -> Result<(), SpiError<D::Error>> {
        self.device.write(&[ENABLE]).map_err(SpiError::Bus)?;
        command_write(&mut self.device, &header(command, address), bytes)?;
        self.wait(limit)
    }

    /// If a write of `sector` is unfinished, finishes it: erases if need be, programs the pages that differ, and reads
    /// them back.
    ///
    /// After a bus error the next call continues where this one stopped.
    fn finish(&mut self) -> Result<(), SpiError<D::Error>> {
        let Some(mut left) = self.unfinished else { return Ok(()) };
        // If the bus failed after a command, the chip may still be executing that command.
        self.wait(ERASE_WAIT)?;
        if left.erase {
            self.modify(ERASE, left.at, &[], ERASE_WAIT)?;
            left = PendingSector { erase: false, page: 0, ..left };
        }
        while left.page < SECTOR {
            self.unfinished = Some(left);
            let mut wanted = [0; PAGE as usize];
            wanted.iter_mut().zip(self.sector.iter().skip(left.page as usize)).for_each(|(to, from)| *to = *from);
            let address = left.at + left.page;
            if !self.page_is(address, &wanted)? {
                self.modify(PROGRAM, address, &wanted, PROGRAM_WAIT)?;
                if !self.page_is(address, &wanted)? {
                    return Err(SpiError::WornOut { address });
                }
            }
            left.page += PAGE;
        }
        self.unfinished = None;
        Ok(())
    }

    /// Whether a page of the chip has these bytes.
    fn page_is(&mut self, address: u32, wanted: &[u8; PAGE as usize]) -> Result<bool, SpiError<D::Error>> {
        let mut found = [0; PAGE as usize];
        command_read(&mut self.device, &header(READ, address), &mut found)?;
        Ok(found == *wanted)
    }
}

impl<D: SpiDevice, T: DelayNs> SpiMemory for Nor25<D, T> {
    type Error = D::Error;

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn read(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), SpiError<D::Error>> {
        check_bounds(self.capacity, address, bytes.len())?;
        self.finish()?;
        if bytes.is_empty() { Ok(()) } else { command_read(&mut self.device, &header(READ, address), bytes) }
    }

    /// Writes bytes as [`SpiMemory::write`] says.
    ///
    /// [`SpiError::WornOut`] when a page differs after it was programmed: the driver keeps the sector's bytes, and
    /// every later call tries to write them again.
    fn write(&mut self, mut address: u32, mut bytes: &[u8]) -> Result<(), SpiError<D::Error>> {
        check_bounds(self.capacity, address, bytes.len())?;
        while !bytes.is_empty() {
            self.finish()?;
            let (at, skip) = (address / SECTOR * SECTOR, address % SECTOR);
            let (now, later) = bytes.split_at(bytes.len().min((SECTOR - skip) as usize));
            command_read(&mut self.device, &header(READ, at), &mut self.sector)?;
            let (mut erase, mut differs) = (false, false);
            for (is, wanted) in self.sector.iter_mut().skip(skip as usize).zip(now) {
                erase |= *is & wanted != *wanted;
                differs |= is != wanted;
                *is = *wanted;
            }
            if differs {
                self.unfinished = Some(PendingSector { at, erase, page: skip / PAGE * PAGE });
                self.finish()?;
            }
            (address, bytes) = (address + now.len() as u32, later);
        }
        Ok(())
    }
}
