//! The tracker of a [`Device`], for users.
//!
//! Promises upward: one tracker a device, whichever handle is asked, as long as any handle lives.
//! Asks from below: the pool, which has it.

use crate::device::Device;
use std::sync::Arc;
use terrace_track::Tracker;

impl Device {
    /// The device's tracker: which blocks are live, since when, under which tag; off until its mode is set.
    ///
    /// It tracks device memory, pinned and managed memory, and blocks of graphs; not memory that
    /// [`wrap`](Self::wrap) or a registration brought. The bytes of a block are those that it has, not those asked for.
    ///
    /// # Example
    /// ```
    /// use terrace_device::{Device, track::TrackMode};
    /// let device = Device::host();
    /// device.tracker().set_mode(TrackMode::Records);
    /// let stream = device.stream()?;
    /// let block = device.allocate(&stream, 4096)?;
    /// println!("{}", device.tracker().live());
    /// assert_eq!(device.tracker().live().bytes(), 4096);
    /// drop(block);
    /// assert!(device.tracker().live().is_empty());
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn tracker(&self) -> &Arc<Tracker> {
        self.service().tracker()
    }
}
