//! What a device says of itself.
//!
//! Promises upward: a property that a device does not know is what it would be without it.
//! Asks from below: properties by number.

use crate::connection::{as_number, as_text, device_property, handle, property};
use crate::functions::Functions;
use crate::layouts::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_NAME, CL_DEVICE_PLATFORM, CL_DEVICE_SVM_ATOMICS,
    CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_BUFFER,
    CL_DEVICE_SVM_FINE_GRAIN_SYSTEM, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU, CL_DEVICE_VERSION, CL_DRIVER_VERSION,
    CL_PLATFORM_NAME,
};
use crate::memory::OpenClMemory;
use terrace_device::Fault;

/// A device of one of the platforms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenClDevice {
    /// Its number among all devices of all platforms.
    pub ordinal: u32,
    /// The device's name.
    pub name: String,
    /// The name of its platform: one for each driver.
    pub platform: String,
    /// The version that it offers, as it says it: `OpenCL 3.0`, then the driver's own words.
    pub version: String,
    /// The driver's version.
    pub driver: String,
    /// Bytes of memory.
    pub total: u64,
    /// Most bytes of one allocation: of a segment.
    pub largest: u64,
    /// Sub-buffers begin at multiples of this many bytes.
    pub align: u64,
    /// Whether it is the host's processors (`CL_DEVICE_TYPE_CPU`).
    pub processor: bool,
    /// Whether its memory is the host's.
    pub unified: bool,
    /// The kinds of memory that it has.
    pub memory: Vec<OpenClMemory>,
    /// Whether atomics of host and device on fine-grained memory are atomic to each other.
    pub atomics: bool,
    /// Whether it reaches any memory of the process by its address.
    pub system: bool,
}

/// Asks a device.
///
/// # Safety
/// The device must be live.
pub unsafe fn describe(functions: &Functions, device: u64, ordinal: u32) -> Result<OpenClDevice, Fault> {
    // SAFETY: the caller's promise.
    let ask = |which| unsafe { device_property(functions, device, which) };
    let text = |which| ask(which).map(|bytes| as_text(&bytes));
    let number = |which| ask(which).map(|bytes| as_number(&bytes));
    let platform = number(CL_DEVICE_PLATFORM)?;
    let platform = property("clGetPlatformInfo", |room, into, size| {
        // SAFETY: the device's platform, which lives as long as the driver; `property` lends `room` bytes.
        unsafe { (functions.core.clGetPlatformInfo)(handle(platform), CL_PLATFORM_NAME, room, into, size) }
    })?;
    let version = text(CL_DEVICE_VERSION)?;
    // The loader has functions that an older driver lacks: a call of one would read past the end of the driver's table. One without
    // functions for it has no use of the answer.
    let new_enough = numbers_of(&version) >= (2, 0);
    let svm = if new_enough && functions.svm.is_ok() { number(CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0) } else { 0 };
    let has = |bit| svm & bit != 0;
    let mut memory = vec![OpenClMemory::Buffers];
    memory.extend(has(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER).then_some(OpenClMemory::CoarseSvm));
    memory.extend(has(CL_DEVICE_SVM_FINE_GRAIN_BUFFER).then_some(OpenClMemory::FineSvm));
    Ok(OpenClDevice {
        ordinal,
        name: text(CL_DEVICE_NAME)?,
        platform: as_text(&platform),
        version,
        driver: text(CL_DRIVER_VERSION)?,
        total: number(CL_DEVICE_GLOBAL_MEM_SIZE)?,
        largest: number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
        align: number(CL_DEVICE_MEM_BASE_ADDR_ALIGN)? / 8,
        processor: number(CL_DEVICE_TYPE)? & CL_DEVICE_TYPE_CPU != 0,
        unified: number(CL_DEVICE_HOST_UNIFIED_MEMORY).is_ok_and(|unified| unified != 0),
        memory,
        atomics: has(CL_DEVICE_SVM_ATOMICS),
        system: has(CL_DEVICE_SVM_FINE_GRAIN_SYSTEM),
    })
}

impl OpenClDevice {
    /// The version of OpenCL that it offers: major, minor.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        numbers_of(&self.version)
    }
}

/// The numbers of a version, which is `OpenCL 1.2 ...` in the driver's words; zeros for other words.
fn numbers_of(version: &str) -> (u32, u32) {
    let numbers = version.strip_prefix("OpenCL ").and_then(|rest| rest.split(' ').next());
    let parts = numbers.and_then(|numbers| numbers.split_once('.'));
    let parsed = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::numbers_of;

    #[test]
    fn versions() {
        for (words, numbers) in [
            ("OpenCL 1.2 x", (1, 2)),
            ("OpenCL 3.0 PoCL HSTR: pthread", (3, 0)),
            ("OpenCL 2.1", (2, 1)),
            ("OpenCL 10.0 x", (10, 0)),
            ("OpenCL", (0, 0)),
            ("1.2", (0, 0)),
            ("OpenCL 1.x", (0, 0)),
            ("", (0, 0)),
        ] {
            assert_eq!(numbers_of(words), numbers, "{words}");
        }
    }
}
