//! Which files the simulated disk has, and which it will have after a power cut.
//!
//! Promises upward: a name that was made or removed is so for sure only after a sync of the names. One that fails does nothing:
//! names stand in the file system's journal, which does not forget them as pages of data are forgotten.

use std::collections::BTreeMap;
use terrace_file::StoreFile;

/// A file's contents, by number: a name made anew has new contents.
pub(super) type Inode = usize;

/// A name that changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) file: StoreFile,
    /// What it names now.
    pub(super) to: Option<Inode>,
    pub(super) answered: u64,
    /// A sync said that it is durable, and lied.
    pub(super) promised: bool,
}

/// The directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) now: BTreeMap<StoreFile, Inode>,
    pub(super) durable: BTreeMap<StoreFile, Inode>,
    /// Changed since, in the order of the answers.
    pub(super) pending: Vec<Change>,
}

impl Names {
    pub(super) fn set(&mut self, file: StoreFile, to: Option<Inode>, answered: u64) {
        apply(&mut self.now, file, to);
        self.pending.push(Change { file, to, answered, promised: false });
    }

    pub(super) fn sync(&mut self, until: u64) {
        let covered = self.covered(until);
        for change in self.pending.drain(..covered) {
            apply(&mut self.durable, change.file, change.to);
        }
    }

    pub(super) fn sync_lost(&mut self, until: u64) {
        let covered = self.covered(until);
        self.pending[..covered].iter_mut().for_each(|change| change.promised = true);
    }

    fn covered(&self, until: u64) -> usize {
        self.pending.partition_point(|change| change.answered < until)
    }
}

/// Sets or removes a name.
pub(super) fn apply(names: &mut BTreeMap<StoreFile, Inode>, file: StoreFile, to: Option<Inode>) {
    match to {
        Some(inode) => names.insert(file, inode),
        None => names.remove(&file),
    };
}
