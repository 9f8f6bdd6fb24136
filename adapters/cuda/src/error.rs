//! The error of opening a device.
//!
//! Promises upward: an error names what failed, in which driver call, and what to install or do about it. An error owns
//! its data: it can be stored, compared and displayed without a driver.

use crate::dialect::{Dialect, Version};
use std::fmt;
use terrace_device::{Fault, FaultReason};

/// Why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// The driver, whose functions and versions the reason names.
    pub driver: &'static Dialect,
    /// What failed.
    pub reason: OpenErrorReason,
}

/// What failed when a device was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorReason {
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
    /// The driver is older than what is supported.
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
        /// The version that introduced the function.
        since: &'static str,
    },
    /// The driver refused a call.
    Driver(Fault),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dialect { platform, install, unseen, advice, .. } = self.driver;
        match &self.reason {
            OpenErrorReason::NoLibrary { searched } => {
                let shown = searched.len().min(3);
                write!(f, "no {platform} driver: there is no {}", searched[..shown].join(", "))?;
                match searched.len() - shown {
                    0 => {}
                    more => write!(f, " (nor {more} other names)")?,
                }
                write!(f, " where this system looks for libraries; {install}, or use the host backend")
            }
            OpenErrorReason::NoDevice { found: 0, .. } => write!(
                f,
                "the {platform} driver sees no device: {unseen}, give a container its devices, or use the host backend",
            ),
            OpenErrorReason::NoDevice { ordinal, found } => {
                let last = found - 1;
                write!(f, "there is no {platform} device {ordinal}: the driver sees {found}, the last one is {last}")
            }
            OpenErrorReason::DriverTooOld { version, needed } => write!(
                f,
                "the {platform} driver is too old: it offers {platform} {version}, needed is {needed}; {install}",
            ),
            OpenErrorReason::MissingSymbol { symbol, since } => write!(
                f,
                "the {platform} driver's library has no function {symbol}, which came with {platform} {since}; {install}",
            ),
            OpenErrorReason::Driver(fault) => {
                write!(f, "the {platform} device could not be opened: {fault}")?;
                match advice(fault.code) {
                    _ if fault.reason == FaultReason::Forked => {
                        f.write_str("; the driver was initialised before the fork: fork first")
                    }
                    "" => Ok(()),
                    advice => write!(f, "; {advice}"),
                }
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            OpenErrorReason::Driver(fault) => Some(fault),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::CUDA;

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
        let error = |reason| OpenError { driver: &CUDA, reason }.to_string();
        let text = error(OpenErrorReason::NoLibrary { searched });
        assert!(text.contains("no a.so, b.so, c.so (nor 1 other names)") && text.contains("install"), "{text}");
        let text = error(OpenErrorReason::NoLibrary { searched: Vec::new() });
        for part in ["install", "WSL2: the driver on the Windows side", "Jetson: JetPack", "`--gpus all`"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = error(OpenErrorReason::NoDevice { ordinal: 3, found: 2 });
        assert!(text.contains("no CUDA device 3") && text.contains("the last one is 1"), "{text}");
        assert!(error(OpenErrorReason::NoDevice { ordinal: 0, found: 0 }).contains("CUDA_VISIBLE_DEVICES"));
        let stub = error(OpenErrorReason::Driver(CUDA.fault("cuInit", 34)));
        for word in ["cuInit", "CUDA_ERROR_STUB_LIBRARY", "`stubs`"] {
            assert!(stub.contains(word), "{word} in {stub}");
        }
    }
}
