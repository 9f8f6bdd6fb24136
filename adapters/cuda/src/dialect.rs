//! What sets drivers apart whose functions mirror CUDA's: names, numbers of attributes, versions, result codes.
//!
//! ```text
//!   terrace-cuda                             terrace-hip
//!   CUDA ──┐                                 HIP ──┐        a Dialect: the driver's own words and numbers
//!   libcuda ──▶ DriverFunctions ◀── libamdhip64, with functions in between where parameters differ
//!                     │
//!                    Cuda, a Backend: all else is the same code
//! ```
//!
//! Promises upward: an error names the driver's own function and code, never CUDA's name for it.
//! Asks from below: nothing.

use crate::layouts::{Attributes, attribute};
use crate::result_codes::{self, Code};
use std::fmt;
use terrace_device::{Fault, FaultReason};

/// A version of CUDA, or of another driver's platform; a driver tells the newest that it supports.
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

/// A driver of the family: CUDA, or one whose functions mirror CUDA's.
pub struct Dialect {
    /// The backend's name in a [`Description`](terrace_device::Description).
    pub backend: &'static str,
    /// What users call the platform, and what the versions are versions of.
    pub platform: &'static str,
    /// The oldest version that is supported.
    pub needed: Version,
    /// Parses the driver's number of its version.
    pub version: fn(i32) -> Version,
    /// The driver's own name of a function and the version that introduced it, from CUDA's name and version.
    pub own: fn(&'static str, &'static str) -> (&'static str, &'static str),
    /// Numbers of the attributes of a device.
    pub attributes: Attributes,
    /// Result codes and their names, sorted by code.
    pub codes: &'static [(i32, &'static str)],
    /// The reason for which the driver returns a code.
    pub reason: fn(i32) -> FaultReason,
    /// Advice to the user for a code with which opening a device failed; empty if there is none.
    pub advice: fn(i32) -> &'static str,
    /// Called after a refused call: a driver that remembers the last error for the program forgets this one.
    pub refused: fn(),
    /// What to install if the driver is missing or too old.
    pub install: &'static str,
    /// What to look at if the driver sees no device.
    pub unseen: &'static str,
}

/// CUDA itself.
pub static CUDA: Dialect = Dialect {
    backend: "cuda",
    platform: "CUDA",
    needed: Version::NEEDED,
    version: Version::from_number,
    own: |symbol, since| (symbol, since),
    attributes: attribute::NUMBERS,
    codes: result_codes::NAMES,
    reason: result_codes::reason_of,
    advice: result_codes::advice,
    refused: || (),
    install: "install NVIDIA's driver for CUDA 11.4 or newer (Linux: the distribution's package of the NVIDIA driver; \
              a container: start it with its devices, `--gpus all`; WSL2: the driver on the Windows side; Jetson: JetPack)",
    unseen: "look at `nvidia-smi -L` and at CUDA_VISIBLE_DEVICES",
};

impl Dialect {
    /// The driver's own name of a function of CUDA.
    pub(crate) fn name(&self, call: &'static str) -> &'static str {
        (self.own)(call, "").0
    }

    /// The fault for a `call`, by CUDA's name, that returned `code`.
    #[cold]
    pub(crate) fn fault(&self, call: &'static str, code: Code) -> Fault {
        let name = self.codes.binary_search_by_key(&code, |&(code, _)| code).map_or("", |at| self.codes[at].1);
        Fault { call: self.name(call), code, name, reason: (self.reason)(code) }
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.platform)
    }
}

/// Each backend has one.
impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.backend == other.backend
    }
}

impl Eq for Dialect {}
