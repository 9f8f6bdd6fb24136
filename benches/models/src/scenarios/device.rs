//! A device as a subject: blocks go back when they are dropped.
//!
//! Promises upward: as many streams as the scenario has; the device counts, nothing else does.
//! Asks from below: [`terrace_device::Device`], opened as the caller likes.

use super::{Scenario, Subject, Totals};
use terrace_device::{Device, DeviceBlock, DeviceError, Stream};

/// A device, and the streams of a scenario on it. Nothing is launched.
///
/// # Example
/// ```
/// use terrace_device::Device;
/// use terrace_models::scenarios::{OnDevice, Scenario, run};
///
/// let scenario = Scenario::same(1);
/// let outcome = run(&scenario, &mut OnDevice::new(&Device::host(), &scenario)?);
/// assert_eq!((outcome.failed, outcome.peak_live), (0, 100 << 20));
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct OnDevice {
    device: Device,
    streams: Vec<Stream>,
}

impl OnDevice {
    /// A device for a scenario.
    ///
    /// # Errors
    /// The driver's, when it makes no stream.
    pub fn new(device: &Device, scenario: &Scenario) -> Result<Self, DeviceError> {
        let streams = (0..scenario.streams).map(|_| device.stream()).collect::<Result<_, _>>()?;
        Ok(Self { device: device.clone(), streams })
    }

    /// Its streams.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Subject for OnDevice {
    type Block = DeviceBlock;

    fn allocate(&mut self, bytes: u64, stream: u32) -> Option<DeviceBlock> {
        self.device.allocate(&self.streams[stream as usize], bytes).ok()
    }

    fn free(&mut self, block: DeviceBlock, _: u32) {
        drop(block);
    }

    fn totals(&self) -> Totals {
        Totals::of(&self.device.stats().pool)
    }
}
