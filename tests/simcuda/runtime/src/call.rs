//! What each function of the runtime does before and after the driver's: the thread's device, its context, its last error.
//!
//! Promises upward: [`exports!`] makes functions that note what they answer; [`passed_on!`] those that are one of the driver's;
//! [`in_context`] calls where a context is current: the thread's own, else its device's primary one.
//! Asks from below: the simulated driver, whose functions check each pointer.

use crate::launch;
use parking_lot::Mutex;
use std::cell::Cell;

/// A `cudaError_t`: the driver's number.
pub type Code = i32;

/// A stream, event, graph or context of the driver.
pub type Handle = u64;

/// `cudaSuccess`.
pub const SUCCESS: Code = 0;

/// `cudaErrorInvalidValue`.
pub const INVALID_VALUE: Code = 1;

/// `cudaErrorInvalidDevice`.
const INVALID_DEVICE: Code = 101;

/// The most devices that the simulated driver has.
const DEVICES: usize = 16;

thread_local! {
    /// The thread's device, as `cudaSetDevice` left it.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    /// The error that `cudaGetLastError` gives.
    static LAST: Cell<Code> = const { Cell::new(SUCCESS) };
}

/// Each device's primary context; 0 before its first use.
static PRIMARY: Mutex<[Handle; DEVICES]> = Mutex::new([0; DEVICES]);

/// C functions that note the error they return.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: the name is the runtime's, whose place this library takes; it is preloaded, never linked.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub extern "C" fn $name($($argument: $kind),*) -> $crate::call::Code {
            $crate::call::noted($body)
        }
    )*};
}

/// Functions of the driver, `fn name(argument: Type, ...);`.
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        // SAFETY: functions of the simulated driver have these types, and check each address but those of C strings, which only
        // programs in C pass through here.
        unsafe extern "C" { $(pub safe fn $name($($argument: $kind),*) -> $crate::call::Code;)* }
    };
}

/// Functions of the runtime that are one of the driver in the thread's context: `runtime = driver(argument: Type, ...);`.
macro_rules! passed_on {
    ($($runtime:ident = $driver:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        $crate::call::driver! { $(fn $driver($($argument: $kind),*);)* }
        $crate::call::exports! {
            $(fn $runtime($($argument: $kind),*) { $crate::call::in_context(|| $driver($($argument),*)) })*
        }
    };
}

pub(crate) use {driver, exports, passed_on};

driver! {
    fn cuInit(flags: u32);
    fn cuCtxGetCurrent(context: &mut Handle);
    fn cuCtxSetCurrent(context: Handle);
    fn cuCtxGetDevice(device: &mut i32);
    fn cuDevicePrimaryCtxRetain(context: &mut Handle, device: i32);
}

/// Notes an error for `cudaGetLastError`.
pub fn noted(code: Code) -> Code {
    if code != SUCCESS {
        LAST.set(code);
    }
    code
}

/// `Ok` for success.
pub fn result(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// The last error, which `forget` takes away.
pub fn last(forget: bool) -> Code {
    let code = LAST.get();
    if forget {
        LAST.set(SUCCESS);
    }
    code
}

/// Calls after the driver's start.
pub fn started(call: impl FnOnce() -> Code) -> Code {
    match cuInit(0) {
        SUCCESS => call(),
        code => code,
    }
}

/// Calls in the thread's context, which is its device's primary one unless another is current.
pub fn in_context(call: impl FnOnce() -> Code) -> Code {
    started(|| match current().and_then(|now| if now == 0 { enter(DEVICE.get()) } else { Ok(()) }) {
        Ok(()) => call(),
        Err(code) => code,
    })
}

/// The thread's context; 0 where it has none.
pub fn current() -> Result<Handle, Code> {
    let mut context = 0;
    result(cuCtxGetCurrent(&mut context)).map(|()| context)
}

/// Makes a device the thread's, and its primary context current.
pub fn enter(device: i32) -> Result<(), Code> {
    let context = primary(device)?;
    DEVICE.set(device);
    result(cuCtxSetCurrent(context))
}

/// The device's primary context, retained for as long as the process lives.
pub fn primary(device: i32) -> Result<Handle, Code> {
    let mut all = PRIMARY.lock();
    let context = usize::try_from(device).ok().and_then(|device| all.get_mut(device)).ok_or(INVALID_DEVICE)?;
    if *context == 0 {
        let before = current()?;
        let mut retained = 0;
        result(cuDevicePrimaryCtxRetain(&mut retained, device))?;
        result(cuCtxSetCurrent(retained))?;
        // A capture may not load code: what launches need is loaded before the first.
        let loaded = launch::kernel(retained);
        result(cuCtxSetCurrent(before))?;
        loaded?;
        *context = retained;
    }
    Ok(*context)
}

/// The thread's device: that of its context, else the one that it chose.
pub fn device() -> i32 {
    let mut device = DEVICE.get();
    if current().is_ok_and(|context| context != 0) && cuCtxGetDevice(&mut device) != SUCCESS {
        return DEVICE.get();
    }
    device
}
