//! Files of a store: created, synced, removed.

use super::error::StoreError;
use super::log::Log;
use super::shared::StoreShared;
use crate::disk::{DiskRequest, StoreFile, ask};
use crate::fault::FileFaultReason;

impl StoreShared {
    /// Lets what was written to a file survive a power cut.
    pub(super) fn sync(&self, file: StoreFile) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let answer = ask(&*self.disk, DiskRequest::Sync { file });
        async { answer.await.result.map(drop).map_err(Into::into) }
    }

    /// Lets names survive a power cut.
    pub(super) async fn sync_directory(&self) -> Result<(), StoreError> {
        let unnamed = self.space.unnamed();
        let synced = ask(&*self.disk, DiskRequest::SyncDirectory).await.result;
        self.space.end_directory_sync(&unnamed, synced.is_ok());
        synced.map(drop).map_err(Into::into)
    }

    /// Makes a file. Of one that cannot be made nothing is left, or what may be left is counted until it can be removed.
    pub(super) async fn create(&self, file: StoreFile, bytes: u64) -> Result<(), StoreError> {
        let Err(fault) = ask(&*self.disk, DiskRequest::Create { file, bytes }).await.result else { return Ok(()) };
        // One that is there already is not ours to remove; where nothing may be made, nothing was.
        if !matches!(fault.reason, FileFaultReason::Exists | FileFaultReason::Denied) {
            // seeded: stumps_counted: self.space.add_partial_file(file, bytes) => ()
            self.space.add_partial_file(file, bytes);
            self.sweep_partial_files().await;
        }
        Err(fault.into())
    }

    /// Removes what may be left of files that could not be made. Whether there was any.
    pub(super) async fn sweep_partial_files(&self) -> bool {
        let partial_files = self.space.take_partial_files();
        let many = partial_files.len();
        let left = self.remove_files(partial_files).await;
        let any = left.len() < many;
        self.space.put_back_partial_files(left);
        any
    }

    /// Removes files that are not needed any more. What cannot be removed is tried again later.
    pub(super) async fn sweep(&self, log: &mut Log) {
        log.garbage.extend(self.space.take_partial_files());
        log.garbage = self.remove_files(std::mem::take(&mut log.garbage)).await;
    }

    /// Removes files, with their bytes. Those that are left.
    async fn remove_files(&self, files: Vec<(StoreFile, u64)>) -> Vec<(StoreFile, u64)> {
        // Another program is at work in the directory: its files may have our names.
        // seeded: gone_keeps_files: self.gone.get().is_some() => false
        if self.gone.get().is_some() {
            return files;
        }
        let mut left = Vec::new();
        for (file, bytes) in files {
            match ask(&*self.disk, DiskRequest::Remove { file }).await.result {
                Ok(_) => self.space.uncount(bytes),
                Err(_) => left.push((file, bytes)),
            }
        }
        left
    }
}
