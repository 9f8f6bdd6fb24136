//! Streams, events and captures.
//!
//! Promises upward: functions by name. Asks from below: the driver's of the same meaning.

use crate::call::{Handle, passed_on};

passed_on! {
    hipStreamCreateWithFlags = cuStreamCreate(stream: Option<&mut Handle>, flags: u32);
    hipStreamDestroy = cuStreamDestroy_v2(stream: Handle);
    hipStreamQuery = cuStreamQuery(stream: Handle);
    hipStreamSynchronize = cuStreamSynchronize(stream: Handle);
    hipStreamWaitEvent = cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    hipStreamIsCapturing = cuStreamIsCapturing(stream: Handle, status: Option<&mut i32>);
    hipStreamGetId = cuStreamGetId(stream: Handle, id: Option<&mut u64>);
    hipEventCreateWithFlags = cuEventCreate(event: Option<&mut Handle>, flags: u32);
    hipEventDestroy = cuEventDestroy_v2(event: Handle);
    hipEventRecord = cuEventRecord(event: Handle, stream: Handle);
    hipEventQuery = cuEventQuery(event: Handle);
    hipEventSynchronize = cuEventSynchronize(event: Handle);
}
