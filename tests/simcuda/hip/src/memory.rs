//! Memory, pages, pools and copies.
//!
//! Promises upward: functions by name, with HIP's rules for mappings. Asks from below: the driver's of the same meaning.

use crate::call::{Code, Handle, INVALID_VALUE, SUCCESS, device, driver, exports, on_device, passed_on, primary};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// `hipMemcpyDefault`: the direction follows from the addresses, the only one that terrace says.
const BY_ADDRESS: i32 = 4;

/// `hipErrorOutOfMemory`, with which HIP refuses address space that is no whole pages.
const OUT_OF_MEMORY: Code = 2;

/// Bytes of a page: `virtualMemAllocGranularity_` of the simulated devices.
const PAGE: usize = 2 << 20;

/// Bytes of each mapping, by address.
static MAPPINGS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// `hipMemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location: u32,
    device: i32,
    security: u64,
    flags: u64,
}

/// Whether registered memory has another address on the device, as on some of AMD's.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

driver! {
    fn cuMemCreate(handle: Option<&mut u64>, bytes: usize, properties: Option<&Properties>, flags: u64);
    fn cuMemHostGetDevicePointer_v2(on_device: Option<&mut u64>, address: u64, flags: u32);
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle);
    fn cuMemcpyPeerAsync(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle);
    fn cuMemAddressReserve(address: Option<&mut u64>, bytes: usize, alignment: usize, hint: u64, flags: u64);
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    fn cuMemUnmap(address: u64, bytes: usize);
    fn cuMemSetAccess(address: u64, bytes: usize, access: u64, count: usize);
}

passed_on! {
    hipMalloc = cuMemAlloc_v2(address: Option<&mut u64>, bytes: usize);
    hipFree = cuMemFree_v2(address: u64);
    hipHostMalloc = cuMemHostAlloc(address: Option<&mut u64>, bytes: usize, flags: u32);
    hipHostFree = cuMemFreeHost(address: u64);
    hipHostRegister = cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32);
    hipHostUnregister = cuMemHostUnregister(address: u64);
    hipMallocManaged = cuMemAllocManaged(address: Option<&mut u64>, bytes: usize, flags: u32);
    hipMemPrefetchAsync = cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: Handle);
    hipMemAdvise = cuMemAdvise(address: u64, bytes: usize, advice: u32, device: i32);
    hipMemsetD8Async = cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: Handle);
    hipMemcpyBatchAsync = cuMemcpyBatchAsync(
        to: u64, from: u64, bytes: u64, count: usize, attributes: u64, indices: u64, kinds: usize, failed: u64, stream: Handle
    );
    hipMemGetAllocationGranularity = cuMemGetAllocationGranularity(bytes: Option<&mut usize>, properties: u64, option: u32);
    hipMemAddressFree = cuMemAddressFree(address: u64, bytes: usize);
    hipMemRelease = cuMemRelease(handle: u64);
    hipMemPoolCreate = cuMemPoolCreate(pool: Option<&mut u64>, properties: u64);
    hipMemPoolDestroy = cuMemPoolDestroy(pool: u64);
    hipMemPoolSetAttribute = cuMemPoolSetAttribute(pool: u64, attribute: u32, value: u64);
    hipMemPoolSetAccess = cuMemPoolSetAccess(pool: u64, access: u64, count: usize);
    hipMemPoolTrimTo = cuMemPoolTrimTo(pool: u64, bytes: usize);
    hipMallocFromPoolAsync = cuMemAllocFromPoolAsync(address: Option<&mut u64>, bytes: usize, pool: u64, stream: Handle);
    hipFreeAsync = cuMemFreeAsync(address: u64, stream: Handle);
}

/// Gives registered memory another address on the device, or its own.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn simhip_elsewhere(elsewhere: bool) {
    ELSEWHERE.store(elsewhere, Ordering::Relaxed);
}

exports! {
    /// Makes memory on the thread's device, whichever the properties name, as ROCm 7 does.
    fn hipMemCreate(handle: Option<&mut u64>, bytes: usize, properties: Option<&Properties>, flags: u64) {
        let own = properties.map(|properties| Properties { device: device(), ..*properties });
        on_device(|| cuMemCreate(handle, bytes, own.as_ref(), flags))
    }
    fn hipHostGetDevicePointer(on_device_pointer: Option<&mut u64>, address: u64, flags: u32) {
        let Some(found) = on_device_pointer else { return INVALID_VALUE };
        let code = on_device(|| cuMemHostGetDevicePointer_v2(Some(found), address, flags));
        if ELSEWHERE.load(Ordering::Relaxed) {
            *found += 1 << 40;
        }
        code
    }
    fn hipMemcpyAsync(to: u64, from: u64, bytes: usize, kind: i32, stream: Handle) {
        if kind != BY_ADDRESS {
            return INVALID_VALUE;
        }
        on_device(|| cuMemcpyAsync(to, from, bytes, stream))
    }
    fn hipMemcpyPeerAsync(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize, stream: Handle) {
        on_device(|| match (primary(to_device), primary(from_device)) {
            (Ok(to_context), Ok(from_context)) => cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream),
            (Err(code), _) | (_, Err(code)) => code,
        })
    }
    fn hipMemAddressReserve(address: Option<&mut u64>, bytes: usize, alignment: usize, hint: u64, flags: u64) {
        if !bytes.is_multiple_of(PAGE) {
            return OUT_OF_MEMORY;
        }
        on_device(|| cuMemAddressReserve(address, bytes, alignment, hint, flags))
    }
    fn hipMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        if offset != 0 {
            return INVALID_VALUE;
        }
        let code = on_device(|| cuMemMap(address, bytes, offset, handle, flags));
        if code == SUCCESS {
            MAPPINGS.lock().insert(address, bytes);
        }
        code
    }
    fn hipMemUnmap(address: u64, bytes: usize) {
        if !is_one_mapping(address, bytes) {
            return INVALID_VALUE;
        }
        let code = on_device(|| cuMemUnmap(address, bytes));
        if code == SUCCESS {
            MAPPINGS.lock().remove(&address);
        }
        code
    }
    fn hipMemSetAccess(address: u64, bytes: usize, access: u64, count: usize) {
        if !is_one_mapping(address, bytes) {
            return INVALID_VALUE;
        }
        on_device(|| cuMemSetAccess(address, bytes, access, count))
    }
}

/// Whether a range is one mapping, whole.
fn is_one_mapping(address: u64, bytes: usize) -> bool {
    MAPPINGS.lock().get(&address) == Some(&bytes)
}

/// Forgets all mappings: the machine begins anew.
pub fn forget() {
    MAPPINGS.lock().clear();
    ELSEWHERE.store(false, Ordering::Relaxed);
}
