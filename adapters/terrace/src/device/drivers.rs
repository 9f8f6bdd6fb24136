//! Drivers whose devices have numbers: opens all devices of each.
//!
//! Promises upward: a driver that is missing, broken, of the wrong kind, or that ends the process which loads it is one entry, with the
//! reason; a device that cannot be opened hides no other.
//! Asks from below: the drivers' backends; a child process that loads their libraries first, but for Metal's, which is linked.

use super::{Device, FoundDevice};
use crate::device::BackendError;
#[cfg(all(feature = "metal", target_os = "macos"))]
use crate::device::MetalError;
#[cfg(feature = "cuda")]
use crate::device::{CudaError, OpenErrorReason};
#[cfg(feature = "opencl")]
use crate::device::{OpenClDeviceError, OpenClError};
#[cfg(feature = "vulkan")]
use crate::device::{VulkanDeviceError, VulkanError};
use std::fmt;

/// A driver, whose library may be missing, broken, of the wrong kind, or end the process that loads it.
struct NumberedDriver {
    /// The name that its devices begin with.
    name: &'static str,
    /// Its libraries: of each the file names that are tried until one can be loaded.
    libraries: fn() -> Vec<Vec<String>>,
    /// Opens a device.
    open: fn(u32) -> Result<Device, NotOpened>,
}

/// Why a device is not opened.
struct NotOpened {
    problem: String,
    /// Whether that concerns one device. All else ends the list: no driver, or no device of that number.
    one: bool,
}

const DRIVERS: &[NumberedDriver] = &[
    #[cfg(feature = "cuda")]
    NumberedDriver {
        name: "cuda",
        libraries: || vec![terrace_cuda::library_names()],
        open: |ordinal| Device::cuda(ordinal).map_err(mirror),
    },
    #[cfg(feature = "hip")]
    NumberedDriver {
        name: "hip",
        libraries: || vec![terrace_hip::library_names().iter().map(ToString::to_string).collect()],
        open: |ordinal| Device::hip(ordinal).map_err(mirror),
    },
    // Its library is a part of the system, and linked. It offers one device.
    #[cfg(all(feature = "metal", target_os = "macos"))]
    NumberedDriver {
        name: "metal",
        libraries: Vec::new,
        open: |ordinal| match ordinal {
            0 => Device::metal().map_err(|error| NotOpened::new(&error, |error| *error != MetalError::NoDevice)),
            _ => Err(NotOpened { problem: MetalError::NoDevice.to_string(), one: false }),
        },
    },
    #[cfg(feature = "opencl")]
    NumberedDriver {
        name: "opencl",
        libraries: || loaded_together(terrace_opencl::library_names(), terrace_opencl::driver_names()),
        open: |ordinal| Device::opencl(ordinal).map_err(opencl),
    },
    #[cfg(feature = "vulkan")]
    NumberedDriver {
        name: "vulkan",
        libraries: || loaded_together(terrace_vulkan::library_names(), terrace_vulkan::driver_names()),
        open: |ordinal| Device::vulkan(ordinal).map_err(vulkan),
    },
];

/// The last device number to try: the largest machines have 16 devices.
///
/// A driver that refuses every device does not report how many there are.
const LAST_ORDINAL: u32 = 15;

impl NotOpened {
    fn new<E: fmt::Display>(error: &BackendError<E>, one: impl Fn(&E) -> bool) -> Self {
        let one = match error {
            BackendError::Device(_) => true,
            BackendError::Open(error) => one(error),
        };
        Self { problem: error.to_string(), one }
    }
}

#[cfg(feature = "cuda")]
fn mirror(error: CudaError) -> NotOpened {
    NotOpened::new(&error, |error| matches!(error.reason, OpenErrorReason::Driver(_)))
}

#[cfg(feature = "opencl")]
fn opencl(error: OpenClDeviceError) -> NotOpened {
    let ends = |error: &OpenClError| {
        use OpenClError::{MissingSymbol, NoDevice, NoLibrary};
        matches!(error, NoLibrary { .. } | MissingSymbol { .. } | NoDevice { .. })
    };
    NotOpened::new(&error, |error| !ends(error))
}

