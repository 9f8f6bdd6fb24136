//! HIP's library, and the table of functions made of it.
//!
//! Promises upward: a missing, broken or wrong library is an [`OpenError`]; the library is never unloaded.
//! Asks from below: the system's loader.

use crate::{between, codes, names};
use libloading::Library;
use std::error::Error;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::OnceLock;
use terrace_cuda::{Attributes, Cuda, Dialect, DriverFunctions, OpenError, OpenErrorReason, Version};

/// HIP's words and numbers.
pub static HIP: Dialect = Dialect {
    backend: "hip",
    platform: "ROCm",
    // The oldest whose header was read.
    needed: Version { major: 6, minor: 2 },
    version: |number| {
        let number = number.unsigned_abs();
        Version { major: number / 10_000_000, minor: number % 10_000_000 / 100_000 }
    },
    own: |cuda, since| names::of(cuda).map_or((cuda, since), |name| (name.hip, name.since)),
    // `hipDeviceAttribute_t`, the same in 6.2 and 7.14.
    attributes: Attributes {
        integrated: 16,
        unified_addressing: 85,
        managed_memory: 24,
        host_native_atomics: 15,
        pageable_memory: 65,
        concurrent_managed: 9,
        host_register: 90,
        virtual_memory: 89,
        memory_pools: 88,
    },
    codes: codes::NAMES,
    reason: codes::reason_of,
    advice: codes::advice,
    refused: between::forget_error,
    install: "install AMD's ROCm 6.2 or newer (Linux: the package `hip-runtime-amd`, and the amdgpu driver; a container: \
              start it with `--device /dev/kfd --device /dev/dri`)",
    unseen: "look at `rocminfo` and at HIP_VISIBLE_DEVICES, ask whether you may use /dev/kfd (group `render`)",
};

/// File names that are tried, in this order.
const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"]
};

/// File names of HIP's library, in the order in which they are tried.
pub fn library_names() -> &'static [&'static str] {
    NAMES
}

/// AMD's devices, by HIP.
///
/// What it opens is a [`Cuda`]: all that terrace does on CUDA, by HIP's functions.
///
/// # Example
/// ```no_run
/// use terrace_device::{Device, DeviceOptions};
/// use terrace_hip::Hip;
/// let device = Device::open(Hip::open(0)?, DeviceOptions::default())?;
/// assert_eq!(device.description().backend, "hip");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hip;

impl Hip {
    /// Opens a device, and tries each of its capabilities once.
    ///
    /// # Errors
    /// [`OpenError`] names what failed and what to do about it.
    pub fn open(ordinal: u32) -> Result<Cuda, OpenError> {
        Cuda::open_by(loaded()?, ordinal)
    }

    /// The number of devices; 0 if HIP finds none.
    ///
    /// # Errors
    /// [`OpenError`] if HIP is missing, too old, or does not work.
    pub fn count() -> Result<u32, OpenError> {
        Cuda::count_by(loaded()?)
    }
}

/// HIP's functions, looked up by the first call; later calls return its result, even if that was an error.
fn loaded() -> Result<&'static DriverFunctions, OpenError> {
    static LOADED: OnceLock<Result<DriverFunctions, OpenError>> = OnceLock::new();
    LOADED.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<DriverFunctions, OpenError> {
    let library = open_library()
        .map_err(|searched| OpenError { driver: &HIP, reason: OpenErrorReason::NoLibrary { searched } })?;
    let address = |name: &str| {
        // SAFETY: an address is only read.
        let found = unsafe { library.get::<*mut c_void>(name) };
        found.ok().and_then(|found| NonNull::new(*found))
    };
    // SAFETY: HIP's library exports HIP's functions by their names, and is never unloaded.
    unsafe { between::load(&address) };
    let by_cuda = |cuda: &'static str| {
        let own = names::of(cuda).and_then(|name| address(name.hip))?;
        Some(between::address(cuda).unwrap_or(own))
    };
    // SAFETY: functions of the same parameters are HIP's own, which mirror CUDA's; for all others `between` has one.
    unsafe { DriverFunctions::find(&HIP, &by_cuda) }
}

/// The library, if the program has loaded it by this name: two of them in one process would not know each other's streams.
#[cfg(unix)]
fn loaded_library(name: &str) -> Option<Library> {
    use libloading::os::unix;
    /// `RTLD_NOLOAD` of Linux, macOS and the BSDs' `dlfcn.h`: loads nothing.
    const NO_LOAD: std::ffi::c_int = if cfg!(target_os = "linux") { 4 } else { 0x10 };
    // SAFETY: nothing is loaded, so no initialiser runs.
    let loaded = unsafe { unix::Library::open(Some(name), unix::RTLD_LAZY | NO_LOAD) };
    loaded.ok().map(Library::from)
}

/// The library, for as long as the process lives; or the names that were tried, with the loader's words where a file is there.
fn open_library() -> Result<&'static Library, Vec<String>> {
    #[cfg(unix)]
    if let Some(loaded) = NAMES.iter().find_map(|name| loaded_library(name)) {
        return Ok(Box::leak(Box::new(loaded)));
    }
    let mut searched = Vec::new();
    for name in NAMES {
        // SAFETY: loading runs the initialisers of AMD's library, which any HIP program runs.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => {
                // The loader's own words stand behind libloading's.
                let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                let absent = text.contains("cannot open shared object file") || cfg!(windows);
                searched.push(if absent { (*name).to_string() } else { format!("{name} that loads ({text})") });
            }
        }
    }
    Err(searched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let version = |number| (HIP.version)(number).to_string();
        assert_eq!([60_241_134, 71_460_850].map(version), ["6.2", "7.14"]);
        assert!((HIP.version)(50_000_000) < HIP.needed);
    }

    #[test]
    fn errors_speak_of_hip() {
        let text = OpenError { driver: &HIP, reason: OpenErrorReason::NoLibrary { searched: vec!["a.so".into()] } };
        let text = text.to_string();
        assert!(text.starts_with("no ROCm driver: there is no a.so where") && text.contains("/dev/kfd"), "{text}");
        assert_eq!((HIP.own)("cuMemAlloc_v2", "3.2"), ("hipMalloc", "6.2"));
    }
}
