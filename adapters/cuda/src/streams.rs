//! Creates and destroys the driver's streams, and queries their ids.
//!
//! Promises upward: a created stream does not synchronise with the legacy default stream.
//! Asks from below: the driver's functions and the primary context.

use crate::context::{PrimaryContext, handle, number};
use crate::layouts::NON_BLOCKING;
use crate::library::missing_fault;
use crate::result_codes::as_bad_handle;
use std::ptr::null_mut;
use terrace_device::Fault;

/// Creates a stream that does not synchronise with the legacy default stream.
pub fn create_stream(primary: &PrimaryContext) -> Result<u64, Fault> {
    let mut stream = null_mut();
    primary.call_relaxed("cuStreamCreate", |core| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (core.cuStreamCreate)(&raw mut stream, NON_BLOCKING) }
    })?;
    Ok(number(stream))
}

/// Destroys a stream. The driver still executes the work that is queued on it.
///
/// # Safety
/// The stream must be live, and no later call may name it.
pub unsafe fn destroy_stream(primary: &PrimaryContext, stream: u64) -> Result<(), Fault> {
    let done = primary.call_relaxed("cuStreamDestroy_v2", |core| {
        // SAFETY: the caller promises a live stream.
        unsafe { (core.cuStreamDestroy_v2)(handle(stream)) }
    });
    done.map_err(as_bad_handle)
}

/// The driver's id of a stream, which is never reused.
///
/// # Safety
/// The stream must be live.
pub unsafe fn stream_name(primary: &PrimaryContext, stream: u64) -> Result<u64, Fault> {
    let ids = primary.functions.stream_ids.as_ref().map_err(missing_fault)?;
    let mut name = 0;
    let done = primary.call("cuStreamGetId", |_| {
        // SAFETY: the caller promises a live stream; the out parameter lives through the call.
        unsafe { (ids.cuStreamGetId)(handle(stream), &raw mut name) }
    });
    done.map(|()| name).map_err(as_bad_handle)
}
