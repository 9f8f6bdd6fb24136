//! The error of opening a device.
//!
//! Promises upward: an error names what failed, in which driver call, and what to install or do about it. An error owns
//! its data: it can be stored, compared and displayed without a driver.

use crate::result_codes;
use std::fmt;
use terrace_device::Fault;

/// A version of CUDA; a driver reports the newest version that it supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major number: 12 in CUDA 12.8.
    pub major: u32,
    /// The minor number: 8 in CUDA 12.8.
    pub minor: u32,
}

impl Version {
    /// The oldest supported version, the first with driver pools and page mapping.
    pub const NEEDED: Self = Self { major: 11, minor: 4 };

    /// Parses the driver's number: 12080 is 12.8.
    pub(crate) fn from_number(number: i32) -> Self {
        let number = number.unsigned_abs();
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The driver's library is missing, or this process cannot load it.
    NoLibrary {
        /// File names that the loader tried, the most common first.
        searched: Vec<String>,
    },
    /// The driver has no such device.
    NoDevice {
        /// The requested ordinal.
        ordinal: u32,
        /// Number of devices that the driver has.
        found: u32,
    },
    /// The driver is older than [`Version::NEEDED`].
    DriverTooOld {
        /// The version that the driver supports.
        version: Version,
        /// The oldest version that this crate supports.
        needed: Version,
    },
    /// The library does not export a function that every device needs.
    MissingSymbol {
        /// The exported name of the function.
        symbol: &'static str,
        /// The version of CUDA that introduced the function.
        since: &'static str,
    },
    /// The driver refused a call.
    Driver(Fault),
}

/// Advice on what to install, which ends every message about a driver that is missing or too old.
const INSTALL: &str = "install NVIDIA's driver for CUDA 11.4 or newer (Linux: the distribution's package of the NVIDIA driver; \
    a container: start it with its devices, `--gpus all`; WSL2: the driver on the Windows side; Jetson: JetPack)";

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary { searched } => {
                let shown = searched.len().min(3);
                write!(f, "no CUDA driver: there is no {}", searched[..shown].join(", "))?;
                match searched.len() - shown {
                    0 => {}
                    more => write!(f, " (nor {more} other names)")?,
                }
                write!(f, " where this system looks for libraries; {INSTALL}, or use the host backend")
            }
            Self::NoDevice { found: 0, .. } => f.write_str(
                "the CUDA driver sees no device: look at `nvidia-smi -L` and at CUDA_VISIBLE_DEVICES, give a container its \
                 devices, or use the host backend",
            ),
            Self::NoDevice { ordinal, found } => {
                write!(f, "there is no CUDA device {ordinal}: the driver sees {found}, the last one is {}", found - 1)
            }
            Self::DriverTooOld { version, needed } => {
                write!(f, "the CUDA driver is too old: it offers CUDA {version}, needed is {needed}; {INSTALL}")
            }
            Self::MissingSymbol { symbol, since } => {
                write!(f, "the CUDA driver's library has no function {symbol}, which came with CUDA {since}; {INSTALL}")
            }
            Self::Driver(fault) => {
                write!(f, "the CUDA device could not be opened: {fault}")?;
                match result_codes::advice(fault.code) {
                    "" => Ok(()),
                    advice => write!(f, "; {advice}"),
                }
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Driver(fault) => Some(fault),
            _ => None,
        }
    }
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        Self::Driver(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(Version::from_number(12080).to_string(), "12.8");
        assert_eq!(Version::from_number(11040), Version::NEEDED);
        assert!(Version::from_number(10020) < Version::NEEDED);
        assert!(Version::from_number(13000) > Version::NEEDED);
    }

    #[test]
    fn messages_say_what_to_do() {
        let searched = ["a.so", "b.so", "c.so", "d.so"].map(String::from).to_vec();
        let text = OpenError::NoLibrary { searched }.to_string();
        assert!(text.contains("no a.so, b.so, c.so (nor 1 other names)") && text.contains("install"), "{text}");
        let text = OpenError::NoLibrary { searched: Vec::new() }.to_string();
        for part in ["install", "WSL2: the driver on the Windows side", "Jetson: JetPack", "`--gpus all`"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = OpenError::NoDevice { ordinal: 3, found: 2 }.to_string();
        assert!(text.contains("no CUDA device 3") && text.contains("the last one is 1"), "{text}");
        assert!(OpenError::NoDevice { ordinal: 0, found: 0 }.to_string().contains("CUDA_VISIBLE_DEVICES"));
        let stub = OpenError::Driver(result_codes::fault("cuInit", 34)).to_string();
        for word in ["cuInit", "CUDA_ERROR_STUB_LIBRARY", "`stubs`"] {
            assert!(stub.contains(word), "{word} in {stub}");
        }
    }
}
