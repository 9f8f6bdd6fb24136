//! Streams, events, captures and graphs.
//!
//! Promises upward: functions by name. Asks from below: the driver's of the same meaning.

use crate::call::{Handle, driver, exports, in_context, passed_on};
use std::ffi::c_void;

driver! {
    fn cuGraphInstantiateWithFlags(exec: Option<&mut Handle>, graph: Handle, flags: u64);
}

passed_on! {
    cudaStreamCreateWithFlags = cuStreamCreate(stream: Option<&mut Handle>, flags: u32);
    cudaStreamCreateWithPriority = cuStreamCreateWithPriority(stream: Option<&mut Handle>, flags: u32, priority: i32);
    cudaStreamDestroy = cuStreamDestroy_v2(stream: Handle);
    cudaStreamQuery = cuStreamQuery(stream: Handle);
    cudaStreamSynchronize = cuStreamSynchronize(stream: Handle);
    cudaStreamWaitEvent = cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    cudaStreamGetPriority = cuStreamGetPriority(stream: Handle, priority: Option<&mut i32>);
    cudaStreamGetId = cuStreamGetId(stream: Handle, id: Option<&mut u64>);
    cudaStreamIsCapturing = cuStreamIsCapturing(stream: Handle, status: Option<&mut i32>);
    cudaStreamBeginCapture = cuStreamBeginCapture_v2(stream: Handle, mode: i32);
    cudaStreamEndCapture = cuStreamEndCapture(stream: Handle, graph: Option<&mut Handle>);
    cudaStreamGetCaptureInfo = cuStreamGetCaptureInfo_v3(
        stream: Handle, status: Option<&mut i32>, id: Option<&mut u64>, graph: Option<&mut Handle>,
        dependencies: Option<&mut *const c_void>, edges: Option<&mut *const c_void>, count: Option<&mut usize>,
    );
    cudaGraphLaunch = cuGraphLaunch(exec: Handle, stream: Handle);
    cudaGraphDestroy = cuGraphDestroy(graph: Handle);
    cudaGraphExecDestroy = cuGraphExecDestroy(exec: Handle);
    cudaGraphGetNodes = cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: Option<&mut usize>);
    cudaEventCreateWithFlags = cuEventCreate(event: Option<&mut Handle>, flags: u32);
    cudaEventDestroy = cuEventDestroy_v2(event: Handle);
    cudaEventQuery = cuEventQuery(event: Handle);
    cudaEventRecord = cuEventRecord(event: Handle, stream: Handle);
    cudaEventRecordWithFlags = cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32);
    cudaEventSynchronize = cuEventSynchronize(event: Handle);
    cudaEventElapsedTime = cuEventElapsedTime(milliseconds: Option<&mut f32>, start: Handle, end: Handle);
}

exports! {
    fn cudaStreamCreate(stream: Option<&mut Handle>) { in_context(|| cuStreamCreate(stream, 0)) }
    fn cudaEventCreate(event: Option<&mut Handle>) { in_context(|| cuEventCreate(event, 0)) }
    /// Flags of the runtime are those of the driver.
    fn cudaGraphInstantiate(exec: Option<&mut Handle>, graph: Handle, flags: u64) {
        in_context(|| cuGraphInstantiateWithFlags(exec, graph, flags))
    }
    fn cudaGraphInstantiateWithFlags(exec: Option<&mut Handle>, graph: Handle, flags: u64) {
        in_context(|| cuGraphInstantiateWithFlags(exec, graph, flags))
    }
}
