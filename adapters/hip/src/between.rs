//! Functions with CUDA's parameters for those of HIP that have others.
//!
//! ```text
//!   CUDA                                HIP
//!   a context, current on a thread      a device, current on a thread: its number and 1 stand for the context
//!   copy(to, from, bytes, stream)       the same, with the direction: by the addresses
//!   copies between contexts             between devices
//!   unmap, open: a range of mappings    one mapping a call
//!   create: on the device it names      on the thread's device (ROCm 7)
//!   register: at the same address       perhaps at another, which is refused here
//! ```
//!
//! Promises upward: what CUDA's documentation says of each, as far as terrace calls it.
//! Asks from below: HIP's functions, which [`load`] finds once.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::{NonNull, without_provenance_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A `hipError_t`.
type HipCode = c_int;

const SUCCESS: HipCode = 0;
/// `hipErrorInvalidValue`.
const INVALID_VALUE: HipCode = 1;
/// `hipErrorInvalidContext`.
const INVALID_CONTEXT: HipCode = 201;
/// `hipErrorNotFound`.
const NOT_FOUND: HipCode = 500;
/// `hipErrorPeerAccessAlreadyEnabled`.
const ALREADY_REACHED: HipCode = 704;
/// `hipErrorNotSupported`.
const NOT_SUPPORTED: HipCode = 801;
/// `hipErrorContextIsDestroyed`, for which terrace treats the device as lost.
const LOST: HipCode = 709;
/// `hipMemcpyDefault`: the direction follows from the addresses.
const BY_ADDRESS: c_int = 4;

/// HIP's functions that are called here.
#[derive(Default)]
struct HipFunctions {
    get_device: Option<unsafe extern "C" fn(*mut c_int) -> HipCode>,
    set_device: Option<unsafe extern "C" fn(c_int) -> HipCode>,
    last_error: Option<unsafe extern "C" fn() -> HipCode>,
    copy: Option<unsafe extern "C" fn(u64, u64, usize, c_int, *mut c_void) -> HipCode>,
    reach: Option<unsafe extern "C" fn(c_int, c_uint) -> HipCode>,
    copy_peer: Option<unsafe extern "C" fn(u64, c_int, u64, c_int, usize, *mut c_void) -> HipCode>,
    create: Option<unsafe extern "C" fn(*mut u64, usize, *const PageLocation, c_ulonglong) -> HipCode>,
    map: Option<unsafe extern "C" fn(u64, usize, usize, u64, c_ulonglong) -> HipCode>,
    unmap: Option<unsafe extern "C" fn(u64, usize) -> HipCode>,
    open: Option<unsafe extern "C" fn(u64, usize, *const c_void, usize) -> HipCode>,
    register: Option<unsafe extern "C" fn(*mut c_void, usize, c_uint) -> HipCode>,
    unregister: Option<unsafe extern "C" fn(*mut c_void) -> HipCode>,
    device_pointer: Option<unsafe extern "C" fn(*mut *mut c_void, *mut c_void, c_uint) -> HipCode>,
}

/// The beginning of `hipMemAllocationProp`: what memory, and on which device.
#[repr(C)]
pub struct PageLocation {
    kind: c_uint,
    handles: c_uint,
    location: c_uint,
    device: c_int,
}

static OWN: OnceLock<HipFunctions> = OnceLock::new();

/// Bytes of each mapping, by address. HIP unmaps and opens one at a time.
static MAPPINGS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Finds the functions.
///
/// # Safety
/// Each address must be that of HIP's function of the name, and stay valid as long as the process lives.
pub unsafe fn load(find: &dyn Fn(&str) -> Option<NonNull<c_void>>) {
    macro_rules! typed {
        ($name:literal, $($argument:ty),*) => {
            // SAFETY: the caller promises HIP's function, which has this prototype; pointers to functions have the values of addresses.
            find($name).map(|address| unsafe {
                std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> HipCode>(address)
            })
        };
    }
    let own = HipFunctions {
        get_device: typed!("hipGetDevice", *mut c_int),
        set_device: typed!("hipSetDevice", c_int),
        last_error: typed!("hipGetLastError",),
        copy: typed!("hipMemcpyAsync", u64, u64, usize, c_int, *mut c_void),
        reach: typed!("hipDeviceEnablePeerAccess", c_int, c_uint),
        copy_peer: typed!("hipMemcpyPeerAsync", u64, c_int, u64, c_int, usize, *mut c_void),
        create: typed!("hipMemCreate", *mut u64, usize, *const PageLocation, c_ulonglong),
        map: typed!("hipMemMap", u64, usize, usize, u64, c_ulonglong),
        unmap: typed!("hipMemUnmap", u64, usize),
        open: typed!("hipMemSetAccess", u64, usize, *const c_void, usize),
        register: typed!("hipHostRegister", *mut c_void, usize, c_uint),
        unregister: typed!("hipHostUnregister", *mut c_void),
        device_pointer: typed!("hipHostGetDevicePointer", *mut *mut c_void, *mut c_void, c_uint),
    };
    // A second caller found the same functions.
    let _ = OWN.set(own);
}

