//! Where files lie, and how a manager is built on them.
//!
//! Promises upward: a folder of its own for each turn, which is gone afterwards.
//! Asks from below: a file system with direct I/O and with room.

use super::who::Engine;
use std::path::PathBuf;
use tempfile::TempDir;
use terrace::Manager;
use terrace::tiers::ManagerBuilder;
use terrace_raw::{Blocks, Error, RawFile, THREADS};

/// Where files lie, and how much is moved.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder for those of all turns.
    pub folder: PathBuf,
    /// Whether the numbers are small.
    pub quick: bool,
    /// Whether raw loops take turns in as much memory as the manager has.
    pub raw_spread: bool,
}

impl Place {
    /// Bytes of memory that a manager has, where nothing else is said.
    pub fn memory(&self) -> u64 {
        if self.quick { 8 << 20 } else { 64 << 20 }
    }

    /// Bytes of all blocks of a turn: 32 times the memory, if there is time for them.
    pub fn total(&self) -> u64 {
        if self.quick { 32 << 20 } else { 2 << 30 }
    }

    /// A folder for one turn.
    ///
    /// # Errors
    /// The system's.
    pub fn turn(&self) -> Result<Turn, Error> {
        Ok(Turn { place: self.clone(), folder: tempfile::tempdir_in(&self.folder)? })
    }
}

/// A folder for one turn, and how much is moved in it.
#[derive(Debug)]
pub struct Turn {
    /// Where it lies.
    pub place: Place,
    folder: TempDir,
}

impl Turn {
    /// The manager's directory.
    pub fn directory(&self) -> PathBuf {
        self.folder.path().join("tier")
    }

    /// A manager to be built, with room in files for all blocks, for half of them anew, and for the ends of slabs.
    pub fn manager(&self, engine: Engine) -> ManagerBuilder {
        // Slabs are a sixty-fourth of this: few blocks lie in a small one.
        let files = (self.place.total() + self.place.total() / 2).max(256 << 20);
        Manager::builder().memory(self.place.memory()).engine(engine.kind()).directory_of(self.directory(), files)
    }

    /// A raw file with room for all blocks, and memory for `count` of them.
    ///
    /// # Errors
    /// The system's.
    pub fn raw(&self, blocks: &Blocks, count: usize) -> Result<RawFile, Error> {
        let memory = 2 * count.max(THREADS) * blocks.bytes();
        let file = RawFile::create(&self.folder.path().join("raw"), self.place.total(), memory)?;
        file.warm(blocks, count).map(|()| file)
    }
}
