//! Sizes that follow from settings: staging memory, logs, what a store takes.

use terrace_file::StoreOptions;

/// Chunks that staging memory holds, for all copies together; but no more bytes than the setting `staging` says, unless two
/// chunks are more: one is read while the other is written.
const STAGE: u64 = 32;

/// Bytes that each store keeps for its log.
pub(super) const LOG: u64 = 1 << 20;

/// Bytes of staging memory for chunks, where the setting says `most`.
pub(super) fn stage(chunk: u64, most: u64) -> u64 {
    (chunk * STAGE).min(most.max(2 * chunk))
}

/// Bytes of buffers that a store takes: seven eighths of its slabs. The rest is for versions that stay durable while
/// newer ones are written, for the ends of chunks, and for the log records of small ones: 232 bytes for each (29,
/// twice, in two copies of this log and of the next), which for the smallest, of 4 KiB, is a seventeenth.
pub(super) fn room(options: &StoreOptions) -> u64 {
    let slabs = options.cap.saturating_sub(2 * options.log_bytes) / options.slab_bytes * options.slab_bytes;
    slabs / 8 * 7
}
