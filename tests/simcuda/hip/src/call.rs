//! What each function does before the driver's: the thread's device, whose primary context is current meanwhile.
//!
//! Promises upward: [`exports!`] makes C functions, [`passed_on!`] those that are one of the driver's, with the thread's device current.
//! Asks from below: the simulated driver, whose functions check each pointer.

use parking_lot::Mutex;
use std::cell::Cell;

/// A `hipError_t`: the driver's number, which both share.
pub type Code = i32;

/// A stream, event or context of the driver.
pub type Handle = u64;

pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
const INVALID_DEVICE: Code = 101;
const NOT_READY: Code = 600;

/// The most devices that the simulated driver has.
const DEVICES: usize = 16;

thread_local! {
    /// The thread's device, as `hipSetDevice` left it.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    /// The error that `hipGetLastError` gives.
    static LAST: Cell<Code> = const { Cell::new(SUCCESS) };
}

/// Each device's primary context; 0 before its first use, and after `simhip_end`.
static PRIMARY: Mutex<[Handle; DEVICES]> = Mutex::new([0; DEVICES]);

/// C functions that return a code.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: the name is HIP's, whose place this library takes; it is loaded by path, never linked.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub extern "C" fn $name($($argument: $kind),*) -> $crate::call::Code {
            #[allow(clippy::too_many_arguments)]
            fn answer($($argument: $kind),*) -> $crate::call::Code $body
            $crate::call::noted(answer($($argument),*))
        }
    )*};
}

/// Functions of the driver, `fn name(argument: Type, ...);`.
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        // SAFETY: functions of the simulated driver have these types, and check each address.
        unsafe extern "C" { $(pub safe fn $name($($argument: $kind),*) -> $crate::call::Code;)* }
    };
}

/// Functions that are one of the driver with the thread's device current: `hip = driver(argument: Type, ...);`.
macro_rules! passed_on {
    ($($hip:ident = $driver:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        $crate::call::driver! { $(fn $driver($($argument: $kind),*);)* }
        $crate::call::exports! {
            $(fn $hip($($argument: $kind),*) { $crate::call::on_device(|| $driver($($argument),*)) })*
        }
    };
}

pub(crate) use {driver, exports, passed_on};

driver! {
    fn cuCtxSetCurrent(context: Handle);
    fn cuDevicePrimaryCtxRetain(context: &mut Handle, device: i32);
    fn cuDevicePrimaryCtxRelease_v2(device: i32);
}

/// Notes an error for `hipGetLastError`, as ROCm 7 does: not that work is not done yet, and no success.
pub fn noted(code: Code) -> Code {
    if ![SUCCESS, NOT_READY].contains(&code) {
        LAST.set(code);
    }
    code
}

/// The last error of the thread; forgets it if asked to.
pub fn last_error(forget: bool) -> Code {
    if forget { LAST.replace(SUCCESS) } else { LAST.get() }
}

/// Calls with the thread's device current.
pub fn on_device(call: impl FnOnce() -> Code) -> Code {
    match enter(DEVICE.get()) {
        Ok(()) => call(),
        Err(code) => code,
    }
}

fn enter(device: i32) -> Result<(), Code> {
    result(cuCtxSetCurrent(primary(device)?))
}

/// `Ok` for success.
pub fn result(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// The thread's device.
pub fn device() -> i32 {
    DEVICE.get()
}

/// Makes a device the thread's, if there is one of that number.
pub fn set_device(device: i32, found: i32) -> Code {
    if !(0..found).contains(&device) {
        return INVALID_DEVICE;
    }
    DEVICE.set(device);
    SUCCESS
}

/// The device's primary context, retained until `simhip_end`.
pub fn primary(device: i32) -> Result<Handle, Code> {
    let mut all = PRIMARY.lock();
    let context = usize::try_from(device).ok().and_then(|device| all.get_mut(device)).ok_or(INVALID_DEVICE)?;
    if *context == 0 {
        let mut retained = 0;
        result(cuDevicePrimaryCtxRetain(&mut retained, device))?;
        *context = retained;
    }
    Ok(*context)
}

/// Releases what this library holds of the machine, as the end of a process does: before a test looks for what is left.
// SAFETY: the name is this library's own.
#[unsafe(no_mangle)]
pub extern "C" fn simhip_end() {
    for (device, context) in PRIMARY.lock().iter_mut().enumerate() {
        if std::mem::take(context) != 0 {
            cuCtxSetCurrent(0);
            cuDevicePrimaryCtxRelease_v2(device as i32);
        }
    }
    crate::memory::forget();
    DEVICE.set(0);
    LAST.set(SUCCESS);
}
