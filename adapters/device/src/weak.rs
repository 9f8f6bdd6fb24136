//! Statistics of a device for readers that do not keep it open.
//!
//! Promises upward: a [`WeakDevice`] holds no memory of the device and no stream; reading through it holds the device for the
//! time of the call.
//! Asks from below: the device's pool.

use crate::device::Device;
use crate::stats::DeviceStats;
use crate::stream::Service;
use std::fmt;
use std::sync::{Arc, Weak};

/// A device as seen by a reader of its statistics, which does not keep it open.
///
/// # Example
/// ```
/// use terrace_device::{Device, WeakDevice};
/// let device = Device::host();
/// let weak = WeakDevice::new(&device);
/// assert_eq!(weak.stats(), Some(device.stats()));
/// drop(device);
/// assert_eq!(weak.stats(), None);
/// ```
#[derive(Clone)]
pub struct WeakDevice {
    service: Weak<dyn Service>,
}

impl WeakDevice {
    /// A reader of a device's statistics.
    pub fn new(device: &Device) -> Self {
        Self { service: Arc::downgrade(&device.service) }
    }

    /// The counters of the device; `None` once the device, its streams and its blocks are dropped.
    pub fn stats(&self) -> Option<DeviceStats> {
        self.upgrade().map(|device| device.stats())
    }

    /// The device; `None` once the device, its streams and its blocks are dropped.
    pub fn upgrade(&self) -> Option<Device> {
        self.service.upgrade().map(|service| Device { service })
    }
}

impl fmt::Debug for WeakDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakDevice").finish_non_exhaustive()
    }
}
