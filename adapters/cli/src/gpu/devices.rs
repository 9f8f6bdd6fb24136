//! Every CUDA device there is.
//!
//! Promises upward: a device that cannot be opened is named with the reason; where none can, what is missing is said.
//! Asks from below: the driver; each device is opened once.

use terrace::Device;
use terrace::device::{CudaError, OpenError};

/// A device, as it was found.
pub struct CudaDevice {
    /// `cuda:N`.
    pub device: String,
    /// The device, or why it cannot be opened.
    pub opened: Result<Device, String>,
}

/// A driver that refuses every device does not say how many there are: looking ends behind 16, what the largest machines of
/// today have.
const LAST: u32 = 15;

/// All devices; and what is missing, where none can be used.
pub fn find_cuda_devices() -> (Vec<CudaDevice>, Option<String>) {
    let (mut devices, mut missing) = (Vec::new(), None);
    for ordinal in 0.. {
        let device = format!("cuda:{ordinal}");
        match Device::cuda(ordinal) {
            Ok(opened) => devices.push(CudaDevice { device, opened: Ok(opened) }),
            // One past the last.
            Err(CudaError::Open(OpenError::NoDevice { found, .. })) if found > 0 => break,
            Err(error) => {
                // Without a driver, or before the first device is known, there is none that could be named.
                let one = matches!(&error, CudaError::Device(_) | CudaError::Open(OpenError::Driver(_)));
                missing.get_or_insert(error.to_string());
                if !one || ordinal >= LAST {
                    break;
                }
                devices.push(CudaDevice { device, opened: Err(error.to_string()) });
            }
        }
    }
    let usable = devices.iter().any(|found| found.opened.is_ok());
    (devices, missing.filter(|_| !usable))
}
