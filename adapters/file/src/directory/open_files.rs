//! The open files of a directory: few, however many slabs there are.
//!
//! Promises upward: at most [`OPEN`] files are open, beside those with I/O in flight; a file that is opened again is the
//! one that it was.
//! Asks from below: `fsync` on a descriptor that is opened after a write tells of that write's failure (Linux does, if no
//! descriptor has told of it before).

use crate::disk::StoreFile;
use crate::fault::FileFault;
use crate::slab_file::SlabFile;
use std::collections::HashMap;
use std::sync::Arc;

/// Most files that stay open: an eighth of the 1,024 descriptors that a process usually may have. A store of 1 TiB has
/// 1,024 slabs of 1 GiB.
const OPEN: usize = 128;

/// A file that was open, for as long as it is in the directory.
#[derive(Debug)]
struct KnownFile {
    /// Device, inode and size.
    identity: (u64, u64, u64),
    slab: Option<Arc<SlabFile>>,
    /// When it was last used.
    used: u64,
}

/// The files of a directory that have been opened.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: HashMap<StoreFile, KnownFile>,
    /// Number of files with a descriptor.
    open: usize,
    /// Counts uses.
    now: u64,
}

impl OpenFiles {
    /// The open file, if it is open.
    pub(super) fn get(&mut self, file: StoreFile) -> Option<Arc<SlabFile>> {
        let known = self.files.get_mut(&file)?;
        self.now += 1;
        known.used = self.now;
        known.slab.clone()
    }

    /// Adds a file that was opened or created; closes the one that was used least recently, if too many are open. Returns
    /// the descriptor to use: another thread may have opened the file meanwhile.
    ///
    /// # Errors
    /// [`FileFaultReason::Gone`](crate::FileFaultReason::Gone) if another file was opened by this name before.
    pub(super) fn insert(&mut self, file: StoreFile, slab: Arc<SlabFile>) -> Result<Arc<SlabFile>, FileFault> {
        let identity = slab.identity()?;
        self.now += 1;
        let (now, open) = (self.now, self.open);
        let known = self.files.entry(file).or_insert(KnownFile { identity, slab: None, used: now });
        known.used = now;
        if let Some(slab) = &known.slab {
            return Ok(Arc::clone(slab));
        }
        // seeded: file_of_before: known.identity != identity => false
        if known.identity != identity {
            return Err(slab.fault("open", 0, rustix::io::Errno::NOENT.raw_os_error()));
        }
        known.slab = Some(Arc::clone(&slab));
        // seeded: files_unbounded: open == OPEN => false
        match open == OPEN {
            true => self.close_oldest(file),
            false => self.open += 1,
        }
        Ok(slab)
    }

    /// Closes the file that was used least recently, other than `newest`. I/O in flight on it goes on.
    fn close_oldest(&mut self, newest: StoreFile) {
        let others = self.files.iter_mut().filter(|(file, known)| **file != newest && known.slab.is_some());
        if let Some((_, oldest)) = others.min_by_key(|(_, known)| known.used) {
            oldest.slab = None;
        }
    }

    /// Forgets a file that is removed.
    pub(super) fn remove(&mut self, file: StoreFile) {
        let known = self.files.remove(&file);
        self.open -= usize::from(known.is_some_and(|known| known.slab.is_some()));
    }
}
