//! Many copies by one call.
//!
//! Promises upward: all copies of a call are in the stream's order, or none was begun.
//! Asks from below: a function that came with CUDA 12.8.

use crate::context::handle;
use crate::cuda::Cuda;
use crate::functions::BatchFunctions;
use crate::layouts::CopyAttributes;
use crate::result_codes::{as_bad_handle, size};
use terrace_device::{CopyRange, Fault, RawStream};

/// All copies by one call.
///
/// # Safety
/// As for [`Backend::copy_batch`].
pub unsafe fn copy_batch(
    cuda: &Cuda,
    batches: &BatchFunctions,
    copies: &[CopyRange],
    stream: RawStream,
) -> Result<(), Fault> {
    const CALL: &str = "cuMemcpyBatchAsync";
    let to: Vec<u64> = copies.iter().map(|copy| copy.to).collect();
    let from: Vec<u64> = copies.iter().map(|copy| copy.from).collect();
    let sizes: Vec<usize> = copies.iter().map(|copy| size(CALL, copy.bytes)).collect::<Result<_, _>>()?;
    let (attributes, first, mut failed) = (CopyAttributes::STREAM_ORDER, 0, 0);
    let done = cuda.primary.call(CALL, |_| {
        let (to, from, sizes, count) = (to.as_ptr(), from.as_ptr(), sizes.as_ptr(), copies.len());
        let (attributes, failed, stream) = (&raw const attributes, &raw mut failed, handle(stream.0));
        // SAFETY: the caller's promise for the ranges; three arrays of `count`, one attribute that counts from the first copy on.
        unsafe { (batches.cuMemcpyBatchAsync)(to, from, sizes, count, attributes, &raw const first, 1, failed, stream) }
    });
    done.map_err(as_bad_handle)
}
