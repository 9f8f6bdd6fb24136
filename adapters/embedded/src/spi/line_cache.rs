//! A write-back cache of a few lines of a chip, fully associative; it evicts the least recently used line.
//!
//! Promises upward: a read returns what was written last. A dirty line is evicted only after it was written back, so a bus
//! error loses nothing. Whole lines that are not cached bypass the cache.
//! Asks from below: [`SpiMemory`], with a capacity that is a multiple of a line's bytes.

use super::error::SpiError;
use super::memory::SpiMemory;

/// A line of the cache: `BYTES` bytes of the chip.
#[derive(Clone, Copy, Debug)]
struct CacheLine<const BYTES: usize> {
    /// Address on the chip of the first byte, a multiple of `BYTES`; `None`: the line is empty.
    start: Option<u32>,
    /// First and end offset of the bytes to write back; (0, 0) when the line is clean.
    dirty: (usize, usize),
    /// Value of `LineCache::clock` at the last access.
    last_used: u32,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> CacheLine<BYTES> {
    const EMPTY: Self = Self { start: None, dirty: (0, 0), last_used: 0, bytes: [0; BYTES] };

    /// Writes the dirty bytes to the chip.
    fn write_back<M: SpiMemory>(&mut self, memory: &mut M) -> Result<(), SpiError<M::Error>> {
        let (from, to) = self.dirty;
        if let Some(start) = self.start.filter(|_| from != to) {
            memory.write(start + from as u32, &self.bytes[from..to])?;
        }
        self.dirty = (0, 0);
        Ok(())
    }
}

/// A cache of `LINES` lines of `BYTES` bytes.
#[derive(Debug)]
pub struct LineCache<const LINES: usize, const BYTES: usize> {
    lines: [CacheLine<BYTES>; LINES],
    /// Number of calls of `load`, wrapping.
    clock: u32,
}

impl<const LINES: usize, const BYTES: usize> LineCache<LINES, BYTES> {
    /// An empty cache. The compiler refuses a `BYTES` that is no power of two.
    pub const fn new() -> Self {
        const { assert!(BYTES.is_power_of_two()) }
        Self { lines: [CacheLine::EMPTY; LINES], clock: 0 }
    }

    /// The index of the line that caches an address.
    fn find(&self, address: u32) -> Option<usize> {
        let start = address - address % BYTES as u32;
        self.lines.iter().position(|line| line.start == Some(start))
    }

    /// How many of the `bytes` bytes from `address` on bypass the cache: the whole lines at their start that are not
    /// cached.
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

    /// Returns the line that caches an address; if none does, evicts the least recently used line and fetches it from
    /// the chip.
    fn load<M: SpiMemory>(
        &mut self,
        memory: &mut M,
        address: u32,
    ) -> Result<&mut CacheLine<BYTES>, SpiError<M::Error>> {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let cached = self.find(address);
        let age = |line: &CacheLine<BYTES>| line.start.map_or(u32::MAX, |_| clock.wrapping_sub(line.last_used));
        let oldest = || (0..LINES).max_by_key(|&i| age(&self.lines[i])).unwrap_or(0);
        let line = &mut self.lines[cached.unwrap_or_else(oldest)];
        if cached.is_none() {
            line.write_back(memory)?;
            // The line is empty during the read, which could fail half way and leave parts of two lines in it.
            line.start = None;
            let start = address - address % BYTES as u32;
            memory.read(start, &mut line.bytes)?;
            line.start = Some(start);
        }
        line.last_used = clock;
        Ok(line)
    }

    /// Reads bytes, from the cache where they are cached and else from the chip.
    ///
    /// # Errors
    /// The chip's error; the call may be made again.
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

    /// Writes bytes into the cache; whole lines that are not cached go to the chip directly.
    ///
    /// # Errors
    /// The chip's error; a prefix of the bytes may be written. The call may be made again.
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

    /// How many of the `bytes` bytes from `address` on lie in the line of the first.
    fn to_line_end(address: u32, bytes: usize) -> usize {
        bytes.min(BYTES - address as usize % BYTES)
    }

    /// Writes all dirty lines back. They stay cached.
    ///
    /// # Errors
    /// The chip's error; lines that were not written back stay dirty. The call may be made again.
    pub fn flush<M: SpiMemory>(&mut self, memory: &mut M) -> Result<(), SpiError<M::Error>> {
        self.lines.iter_mut().try_for_each(|line| line.write_back(memory))
    }

    /// Drops the lines that lie wholly within a range, without writing them back.
    pub fn invalidate(&mut self, address: u64, bytes: u64) {
        let inside = |start: u64| address <= start && start + BYTES as u64 <= address.saturating_add(bytes);
        for line in self.lines.iter_mut().filter(|line| line.start.is_some_and(|start| inside(u64::from(start)))) {
            *line = CacheLine::EMPTY;
        }
    }
}
