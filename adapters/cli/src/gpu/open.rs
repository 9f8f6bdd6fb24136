//! The device to measure: the requested one, else the first CUDA device, else the host.
//!
//! Promises upward: a device that cannot be opened is an error that says what to do; a choice made for the user comes with its
//! reason.
//! Asks from below: [`Device`], by host and by CUDA.

use crate::failure::Failure;
use std::fmt;
use terrace::Device;
use terrace::device::{DeviceOptions, HostBackend};

/// The name of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The host's memory.
    Host,
    /// A CUDA device, by number.
    Cuda(u32),
}

impl DeviceName {
    /// Parses `host`, `cuda` or `cuda:N`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("cuda:").and_then(|number| number.parse().ok())) {
            ("host", _) => Ok(Self::Host),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(number)) => Ok(Self::Cuda(number)),
            _ => Err("give host or cuda:N".into()),
        }
    }

    /// Opens the device.
    pub fn open(self, options: DeviceOptions) -> Result<Device, Failure> {
        match self {
            Self::Host => Device::open(HostBackend::new(), options).map_err(|error| self.failure(error)),
            Self::Cuda(ordinal) => Device::cuda_with(ordinal, options).map_err(|error| self.failure(error)),
        }
    }

    /// The command's error for an error of this device.
    pub fn failure(self, error: impl fmt::Display) -> Failure {
        Failure::Device(self.to_string(), error.to_string())
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// Chooses the device.
///
/// If none was requested and no CUDA device can be opened, chooses the host, and also returns why.
pub fn choose(requested: Option<DeviceName>) -> Result<(DeviceName, Option<String>), Failure> {
    let name = requested.unwrap_or(DeviceName::Cuda(0));
    match (name.open(DeviceOptions::default()), requested) {
        (Ok(_), _) => Ok((name, None)),
        (Err(failure), None) => Ok((DeviceName::Host, Some(failure.to_string()))),
        (Err(failure), Some(_)) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceName;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for name in [DeviceName::Host, DeviceName::Cuda(0), DeviceName::Cuda(7)] {
            assert_eq!(DeviceName::parse(&name.to_string()), Ok(name));
        }
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "host:0"] {
            assert!(DeviceName::parse(bad).is_err(), "{bad}");
        }
    }
}
