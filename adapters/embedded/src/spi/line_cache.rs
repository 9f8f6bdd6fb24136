//! A few lines of a chip, kept here and written back late.
//!
//! Promises upward: reads see what was written last; a line is dropped only when the chip has what it held, so a bus
//! error loses nothing; whole lines that are not kept go straight between the chip and the caller.
//! Asks from below: [`SpiMemory`], with a capacity that is a multiple of the line.

use super::{SpiError, SpiMemory};

/// A stretch of the chip.
#[derive(Clone, Copy, Debug)]
struct CacheLine<const BYTES: usize> {
    /// Where it starts, a multiple of `BYTES`; `None`: it holds nothing.
    at: Option<u32>,
    /// What the chip does not have yet: the bytes from .. to of this line. Empty (0, 0) when it has all.
    dirty: (usize, usize),
    /// When it was used last, in calls.
    used: u32,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> CacheLine<BYTES> {
    const EMPTY: Self = Self { at: None, dirty: (0, 0), used: 0, bytes: [0; BYTES] };

    /// Gives the chip what it does not have.
    fn write_back<M: SpiMemory>(&mut self, memory: &mut M) -> Result<(), SpiError<M::Error>> {
        let (from, to) = self.dirty;
        if let Some(at) = self.at.filter(|_| from != to) {
            memory.write(at + from as u32, &self.bytes[from..to])?;
        }
        self.dirty = (0, 0);
        Ok(())
    }
}

/// `LINES` lines of `BYTES` bytes, any line of the chip in any of them.
#[derive(Debug)]
pub struct LineCache<const LINES: usize, const BYTES: usize> {
    lines: [CacheLine<BYTES>; LINES],
    /// Uses so far, wrapping.
    clock: u32,
}

impl<const LINES: usize, const BYTES: usize> LineCache<LINES, BYTES> {
    /// Nothing kept. `BYTES` is a power of two, checked when it is compiled.
    pub const fn new() -> Self {
        const { assert!(BYTES.is_power_of_two()) }
        Self { lines: [CacheLine::EMPTY; LINES], clock: 0 }
    }

    /// The line that keeps an address.
    fn find(&self, address: u32) -> Option<usize> {
        let at = address - address % BYTES as u32;
        self.lines.iter().position(|line| line.at == Some(at))
    }

    /// Bytes from an address on, of `bytes`, that go straight to or from the chip: whole lines that are not kept.
    fn bypass_bytes(&self, address: u32, bytes: usize) -> usize {
        if LINES == 0 {
            return bytes;
        }
        let mut run = 0;
        while bytes - run >= BYTES {
            let next = address + run as u32;
            if !next.is_multiple_of(BYTES as u32) || self.find(next).is_some() {
                break;
            }
            run += BYTES;
        }
        run
    }

    /// The line that keeps an address, after it was fetched into the line used longest ago if need be.
    fn load<M: SpiMemory>(
        &mut self,
        memory: &mut M,
        address: u32,
    ) -> Result<&mut CacheLine<BYTES>, SpiError<M::Error>> {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let kept = self.find(address);
        let age = |line: &CacheLine<BYTES>| if line.at.is_none() { u32::MAX } else { clock.wrapping_sub(line.used) };
        let oldest = || (0..LINES).max_by_key(|&i| age(&self.lines[i])).unwrap_or(0);
        let line = &mut self.lines[kept.unwrap_or_else(oldest)];
        if kept.is_none() {
            line.write_back(memory)?;
            // From here on it holds nothing, until all of the new bytes have come.
            line.at = None;
            let at = address - address % BYTES as u32;
            memory.read(at, &mut line.bytes)?;
            line.at = Some(at);
        }
        line.used = clock;
        Ok(line)
    }

    /// Reads what was written last.
    ///
    /// # Errors
    /// The chip's; the call may be made again.
    pub fn read<M: SpiMemory>(
        &mut self,
        memory: &mut M,
        mut address: u32,
        mut bytes: &mut [u8],
    ) -> Result<(), SpiError<M::Error>> {
        while !bytes.is_empty() {
            let bypass = self.bypass_bytes(address, bytes.len());
            let step = if bypass > 0 { bypass } else { Self::to_line_end(address, bytes.len()) };
            let (now, later) = bytes.split_at_mut(step);
            if bypass > 0 {
                memory.read(address, now)?;
            } else {
                let from = address as usize % BYTES;
                now.copy_from_slice(&self.load(memory, address)?.bytes[from..from + step]);
            }
            (address, bytes) = (address + step as u32, later);
        }
        Ok(())
    }

    /// Writes, mostly into the lines.
    ///
    /// # Errors
    /// The chip's; bytes from the front may have been written. The call may be made again.
    pub fn write<M: SpiMemory>(
        &mut self,
        memory: &mut M,
        mut address: u32,
        mut bytes: &[u8],
    ) -> Result<(), SpiError<M::Error>> {
        while !bytes.is_empty() {
            let bypass = self.bypass_bytes(address, bytes.len());
            let step = if bypass > 0 { bypass } else { Self::to_line_end(address, bytes.len()) };
            let (now, later) = bytes.split_at(step);
            if bypass > 0 {
                memory.write(address, now)?;
            } else {
                let (from, to) = (address as usize % BYTES, address as usize % BYTES + step);
                let line = self.load(memory, address)?;
                line.bytes[from..to].copy_from_slice(now);
                let (low, high) = line.dirty;
                line.dirty = if low == high { (from, to) } else { (low.min(from), high.max(to)) };
            }
            (address, bytes) = (address + step as u32, later);
        }
        Ok(())
    }

    fn to_line_end(address: u32, bytes: usize) -> usize {
        bytes.min(BYTES - address as usize % BYTES)
    }

    /// Gives the chip everything that it does not have. The lines stay.
    ///
    /// # Errors
    /// The chip's; what it did not get is kept. The call may be made again.
    pub fn flush<M: SpiMemory>(&mut self, memory: &mut M) -> Result<(), SpiError<M::Error>> {
        self.lines.iter_mut().try_for_each(|line| line.write_back(memory))
    }

    /// Forgets the lines that lie in a stretch whole: what they hold is not needed any more.
    pub fn invalidate(&mut self, address: u64, bytes: u64) {
        let inside = |at: u64| address <= at && at + BYTES as u64 <= address.saturating_add(bytes);
        for line in self.lines.iter_mut().filter(|line| line.at.is_some_and(|at| inside(u64::from(at)))) {
            *line = CacheLine::EMPTY;
        }
    }
}
