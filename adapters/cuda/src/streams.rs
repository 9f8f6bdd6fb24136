//! Streams of the driver.
//!
//! Promises upward: a stream that waits for no other; the name of one that is live.
//! Asks from below: the functions, and the context they need.

use crate::context::{PrimaryContext, handle, number};
use crate::layouts::NON_BLOCKING;
use crate::library::missing_fault;
use crate::result_codes::as_bad_handle;
use std::ptr::null_mut;
use terrace_device::Fault;

/// A stream that does not wait for the default one.
pub fn create_stream(primary: &PrimaryContext) -> Result<u64, Fault> {
    let mut stream = null_mut();
    primary.call_relaxed("cuStreamCreate", |core| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (core.cuStreamCreate)(&raw mut stream, NON_BLOCKING) }
    })?;
    Ok(number(stream))
}

/// Ends a stream. The driver still does what is on it.
///
/// # Safety
/// The stream is live, and no later call names it.
pub unsafe fn destroy_stream(primary: &PrimaryContext, stream: u64) -> Result<(), Fault> {
    let done = primary.call_relaxed("cuStreamDestroy_v2", |core| {
        // SAFETY: the caller's promise.
        unsafe { (core.cuStreamDestroy_v2)(handle(stream)) }
    });
    done.map_err(as_bad_handle)
}

/// The driver's name for a stream.
///
/// # Safety
/// The stream is live.
pub unsafe fn stream_name(primary: &PrimaryContext, stream: u64) -> Result<u64, Fault> {
    let ids = primary.functions.stream_ids.as_ref().map_err(missing_fault)?;
    let mut name = 0;
    let done = primary.call("cuStreamGetId", |_| {
        // SAFETY: the caller's promise; the out parameter lives through the call.
        unsafe { (ids.cuStreamGetId)(handle(stream), &raw mut name) }
    });
    done.map(|()| name).map_err(as_bad_handle)
}
