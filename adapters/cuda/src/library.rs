//! The driver's library, loaded once and shared with cudarc.
//!
//! Promises upward: [`is_available`] and [`address`] never panic; a missing library is an ordinary result.
//! Asks from below: cudarc's loader, which tries some thirty file names of libcuda and never unloads the library. The
//! loader panics if there is no library, so this module checks [`is_available`] first.

use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::NonNull;
use terrace_device::{Fault, FaultReason};

/// The most common names in cudarc's list; its other names add version numbers to these.
const COMMON_NAMES: [&str; 3] = if cfg!(windows) {
    ["nvcuda.dll", "cuda.dll", "cuda64.dll"]
} else if cfg!(target_vendor = "apple") {
    ["libcuda.dylib", "libcuda.dylib.1", "libnvcuda.dylib"]
} else {
    ["libcuda.so", "libcuda.so.1", "libnvcuda.so"]
};

/// A function that the loaded library does not export, by the driver's own name and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingSymbol {
    pub symbol: &'static str,
    pub since: &'static str,
}

/// The fault of a call to a function that the driver lacks.
pub fn missing_fault(missing: &MissingSymbol) -> Fault {
    Fault::of(missing.symbol, FaultReason::Missing)
}

/// Tries to load the driver's library; returns whether it is loaded.
pub fn is_available() -> bool {
    // SAFETY: loading runs the initialisers of NVIDIA's driver library, which any CUDA program runs.
    unsafe { sys::is_culib_present() }
}

/// File names of the driver's library that the loader tries, the most common first.
pub fn searched_names() -> Vec<String> {
    let mut all: Vec<String> = COMMON_NAMES.iter().map(ToString::to_string).collect();
    for name in ["cuda", "nvcuda"].iter().flat_map(|name| cudarc::get_lib_name_candidates(name)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// The address of what the library exports by a name, for ever; `None` also where there is no library.
pub fn address(symbol: &'static str) -> Option<NonNull<c_void>> {
    if !is_available() {
        return None;
    }
    // SAFETY: the library is loaded, so this returns it and does not panic.
    let library = unsafe { sys::culib() };
    // SAFETY: an address is only read.
    let found = unsafe { library.get::<*mut c_void>(symbol.as_bytes()) };
    found.ok().and_then(|found| NonNull::new(*found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_cudarc_looks_for() {
        let known: Vec<String> =
            ["cuda", "nvcuda"].iter().flat_map(|name| cudarc::get_lib_name_candidates(name)).collect();
        let told = searched_names();
        assert!(told.iter().all(|name| known.contains(name)), "{told:?} of {known:?}");
        assert!(known.iter().all(|name| told.contains(name)), "{known:?} in {told:?}");
        assert_eq!(told.iter().collect::<std::collections::HashSet<_>>().len(), told.len());
    }
}
