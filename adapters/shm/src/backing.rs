//! The memory of a buffer in either way: words of the header, bytes behind it.
//!
//! Promises upward: whatever other processes do to the memory, a call gives a value or a typed error.
//! Asks from below: sealed memory, or a file that may be cut short at any moment.

use crate::error::ShmError;
use crate::file::{Cut, ShmFile, position};
use crate::layout::{BufferHeader, TURN, Way};
use crate::memory::SealedMemory;
use crate::name::BufferName;
use crate::pages::Pages;
use rustix::thread::futex;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::thread::sleep;
use std::time::Duration;

/// How long a waiter sleeps at most: a holder that is killed wakes no waiter.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How long a waiter for a file sleeps at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Memory of one way.
#[derive(Debug)]
pub enum BackingMemory {
    /// Mapped.
    Sealed(SealedMemory),
    /// Copied.
    File(ShmFile),
}

/// Memory with its name, for errors, and its size.
#[derive(Debug)]
pub struct Backing {
    /// The memory.
    pub memory: BackingMemory,
    /// The buffer's name.
    pub name: BufferName,
    /// Bytes of memory or file, with the header.
    pub whole_bytes: u64,
}

impl Backing {
    /// The way.
    pub fn way(&self) -> Way {
        match self.memory {
            BackingMemory::Sealed(_) => Way::Memfd,
            BackingMemory::File(_) => Way::File,
        }
    }

    /// Reads a word of the header.
    pub fn load(&self, word: usize) -> Result<u32, ShmError> {
        match &self.memory {
            BackingMemory::Sealed(memory) => Ok(memory.words()[word].load(Ordering::Acquire)),
            BackingMemory::File(file) => {
                let mut value = [0; 4];
                file.read(&mut value, word as u64 * 4).map_err(|cut| self.cut(cut))?;
                Ok(u32::from_le_bytes(value))
            }
        }
    }

    /// Writes a word of the header.
    ///
    /// What was written before is visible before it, what is written later after it.
    pub fn store(&self, word: usize, value: u32) -> Result<(), ShmError> {
        match &self.memory {
            BackingMemory::Sealed(memory) => {
                fence(Ordering::SeqCst);
                memory.words()[word].store(value, Ordering::SeqCst);
                // Later writes are plain ones, which the store alone does not hold back.
                fence(Ordering::SeqCst);
                Ok(())
            }
            BackingMemory::File(file) => {
                // Writing would make a file that was cut longer again, and hide the cut.
                self.is_whole(file)?;
                file.write(&value.to_le_bytes(), word as u64 * 4).map_err(|cut| self.cut(cut))
            }
        }
    }

    /// Writes the header of a new buffer.
    pub fn format(&self, header: &BufferHeader) -> Result<(), ShmError> {
        header.words().iter().enumerate().try_for_each(|(word, value)| self.store(word, *value))
    }

    /// Reads the header and checks it against the memory.
    pub fn header(&self) -> Result<BufferHeader, ShmError> {
        let words = match &self.memory {
            BackingMemory::Sealed(memory) => std::array::from_fn(|word| memory.words()[word].load(Ordering::Acquire)),
            BackingMemory::File(file) => file.fixed_words().map_err(|cut| self.cut(cut))?,
        };
        let header = BufferHeader::parse(&words, &self.name)?;
        match header.way == self.way() && header.whole_bytes() == self.whole_bytes {
            true => Ok(header),
            false if header.way == self.way() && header.way == Way::File && header.whole_bytes() > self.whole_bytes => {
                let (name, bytes) = (self.name.text(), header.whole_bytes());
                Err(ShmError::CutShort { name, bytes, found: self.whole_bytes })
            }
            false => Err(ShmError::Damaged { name: self.name.text(), what: "it states another size or way" }),
        }
    }

    /// Checks that a file is whole and still begins with its header. Memory is sealed: nothing to check.
    pub fn check(&self, header: &BufferHeader) -> Result<(), ShmError> {
        let BackingMemory::File(file) = &self.memory else { return Ok(()) };
        self.is_whole(file)?;
        match file.fixed_words().map_err(|cut| self.cut(cut))? == header.words() {
            true => Ok(()),
            false => Err(ShmError::Damaged { name: self.name.text(), what: "another process wrote over it" }),
        }
    }

    /// A copy of bytes of a file; `None` for memory, which is mapped.
    pub fn copy(&self, range: &Range<usize>) -> Result<Option<Pages>, ShmError> {
        let BackingMemory::File(file) = &self.memory else { return Ok(None) };
        let mut pages = Pages::new(range)?;
        file.read(pages.bytes_mut(), position(range.start)).map_err(|cut| self.cut(cut))?;
        Ok(Some(pages))
    }

    /// Writes a copy back.
    pub fn write_back(&self, range: &Range<usize>, pages: &Pages) -> Result<(), ShmError> {
        let BackingMemory::File(file) = &self.memory else { return Ok(()) };
        file.write(pages.bytes(), position(range.start)).map_err(|cut| self.cut(cut))
    }

    /// Sleeps until a lease is released after `turn` was read, or for `left`, or for the longest wait.
    ///
    /// For a file it sleeps for `pause`, which grows.
    pub fn wait(&self, turn: u32, left: Duration, pause: &mut Duration) {
        match &self.memory {
            BackingMemory::Sealed(memory) => {
                let nanoseconds = left.min(LONGEST_WAIT).as_nanos() as i64;
                let timeout = futex::Timespec { tv_sec: 0, tv_nsec: nanoseconds };
                _ = futex::wait(&memory.words()[TURN], futex::Flags::empty(), turn, Some(&timeout));
            }
            BackingMemory::File(_) => {
                sleep((*pause).min(left));
                *pause = (*pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Wakes all that wait for a lease. Those that wait for a file look by themselves.
    pub fn wake(&self) {
        if let BackingMemory::Sealed(memory) = &self.memory {
            let turn = &memory.words()[TURN];
            turn.fetch_add(1, Ordering::AcqRel);
            _ = futex::wake(turn, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    fn is_whole(&self, file: &ShmFile) -> Result<(), ShmError> {
        let found = file.length();
        if found < self.whole_bytes { Err(self.cut(Cut::Short(found))) } else { Ok(()) }
    }

    fn cut(&self, cut: Cut) -> ShmError {
        match cut {
            Cut::Short(found) => ShmError::CutShort { name: self.name.text(), bytes: self.whole_bytes, found },
            Cut::System(error) => ShmError::system("reading or writing a file in /dev/shm")(error),
        }
    }
}
