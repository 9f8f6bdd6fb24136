//! Memory and copies.
//!
//! Promises upward: functions by name. Asks from below: the driver's of the same meaning.

use crate::call::{Handle, SUCCESS, driver, exports, in_context, passed_on, primary, result};
use crate::device::put;

/// `cudaMemcpyKind` of a copy to and from a device.
const TO_DEVICE: i32 = 1;
const FROM_DEVICE: i32 = 2;

/// `CU_POINTER_ATTRIBUTE_*`.
const MEMORY_TYPE: i32 = 2;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;

/// `cudaMemoryType`: what pinned memory and managed memory are.
const HOST: i32 = 1;
const MANAGED: i32 = 3;

/// `CU_MEMHOSTALLOC_PORTABLE`: pinned memory of the runtime is that of each device.
const PORTABLE: u32 = 1;

/// `cudaPointerAttributes`.
#[repr(C)]
#[derive(Default)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    on_device: u64,
    on_host: u64,
}

driver! {
    fn cuMemAlloc_v2(address: Option<&mut u64>, bytes: usize);
    fn cuMemFree_v2(address: u64);
    fn cuMemHostAlloc(address: Option<&mut u64>, bytes: usize, flags: u32);
    fn cuMemcpy(to: u64, from: u64, bytes: usize);
    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize);
    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize);
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle);
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    fn cuMemcpyPeerAsync(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle);
    fn cuMemsetD8_v2(address: u64, value: u8, bytes: usize);
    fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: Handle);
    fn cuPointerGetAttribute(value: &mut i32, attribute: i32, address: u64);
}

passed_on! {
    cudaFreeAsync = cuMemFreeAsync(address: u64, stream: Handle);
    cudaFreeHost = cuMemFreeHost(address: u64);
    cudaHostRegister = cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32);
    cudaHostUnregister = cuMemHostUnregister(address: u64);
    cudaMallocAsync = cuMemAllocAsync(address: Option<&mut u64>, bytes: usize, stream: Handle);
    cudaMallocManaged = cuMemAllocManaged(address: Option<&mut u64>, bytes: usize, flags: u32);
}

exports! {
    /// Nothing has no memory, which is no error.
    fn cudaMalloc(address: Option<&mut u64>, bytes: usize) {
        in_context(|| if bytes == 0 { put(address, 0) } else { cuMemAlloc_v2(address, bytes) })
    }
    /// Of nothing: starts the device.
    fn cudaFree(address: u64) {
        in_context(|| if address == 0 { SUCCESS } else { cuMemFree_v2(address) })
    }
    /// Each device may use it.
    fn cudaHostAlloc(address: Option<&mut u64>, bytes: usize, flags: u32) {
        in_context(|| cuMemHostAlloc(address, bytes, flags | PORTABLE))
    }
    fn cudaMallocHost(address: Option<&mut u64>, bytes: usize) {
        in_context(|| cuMemHostAlloc(address, bytes, PORTABLE))
    }
    fn cudaMemcpy(to: u64, from: u64, bytes: usize, kind: i32) {
        in_context(|| match kind {
            TO_DEVICE => cuMemcpyHtoD_v2(to, from, bytes),
            FROM_DEVICE => cuMemcpyDtoH_v2(to, from, bytes),
            _ => cuMemcpy(to, from, bytes),
        })
    }
    fn cudaMemcpyAsync(to: u64, from: u64, bytes: usize, kind: i32, stream: Handle) {
        in_context(|| match kind {
            TO_DEVICE => cuMemcpyHtoDAsync_v2(to, from, bytes, stream),
            FROM_DEVICE => cuMemcpyDtoHAsync_v2(to, from, bytes, stream),
            _ => cuMemcpyAsync(to, from, bytes, stream),
        })
    }
    fn cudaMemcpyPeerAsync(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize, stream: Handle) {
        in_context(|| match (primary(to_device), primary(from_device)) {
            (Ok(to_context), Ok(from_context)) => {
                cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream)
            }
            (Err(code), _) | (_, Err(code)) => code,
        })
    }
    fn cudaMemset(address: u64, value: i32, bytes: usize) {
        in_context(|| cuMemsetD8_v2(address, value as u8, bytes))
    }
    fn cudaMemsetAsync(address: u64, value: i32, bytes: usize, stream: Handle) {
        in_context(|| cuMemsetD8Async(address, value as u8, bytes, stream))
    }
    /// Memory that the driver does not know is of type 0, which is no error.
    fn cudaPointerGetAttributes(attributes: Option<&mut PointerAttributes>, address: u64) {
        in_context(|| put(attributes, attributes_of(address)))
    }
}

fn attributes_of(address: u64) -> PointerAttributes {
    let ask = |attribute| {
        let mut value = 0;
        result(cuPointerGetAttribute(&mut value, attribute, address)).map(|()| value)
    };
    let Ok(kind) = ask(MEMORY_TYPE) else {
        return PointerAttributes { device: -1, on_host: address, ..PointerAttributes::default() };
    };
    let managed = ask(IS_MANAGED).is_ok_and(|managed| managed != 0);
    PointerAttributes {
        kind: if managed { MANAGED } else { kind },
        device: ask(DEVICE_ORDINAL).unwrap_or(0),
        on_device: address,
        on_host: if managed || kind == HOST { address } else { 0 },
    }
}
