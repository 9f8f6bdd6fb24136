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
    let (mut devices, mut missing) = (Vec::new(), None);
    for ordinal in 0.. {
        let device = format!("cuda:{ordinal}");
        match Device::cuda(ordinal) {
            Ok(opened) => devices.push(CudaDevice { device, opened: Ok(opened) }),
            // All devices are found: this number is one past that of the last.
            Err(CudaError::Open(OpenError::NoDevice { found, .. })) if found > 0 => break,
            Err(error) => {
                // Only these errors concern one device; all others, such as a missing driver, concern all of them.
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
