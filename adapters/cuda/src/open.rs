//! Opens and closes devices.
//!
//! Promises upward: opening returns a working [`Cuda`], or an [`OpenError`] after releasing everything. Dropping a
//! [`Cuda`] destroys its stream and pool and releases its contexts; the drop never panics, prints nothing, and does
//! nothing in a forked child.
//! Asks from below: the driver's functions and the primary context; `probe` finds the device's capabilities.

use crate::context::{PrimaryContext, device};
use crate::cuda::Cuda;
use crate::dialect::{Dialect, Version};
use crate::error::{OpenError, OpenErrorReason};
use crate::functions::{self, DriverFunctions};
use crate::probe;
use crate::regions;
use crate::result_codes;
use crate::streams::{create_stream, destroy_stream};
use std::sync::OnceLock;
use terrace_device::{Capabilities, Description, Fault, insist};

impl Cuda {
    /// Opens a device: retains its primary context and probes its capabilities.
    ///
    /// Takes some hundred milliseconds if this process uses the device for the first time, because the driver creates
    /// the context.
    ///
    /// # Errors
    /// [`OpenError`] names what failed and what to do about it.
    pub fn open(ordinal: u32) -> Result<Self, OpenError> {
        Self::open_by(functions::loaded()?, ordinal)
    }

    /// Opens a device by the functions of a driver that mirrors CUDA's.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_by(functions: &'static DriverFunctions, ordinal: u32) -> Result<Self, OpenError> {
        let opened = Self::start_and_open(functions, ordinal);
        opened.map_err(|reason| OpenError { driver: functions.dialect, reason })
    }

    fn start_and_open(functions: &'static DriverFunctions, ordinal: u32) -> Result<Self, OpenErrorReason> {
        let (version, found) = start(functions)?;
        if ordinal >= found {
            return Err(OpenErrorReason::NoDevice { ordinal, found });
        }
        let primary = PrimaryContext::retain(functions, device(functions, ordinal)?)?;
        let stream = create_stream(&primary)?;
        // From here on, an early return drops `cuda`, which releases everything.
        let mut cuda = Self {
            stream,
            pool: None,
            primary,
            peers: (0..found).map(|_| OnceLock::new()).collect(),
            description: describe(functions.dialect, ordinal, version),
        };
        probe::probe(&mut cuda)?;
        Ok(cuda)
    }

    /// The number of devices; 0 if the driver finds none.
    ///
    /// # Errors
    /// [`OpenError`] if the driver is missing, too old, or does not work.
    pub fn count() -> Result<u32, OpenError> {
        Self::count_by(functions::loaded()?)
    }

    /// The number of devices of a driver that mirrors CUDA's.
    ///
    /// # Errors
    /// As for [`count`](Self::count).
    pub fn count_by(functions: &'static DriverFunctions) -> Result<u32, OpenError> {
        let started = start(functions).map(|(_, found)| found);
        started.map_err(|reason| OpenError { driver: functions.dialect, reason })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if !self.primary.is_own_process() {
            return;
        }
        if let Some(pool) = self.pool.take() {
            regions::destroy_pool(self, pool);
        }
        // SAFETY: `open` made the stream for this value alone, which is being dropped; a refused call destroys nothing.
        let _ = insist(|| unsafe { destroy_stream(&self.primary, self.stream) });
    }
}

impl From<Fault> for OpenErrorReason {
    fn from(fault: Fault) -> Self {
        Self::Driver(fault)
    }
}

/// Initialises the driver; returns its version and the number of devices.
fn start(functions: &DriverFunctions) -> Result<(Version, u32), OpenErrorReason> {
    let Dialect { version, needed, .. } = *functions.dialect;
    functions.check_process()?;
    let mut number = 0;
    // SAFETY: the out parameter lives through the call, which is valid before `cuInit`.
    let code = unsafe { (functions.core.cuDriverGetVersion)(&raw mut number) };
    functions.check("cuDriverGetVersion", code)?;
    let version = version(number);
    if version < needed {
        return Err(OpenErrorReason::DriverTooOld { version, needed });
    }
    // SAFETY: `cuInit` may be called at any time, and repeatedly.
    match unsafe { (functions.core.cuInit)(0) } {
        result_codes::NO_DEVICE => return Ok((version, 0)),
        code => functions.check("cuInit", code)?,
    }
    functions.mark_initialized();
    let mut found = 0;
    // SAFETY: the out parameter lives through the call.
    match unsafe { (functions.core.cuDeviceGetCount)(&raw mut found) } {
        result_codes::NO_DEVICE => Ok((version, 0)),
        code => Ok(functions.check("cuDeviceGetCount", code).map(|()| (version, found.unsigned_abs()))?),
    }
}

/// The description before probing: version and ordinal only.
fn describe(dialect: &Dialect, ordinal: u32, version: Version) -> Description {
    Description {
        backend: dialect.backend,
        ordinal,
        name: String::new(),
        driver: format!("{} {version}", dialect.platform),
        total: 0,
        page_bytes: 0,
        peers: Vec::new(),
        strangers: Vec::new(),
        capabilities: Capabilities::empty(),
        notes: Vec::new(),
    }
}
