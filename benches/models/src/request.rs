//! From a request to the bytes a model must find: validation and over-alignment.
//!
//! Promises upward: nothing that passes here overflows when a model rounds it.
//! Asks from below: nothing.
//!
//! None of the modelled allocators takes an alignment; all promise a fixed one. A caller who needs more asks for
//! more bytes and aligns by hand. So does this page: the padding is part of the block and counts as in use.

use terrace_core::{AllocError, Cause, Request, SourceError, SourceUsage};

/// No request is larger: 2^62 bytes, so that rounding to any step up to 2^62 stays below 2^63.
const LARGEST: u64 = 1 << 62;

/// Bytes to find for `request` in an allocator whose blocks are all aligned to `granule`.
pub(crate) fn padded(request: Request, granule: u64) -> Result<u64, AllocError> {
    let request = request.validate()?;
    let padding = request.align.saturating_sub(granule);
    match request.bytes.checked_add(padding) {
        Some(bytes) if bytes <= LARGEST => Ok(bytes),
        _ => Err(AllocError::new(Cause::TooLarge, request.bytes)),
    }
}

/// What an allocation that the source could not serve reports.
pub(crate) fn refusal(
    error: SourceError,
    request: Request,
    bytes: u64,
    usage: SourceUsage,
    largest_free: u64,
) -> AllocError {
    let cause = match error {
        SourceError::OutOfMemory { .. } if usage.capacity != 0 && bytes > usage.capacity => Cause::TooLarge,
        SourceError::OutOfMemory { .. } => Cause::OutOfMemory,
        _ => Cause::SourceFailed,
    };
    AllocError { cause, asked: request.bytes, largest_free }
}