/// Makes HIP forget a refusal of ours, which the program would take for its own.
pub fn forget_error() {
    // SAFETY: takes nothing.
    with(|own| own.last_error, |last_error| unsafe { last_error() });
}

/// The function that stands for one of CUDA, if HIP's own has other parameters.
pub fn address(cuda: &str) -> Option<NonNull<c_void>> {
    let function: *const () = match cuda {
        "cuDevicePrimaryCtxRetain" => retain as *const (),
        "cuDevicePrimaryCtxRelease_v2" => release as *const (),
        "cuCtxGetCurrent" => current as *const (),
        "cuCtxSetCurrent" => set_current as *const (),
        "cuMemcpyAsync" => copy as *const (),
        "cuCtxEnablePeerAccess" => reach as *const (),
        "cuMemcpyPeerAsync" => copy_peer as *const (),
        "cuMemCreate" => create as *const (),
        "cuMemHostRegister_v2" => register as *const (),
        "cuMemMap" => map as *const (),
        "cuMemUnmap" => unmap as *const (),
        "cuMemSetAccess" => open as *const (),
        _ => return None,
    };
    NonNull::new(function.cast_mut().cast())
}

/// Calls, if the function is there.
fn with<F>(pick: impl FnOnce(&'static HipFunctions) -> Option<F>, call: impl FnOnce(F) -> HipCode) -> HipCode {
    OWN.get().and_then(pick).map_or(NOT_FOUND, call)
}

/// What stands for a device's context: its number and 1, since null is none.
fn context_of(device: c_int) -> *mut c_void {
    without_provenance_mut(device as usize + 1)
}

/// The device that a context stands for.
fn device_of(context: *mut c_void) -> Option<c_int> {
    context.addr().checked_sub(1).and_then(|device| c_int::try_from(device).ok())
}

/// A device is there as long as the process: nothing is to be retained.
unsafe extern "C" fn retain(context: *mut *mut c_void, device: c_int) -> HipCode {
    // SAFETY: the caller gives a place for the context.
    unsafe { context.write(context_of(device)) };
    SUCCESS
}

unsafe extern "C" fn release(_device: c_int) -> HipCode {
    SUCCESS
}

unsafe extern "C" fn current(context: *mut *mut c_void) -> HipCode {
    with(
        |own| own.get_device,
        |get_device| {
            let mut device = 0;
            // SAFETY: the out parameter lives through the call.
            let code = unsafe { get_device(&raw mut device) };
            if code == SUCCESS {
                // SAFETY: the caller gives a place for the context.
                unsafe { context.write(context_of(device)) };
            }
            code
        },
    )
}

/// A thread has a device always: to have none again needs no call.
unsafe extern "C" fn set_current(context: *mut c_void) -> HipCode {
    let Some(device) = device_of(context) else { return SUCCESS };
    // SAFETY: takes a number, which HIP checks.
    with(|own| own.set_device, |set_device| unsafe { set_device(device) })
}

unsafe extern "C" fn copy(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> HipCode {
    // SAFETY: the caller promises ranges and stream, and HIP tells host from device by the addresses.
    with(|own| own.copy, |copy| unsafe { copy(to, from, bytes, BY_ADDRESS, stream) })
}

unsafe extern "C" fn reach(context: *mut c_void, flags: c_uint) -> HipCode {
    let Some(device) = device_of(context) else { return INVALID_CONTEXT };
    // SAFETY: takes numbers, which HIP checks.
    let code = with(|own| own.reach, |reach| unsafe { reach(device, flags) });
    if code == ALREADY_REACHED {
        // No refusal for our caller, so it stays with us.
        forget_error();
    }
    code
}

unsafe extern "C" fn copy_peer(
    to: u64,
    to_context: *mut c_void,
    from: u64,
    from_context: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> HipCode {
    let (Some(to_device), Some(from_device)) = (device_of(to_context), device_of(from_context)) else {
        return INVALID_CONTEXT;
    };
    with(
        |own| own.copy_peer,
        // SAFETY: the caller promises ranges and stream.
        |copy| unsafe { copy(to, to_device, from, from_device, bytes, stream) },
    )
}

/// Makes memory on the device that the properties name, whichever is the thread's.
unsafe extern "C" fn create(
    handle: *mut u64,
    bytes: usize,
    properties: *const PageLocation,
    flags: c_ulonglong,
) -> HipCode {
    let mut before = 0;
    // SAFETY: the out parameter lives through the call.
    let asked = with(|own| own.get_device, |get_device| unsafe { get_device(&raw mut before) });
    // SAFETY: the caller gives properties, which begin like this.
    let device = unsafe { (*properties).device };
    let switch = |to: c_int| {
        // SAFETY: takes a number, which HIP checks.
        with(|own| own.set_device, |set_device| unsafe { set_device(to) })
    };
    let away = before != device;
    match if away && asked == SUCCESS { switch(device) } else { asked } {
        SUCCESS => {}
        code => return code,
    }
    // SAFETY: the caller gives a place for the handle, and properties.
    let code = with(|own| own.create, |create| unsafe { create(handle, bytes, properties, flags) });
    if away {
        // If it is refused, the thread keeps our device; the next call sets its own.
        switch(before);
    }
    code
}

/// Pins memory of the program's; refuses it where the device has another address for it, which blocks do not have.
unsafe extern "C" fn register(address: *mut c_void, bytes: usize, flags: c_uint) -> HipCode {
    // SAFETY: the caller promises mapped memory.
    let code = with(|own| own.register, |register| unsafe { register(address, bytes, flags) });
    if code != SUCCESS {
        return code;
    }
    let mut on_device = std::ptr::null_mut();
    // SAFETY: the out parameter lives through the call; the memory was registered above.
    let told = with(|own| own.device_pointer, |pointer| unsafe { pointer(&raw mut on_device, address, 0) });
    if told == SUCCESS && on_device == address {
        return SUCCESS;
    }
    // SAFETY: registered above, and no work uses it. If it is refused twice, the memory stays pinned, which harms no one.
    let back = || with(|own| own.unregister, |unregister| unsafe { unregister(address) });
    let _ = (back() != SUCCESS).then(back);
    if told == SUCCESS { NOT_SUPPORTED } else { told }
}

/// The mappings that lie in a range.
fn mappings(address: u64, bytes: usize) -> Vec<(u64, usize)> {
    let mapped = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    mapped.range(address..address.saturating_add(bytes as u64)).map(|(&at, &bytes)| (at, bytes)).collect()
}

unsafe extern "C" fn map(address: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) -> HipCode {
    // SAFETY: the caller promises reserved, unmapped addresses and a live handle.
    let code = with(|own| own.map, |map| unsafe { map(address, bytes, offset, handle, flags) });
    if code == SUCCESS {
        MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
    }
    code
}

/// Unmaps each mapping of the range. If HIP refuses a later one twice, some of the range is mapped and some is not, which CUDA never
/// leaves: the device counts as lost.
unsafe extern "C" fn unmap(address: u64, bytes: usize) -> HipCode {
    let all = mappings(address, bytes);
    if all.is_empty() {
        return INVALID_VALUE;
    }
    for (done, &(at, bytes)) in all.iter().enumerate() {
        // SAFETY: the caller promises that no work uses the range; this is one whole mapping of it, and a refused call unmaps nothing.
        let unmap = || with(|own| own.unmap, |unmap| unsafe { unmap(at, bytes) });
        match unmap() {
            SUCCESS => {}
            code if done == 0 => return code,
            _ if unmap() == SUCCESS => {}
            _ => return LOST,
        }
        MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner).remove(&at);
    }
    SUCCESS
}

/// Opens each mapping of the range; of a refusal, those before it are open too, which changes nothing for them.
unsafe extern "C" fn open(address: u64, bytes: usize, access: *const c_void, count: usize) -> HipCode {
    let all = mappings(address, bytes);
    if all.is_empty() {
        return INVALID_VALUE;
    }
    let codes = all.into_iter().map(|(at, bytes)| {
        // SAFETY: one whole mapping of the range; the caller's descriptors live through the call.
        with(|own| own.open, |open| unsafe { open(at, bytes, access, count) })
    });
    codes.into_iter().find(|&code| code != SUCCESS).unwrap_or(SUCCESS)
}