/// A loader, which has several names, and the drivers that it loads.
#[cfg(any(feature = "opencl", feature = "vulkan"))]
fn loaded_together(loader: Vec<String>, drivers: Vec<String>) -> Vec<Vec<String>> {
    std::iter::once(loader).chain(drivers.into_iter().map(|name| vec![name])).collect()
}

#[cfg(feature = "vulkan")]
fn vulkan(error: VulkanDeviceError) -> NotOpened {
    use VulkanError::{MissingFunction, NoDevice, NoDriver, NoLibrary, OldLibrary};
    let ends = |error: &VulkanError| {
        matches!(error, NoLibrary { .. } | MissingFunction { .. } | OldLibrary { .. } | NoDriver | NoDevice { .. })
    };
    NotOpened::new(&error, |error| !ends(error))
}

/// Opens all devices of each driver, unless its library ends a child process that loads it.
pub fn open_all() -> Vec<FoundDevice> {
    let of = |driver: &NumberedDriver| match (driver.libraries)()
        .iter()
        .try_for_each(|names| terrace_guard::try_loading(names))
    {
        Ok(()) => open_each(driver.name, driver.open),
        Err(crash) => vec![FoundDevice { name: driver.name.into(), opened: Err(crash.to_string()) }],
    };
    DRIVERS.iter().flat_map(of).collect()
}

/// Opens devices by their numbers until there are no more.
///
/// Without any, the one entry says what is missing.
fn open_each(name: &str, open: impl Fn(u32) -> Result<Device, NotOpened>) -> Vec<FoundDevice> {
    let mut devices = Vec::new();
    for ordinal in 0..=LAST_ORDINAL {
        let opened = open(ordinal);
        if let Err(NotOpened { problem, one: false }) = opened {
            if ordinal == 0 {
                devices.push(FoundDevice { name: name.into(), opened: Err(problem) });
            }
            break;
        }
        let opened = opened.map_err(|refused| refused.problem);
        devices.push(FoundDevice { name: format!("{name}:{ordinal}"), opened });
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the devices, each with whether it was opened.
    fn found(open: impl Fn(u32) -> Result<Device, NotOpened>) -> Vec<(String, bool)> {
        open_each("cuda", open).into_iter().map(|found| (found.name, found.opened.is_ok())).collect()
    }

    fn refused(one: bool) -> NotOpened {
        NotOpened { problem: "a reason".into(), one }
    }

    #[test]
    fn a_device_that_cannot_be_opened_hides_no_other() {
        let open = |ordinal| match ordinal {
            0 => Err(refused(true)),
            1 => Ok(Device::host()),
            _ => Err(refused(false)),
        };
        assert_eq!(found(open), [("cuda:0".into(), false), ("cuda:1".into(), true)]);
        let none = found(|_| Err(refused(true)));
        assert_eq!(none.len(), 16, "a driver that refuses each does not say how many there are");
        assert!(none.iter().all(|(_, opened)| !opened));
    }

    #[test]
    fn a_driver_without_devices_is_one_entry() {
        assert_eq!(found(|_| Err(refused(false))), [("cuda".to_owned(), false)]);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn what_concerns_one_device_ends_no_list() {
        use crate::device::{DeviceError, OpenError};
        use terrace_device::{Fault, FaultReason};
        let open = |reason| mirror(BackendError::Open(OpenError { driver: &terrace_cuda::CUDA, reason })).one;
        assert!(mirror(BackendError::Device(DeviceError::Cancelled)).one);
        assert!(open(OpenErrorReason::Driver(Fault::of("cuInit", FaultReason::Other))));
        assert!(!open(OpenErrorReason::NoDevice { ordinal: 1, found: 1 }));
        assert!(!open(OpenErrorReason::NoLibrary { searched: Vec::new() }));
    }
}
