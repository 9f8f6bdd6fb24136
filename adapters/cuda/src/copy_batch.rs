//! Queues many copies by one driver call.
//!
//! Promises upward: all copies of a call are queued in stream order, or none is.
//! Asks from below: `cuMemcpyBatchAsync` of CUDA 12.8.

use crate::context::handle;
use crate::cuda::Cuda;
use crate::functions::BatchFunctions;
use crate::layouts::CopyAttributes;
use crate::result_codes::{as_bad_handle, size};
use terrace_device::{CopyRange, Fault, RawStream};

/// Queues all copies on a stream by one call.
///
/// # Safety
/// As for [`Backend::copy_batch`](terrace_device::Backend::copy_batch).
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
        // SAFETY: the caller promises the ranges; the arrays have `count` elements, and the one attribute applies from copy 0 on.
        unsafe { (batches.cuMemcpyBatchAsync)(to, from, sizes, count, attributes, &raw const first, 1, failed, stream) }
    });
    done.map_err(as_bad_handle)
}
