//! All CUDA devices of the machine.
//!
//! Promises upward: a device that cannot be opened is listed with the reason; if none can, the result says what is missing.
//! Asks from below: the driver; each device is opened once.

use terrace::Device;
use terrace::device::{CudaError, OpenError};

/// A CUDA device.
pub struct CudaDevice {
    /// `cuda:N`.
    pub device: String,
    /// The device, or why it cannot be opened.
    pub opened: Result<Device, String>,
}

/// The last device number to try, since a driver that refuses every device does not report how many there are. The
/// largest machines have 16 devices.
const LAST_ORDINAL: u32 = 15;

/// Opens all devices; also returns what is missing, if none can be used.
pub fn find_cuda_devices() -> (Vec<CudaDevice>, Option<String>) {
    open_all(Device::cuda)
}

/// Opens devices by their numbers until there are no more.
fn open_all(open: impl Fn(u32) -> Result<Device, CudaError>) -> (Vec<CudaDevice>, Option<String>) {
    let (mut devices, mut missing) = (Vec::new(), None);
    for ordinal in 0.. {
        let device = format!("cuda:{ordinal}");
        match open(ordinal) {
            Ok(opened) => devices.push(CudaDevice { device, opened: Ok(opened) }),
            Err(error) => {
                // Only these errors concern one device. All others end the list: no driver, or no device of that number. One past
                // the last is not what is missing, since a device before it was opened or said why not.
                let one = matches!(&error, CudaError::Device(_) | CudaError::Open(OpenError::Driver(_)));
                missing.get_or_insert(error.to_string());
                if !one || ordinal >= LAST_ORDINAL {
                    break;
                }
                devices.push(CudaDevice { device, opened: Err(error.to_string()) });
            }
        }
    }
    let usable = devices.iter().any(|found| found.opened.is_ok());
    (devices, missing.filter(|_| !usable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::device::DeviceError;

    /// The names of the devices, each with whether it was opened, and whether something is missing.
    fn found(open: impl Fn(u32) -> Result<Device, CudaError>) -> (Vec<(String, bool)>, bool) {
        let (devices, missing) = open_all(open);
        (devices.into_iter().map(|found| (found.device, found.opened.is_ok())).collect(), missing.is_some())
    }

    fn one_past(ordinal: u32, found: u32) -> CudaError {
        CudaError::Open(OpenError::NoDevice { ordinal, found })
    }

    #[test]
    fn a_device_that_cannot_be_opened_hides_no_other() {
        let broken = || CudaError::Device(DeviceError::Cancelled);
        let open = |ordinal| match ordinal {
            0 => Err(broken()),
            1 => Ok(Device::host()),
            _ => Err(one_past(ordinal, 2)),
        };
        assert_eq!(found(open), (vec![("cuda:0".into(), false), ("cuda:1".into(), true)], false));
        let (devices, missing) = found(|_| Err(broken()));
        assert_eq!((devices.len(), missing), (15, true), "a driver that refuses each does not say how many there are");
    }

    #[test]
    fn a_driver_without_devices_is_what_is_missing() {
        assert_eq!(found(|ordinal| Err(one_past(ordinal, 0))), (vec![], true));
        assert_eq!(found(|_| Err(CudaError::Open(OpenError::NoLibrary { searched: vec![] }))), (vec![], true));
    }
}
