//! Files of a store: created, synced, removed.
//!
//! Promises upward: the bytes of a file count against the cap until it is removed; once the log or the superblock is
//! gone, no file is removed.

use super::error::StoreError;
use super::log::Log;
use super::shared::StoreShared;
use crate::disk::{DiskRequest, StoreFile, submit};
use crate::fault::FileFaultReason;

impl StoreShared {
    /// Makes earlier writes to a file durable.
    pub(super) fn sync(&self, file: StoreFile) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let response = submit(&*self.disk, DiskRequest::Sync { file });
        async { response.await.result.map(drop).map_err(Into::into) }
    }

    /// Makes earlier creations and removals durable.
    pub(super) async fn sync_directory(&self) -> Result<(), StoreError> {
        let unnamed = self.space.unnamed();
        let synced = submit(&*self.disk, DiskRequest::SyncDirectory).await.result;
        self.space.end_directory_sync(&unnamed, synced.is_ok());
        synced.map(drop).map_err(Into::into)
    }

    /// Creates a file. If that fails, removes what may exist of the file, or counts its bytes against the cap until it
    /// can be removed.
    pub(super) async fn create(&self, file: StoreFile, bytes: u64) -> Result<(), StoreError> {
        let Err(fault) = submit(&*self.disk, DiskRequest::Create { file, bytes }).await.result else { return Ok(()) };
        // Remove nothing if a file of that name existed before, as it is not ours, or if creation was denied, as no
        // file was made.
        if !matches!(fault.reason, FileFaultReason::Exists | FileFaultReason::Denied) {
            // seeded: stumps_counted: self.space.add_partial_file(file, bytes) => ()
            self.space.add_partial_file(file, bytes);
            self.sweep_partial_files().await;
        }
        Err(fault.into())
    }

    /// Removes files whose creation has failed; returns true if any was removed.
    pub(super) async fn sweep_partial_files(&self) -> bool {
        let partial_files = self.space.take_partial_files();
        let many = partial_files.len();
        let left = self.remove_files(partial_files).await;
        let any = left.len() < many;
        self.space.put_back_partial_files(left);
        any
    }

    /// Removes files that are no longer needed; those that cannot be removed stay in `log.garbage`.
    pub(super) async fn sweep(&self, log: &mut Log) {
        log.garbage.extend(self.space.take_partial_files());
        log.garbage = self.remove_files(std::mem::take(&mut log.garbage)).await;
    }

    /// Removes files, each with its bytes, and returns those that could not be removed.
    async fn remove_files(&self, files: Vec<(StoreFile, u64)>) -> Vec<(StoreFile, u64)> {
        // Another program works in the directory: files with the names that we use may be that program's.
        // seeded: gone_keeps_files: self.gone.get().is_some() => false
        if self.gone.get().is_some() {
            return files;
        }
        let mut left = Vec::new();
        for (file, bytes) in files {
            match submit(&*self.disk, DiskRequest::Remove { file }).await.result {
                Ok(_) => self.space.uncount(bytes),
                Err(_) => left.push((file, bytes)),
            }
        }
        left
    }
}
