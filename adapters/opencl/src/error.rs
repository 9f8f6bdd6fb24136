//! The error of opening a device.
//!
//! Promises upward: an error names what failed, in which call, and what to install or do about it. An error owns its data:
//! it can be stored, compared and displayed without a driver.

use crate::memory::OpenClMemory;
use std::fmt;
use terrace_device::Fault;

/// Why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenClError {
    /// The library is missing, or this process cannot load it.
    NoLibrary {
        /// What the loader tried, in this order.
        searched: Vec<String>,
        /// What the system said of the first.
        reason: String,
    },
    /// The library that was loaded is not OpenCL's, or older than OpenCL 1.2.
    MissingSymbol {
        /// The library.
        library: String,
        /// A function that it lacks.
        symbol: &'static str,
    },
    /// There is no such device.
    NoDevice {
        /// The requested ordinal.
        ordinal: u32,
        /// Number of devices of all platforms.
        found: u32,
    },
    /// The device is older than OpenCL 1.2.
    TooOld {
        /// The version as the device says it.
        version: String,
    },
    /// The device has no memory of the kind that was asked for.
    NoMemory {
        /// The kind.
        memory: OpenClMemory,
        /// Why it has none.
        reason: String,
    },
    /// The device is not one of the context's.
    OtherContext,
    /// The driver refused a call.
    Driver(Fault),
}

/// Advice on what to install, which ends every message about a library that is missing or wrong.
const INSTALL: &str = "install OpenCL's loader and a driver (Debian: `ocl-icd-libopencl1`, and `pocl-opencl-icd` for the CPU or the \
    GPU's own), or use the host backend";

impl fmt::Display for OpenClError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary { searched, reason } => {
                write!(f, "no OpenCL: {} cannot be loaded ({reason}); {INSTALL}", searched.join(", "))
            }
            Self::MissingSymbol { library, symbol } => {
                write!(f, "{library} is not OpenCL 1.2: it has no function {symbol}; {INSTALL}")
            }
            Self::NoDevice { found: 0, .. } => {
                write!(f, "OpenCL sees no device: look at `clinfo -l` and at /etc/OpenCL/vendors; {INSTALL}")
            }
            Self::NoDevice { ordinal, found } => {
                write!(f, "there is no OpenCL device {ordinal}: there are {found}, the last one is {}", found - 1)
            }
            Self::TooOld { version } => {
                write!(f, "the OpenCL device is too old: it offers {version}, needed is OpenCL 1.2")
            }
            Self::NoMemory { memory, reason } => write!(f, "the OpenCL device has no {memory}: {reason}"),
            Self::OtherContext => f.write_str("the OpenCL device is not one of the context's"),
            Self::Driver(fault) => write!(f, "the OpenCL device could not be opened: {fault}"),
        }
    }
}

impl std::error::Error for OpenClError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Driver(fault) => Some(fault),
            _ => None,
        }
    }
}

impl From<Fault> for OpenClError {
    fn from(fault: Fault) -> Self {
        Self::Driver(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        let absent = OpenClError::NoLibrary { searched: vec!["a.so".into(), "b.so".into()], reason: "gone".into() };
        let wrong = OpenClError::MissingSymbol { library: "libm.so".into(), symbol: "clFinish" };
        let none = OpenClError::NoDevice { ordinal: 0, found: 0 };
        for (error, words) in [
            (absent, ["no OpenCL: a.so, b.so cannot be loaded (gone)", "pocl-opencl-icd"]),
            (wrong, ["libm.so is not OpenCL 1.2: it has no function clFinish", "install"]),
            (none, ["clinfo -l", "install"]),
            (OpenClError::NoDevice { ordinal: 3, found: 2 }, ["no OpenCL device 3", "the last one is 1"]),
            (OpenClError::TooOld { version: "OpenCL 1.1 x".into() }, ["OpenCL 1.1 x", "needed is OpenCL 1.2"]),
            (
                OpenClError::NoMemory { memory: OpenClMemory::FineSvm, reason: "it says so".into() },
                ["fine-grained", "says so"],
            ),
        ] {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}
