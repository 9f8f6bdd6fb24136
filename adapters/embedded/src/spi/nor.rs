//! NOR flash with an SPI face: W25Q, MX25L, GD25Q, AT25SF and their like, used on one data line.
//!
//! Promises upward: bytes are written as if it were RAM. A sector is erased only when a bit must go from 0 to 1; what a call
//! does not name keeps its value, also when the bus fails half way: the sector is kept here then, and the next call finishes
//! it. What was written is read back.
//! Asks from below: a `SpiDevice` whose transactions hold the chip select, and a delay to poll with. Power that stays on while
//! a sector is erased and programmed: when it goes, up to 4 KiB around the last write are lost.
//!
//! ```text
//! WAKE       ab                       JEDEC ID   9f | maker, type, log2 of the bytes
//! STATUS     05 | s                   bit 0: busy. Asked until it is 0, with a delay between
//! ENABLE     06                       before each of the two below
//! ERASE      20 aa aa aa              4 KiB become ff
//! PROGRAM    02 aa aa aa | d0 d1 ...  bits become 0; stays in a page of 256 bytes
//! READ       03 aa aa aa | d0 d1 ...
//! ```

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::SpiDevice;

use super::{SpiError, SpiMemory, check_bounds, command_read, command_write, header};

const WAKE: u8 = 0xAB;
const READ_ID: u8 = 0x9F;
const STATUS: u8 = 0x05;
const ENABLE: u8 = 0x06;
const ERASE: u8 = 0x20;
const PROGRAM: u8 = 0x02;
const READ: u8 = 0x03;

/// Bit of the status register: the chip is busy.
const BUSY: u8 = 1;
/// Bytes that are erased together.
const SECTOR: u32 = 1 << 12;
/// Bytes that are programmed together.
const PAGE: u32 = 1 << 8;
/// From deep sleep to the first command: 30 us at most on these chips (tRES1).
const WAKE_US: u32 = 50;
/// A page takes 0.4 to 3 ms (tPP), a sector 45 to 400 ms (tSE): asked so often, and for five times that at most.
const PROGRAM_WAIT: PollLimit = PollLimit { step_us: 100, steps: 150 };
const ERASE_WAIT: PollLimit = PollLimit { step_us: 2000, steps: 1000 };

#[derive(Clone, Copy)]
struct PollLimit {
    step_us: u32,
    steps: u32,
}

/// A NOR flash of 64 KiB to 16 MiB. 4 KiB of RAM for the sector that is being written.
///
/// Sectors wear out (100,000 erasures): a [`SpiRegion`](super::SpiRegion) with lines of 4096 bytes writes each sector once
/// for many writes, and only when it must.
#[derive(Debug)]
pub struct Nor25<D, T> {
    device: D,
    delay: T,
    capacity: u32,
    /// The sector that `sector` holds and the chip may not.
    unfinished: Option<PendingSector>,
    sector: [u8; SECTOR as usize],
}

/// What is left to be done to a sector.
#[derive(Clone, Copy, Debug)]
struct PendingSector {
    /// Where it starts.
    at: u32,
    /// A bit must rise: it must be erased first.
    erase: bool,
    /// The pages before this one hold what they must.
    page: u32,
}

impl<D: SpiDevice, T: DelayNs> Nor25<D, T> {
    /// Wakes the chip and asks what it is. What it holds stays.
    ///
    /// # Errors
    /// [`SpiError::WrongCapacity`] when nothing answers, or a chip that needs four address bytes; [`SpiError::Busy`].
    pub fn open(device: D, delay: T) -> Result<Self, SpiError<D::Error>> {
        let mut chip = Self { device, delay, capacity: 0, unfinished: None, sector: [0; SECTOR as usize] };
        chip.device.write(&[WAKE]).map_err(SpiError::Bus)?;
        chip.delay.delay_us(WAKE_US);
        chip.wait(ERASE_WAIT)?;
        let [_, _, log2] = chip.id()?;
        // 2^24 bytes are what three address bytes can say.
        if !(16..=24).contains(&log2) {
            return Err(SpiError::WrongCapacity { log2 });
        }
        chip.capacity = 1 << log2;
        Ok(chip)
    }

    /// Maker, type, and log2 of the bytes, as JEDEC numbers them.
    ///
    /// # Errors
    /// [`SpiError::Bus`].
    pub fn id(&mut self) -> Result<[u8; 3], SpiError<D::Error>> {
        let mut id = [0; 3];
        command_read(&mut self.device, &[READ_ID], &mut id)?;
        Ok(id)
    }

    /// Finishes what a bus error interrupted, and gives device and delay back.
    ///
    /// # Errors
    /// The chip itself, and why: nothing is lost.
    #[expect(clippy::result_large_err, reason = "the chip itself comes back, to be tried again")]
    #[expect(clippy::type_complexity, reason = "two pairs")]
    pub fn release(mut self) -> Result<(D, T), (Self, SpiError<D::Error>)> {
        match self.finish() {
            Ok(()) => Ok((self.device, self.delay)),
            Err(error) => Err((self, error)),
        }
    }

    /// Asks until the chip is done.
    fn wait(&mut self, most: PollLimit) -> Result<(), SpiError<D::Error>> {
        for _ in 0..most.steps {
            let mut status = [0];
            command_read(&mut self.device, &[STATUS], &mut status)?;
            if status[0] & BUSY == 0 {
                return Ok(());
            }
            self.delay.delay_us(most.step_us);
        }
        Err(SpiError::Busy { ms: most.step_us * most.steps / 1000 })
    }

    /// A command that changes the chip, which is not busy, from the enabling on until it is done.
    fn change(&mut self, command: u8, address: u32, bytes: &[u8], most: PollLimit) -> Result<(), SpiError<D::Error>> {
        self.device.write(&[ENABLE]).map_err(SpiError::Bus)?;
        command_write(&mut self.device, &header(command, address), bytes)?;
        self.wait(most)
    }

    /// Makes the chip hold `sector`, if that is unfinished: erases, programs the pages that differ, and reads them back. What
    /// is done stays done when the bus fails.
    fn finish(&mut self) -> Result<(), SpiError<D::Error>> {
        let Some(mut left) = self.unfinished else { return Ok(()) };
        // A change that the bus cut off may still be at work.
        self.wait(ERASE_WAIT)?;
        if left.erase {
            self.change(ERASE, left.at, &[], ERASE_WAIT)?;
            left = PendingSector { erase: false, page: 0, ..left };
        }
        while left.page < SECTOR {
            self.unfinished = Some(left);
            let mut wanted = [0; PAGE as usize];
            wanted.iter_mut().zip(self.sector.iter().skip(left.page as usize)).for_each(|(to, from)| *to = *from);
            let address = left.at + left.page;
            if !self.holds(address, &wanted)? {
                self.change(PROGRAM, address, &wanted, PROGRAM_WAIT)?;
                if !self.holds(address, &wanted)? {
                    return Err(SpiError::WornOut { address });
                }
            }
            left.page += PAGE;
        }
        self.unfinished = None;
        Ok(())
    }

    fn holds(&mut self, address: u32, wanted: &[u8; PAGE as usize]) -> Result<bool, SpiError<D::Error>> {
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

    /// As for any chip; [`SpiError::WornOut`] when a sector does not take what it is given: it is kept here, and tried again
    /// with every call.
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
