//! The driver's library: looked for once, and shared with cudarc.
//!
//! Promises upward: [`is_there`] and [`function`] never panic; a library that is not there is an answer.
//! Asks from below: cudarc's loader, which looks for libcuda under some thirty names and keeps it for good. It panics when
//! there is none, so it is asked first whether there is.

use cudarc::driver::sys;
use terrace_device::{Fault, FaultReason};

/// Names of cudarc's list that say most: its others are these with numbers.
const SHOWN: [&str; 3] = if cfg!(windows) {
    ["nvcuda.dll", "cuda.dll", "cuda64.dll"]
} else if cfg!(target_vendor = "apple") {
    ["libcuda.dylib", "libcuda.dylib.1", "libnvcuda.dylib"]
} else {
    ["libcuda.so", "libcuda.so.1", "libnvcuda.so"]
};

/// A function that the driver does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub symbol: &'static str,
    pub since: &'static str,
}

/// The refusal of a call that the driver does not have.
pub fn absent(missing: &Missing) -> Fault {
    Fault::of(missing.symbol, FaultReason::Missing)
}

/// Whether there is a library that can be loaded.
pub fn is_there() -> bool {
    // SAFETY: loading runs the library's initialisers; that is what somebody who opens a device asks for.
    unsafe { sys::is_culib_present() }
}

/// Every file name that was looked for where the system looks for libraries, the best known first.
pub fn searched() -> Vec<String> {
    let mut all: Vec<String> = SHOWN.iter().map(ToString::to_string).collect();
    for name in ["cuda", "nvcuda"].iter().flat_map(|name| cudarc::get_lib_name_candidates(name)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// A function of the library by its exported name.
///
/// # Safety
/// [`is_there`] said yes, and `F` is a pointer to a function with the prototype that the driver gives this name.
pub unsafe fn function<F: Copy>(symbol: &'static str, since: &'static str) -> Result<F, Missing> {
    // SAFETY: the library is there, so that this only gives the one that is loaded.
    let library = unsafe { sys::culib() };
    // SAFETY: the caller's promise about the prototype. The library is never unloaded, so the pointer stays good.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found.map(|found| *found).map_err(|_| Missing { symbol, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_cudarc_looks_for() {
        let known: Vec<String> =
            ["cuda", "nvcuda"].iter().flat_map(|name| cudarc::get_lib_name_candidates(name)).collect();
        let told = searched();
        assert!(told.iter().all(|name| known.contains(name)), "{told:?} of {known:?}");
        assert!(known.iter().all(|name| told.contains(name)), "{known:?} in {told:?}");
        assert_eq!(told.iter().collect::<std::collections::HashSet<_>>().len(), told.len());
    }
}
