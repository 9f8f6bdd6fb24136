//! A ring in managed memory: host and device read and write the very same words, and nothing is copied.
//!
//! Promises upward: where both may access it at the same time ([`Visibility::System`]), the ring is shared as between
//! two cores; where they take turns ([`Visibility::Device`]), the host gets it under a lease that waits for the whole
//! device; elsewhere creating one fails.
//! Asks from below: managed memory.

use super::memory::SeenByHost;
use crate::capability::Visibility;
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use std::sync::Arc;
use terrace_core::ring::bridge::BridgeError;
use terrace_core::ring::{Header, RingLayout, RingMemory, create};
use terrace_core::sync::AtomicU32;

/// A ring in memory that host and device share.
///
/// It has one direction: create two rings for both directions.
///
/// # Example
/// ```
/// use terrace_core::ring::{Consumer, Producer, RingLayout};
/// use terrace_device::{Device, UnifiedRing};
/// let device = Device::host();
/// let mut ring = UnifiedRing::new(&device, &device.stream()?, RingLayout::new(8, 64)?)?;
/// let shared = ring.shared()?;
/// let (mut producer, mut consumer) = (Producer::open(&*shared)?, Consumer::open(&*shared)?);
/// producer.push(b"no copy")?;
/// assert_eq!(consumer.peek()?.len(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UnifiedRing {
    memory: Arc<SeenByHost>,
    visibility: Visibility,
}

impl UnifiedRing {
    /// Creates an empty ring.
    ///
    /// On the device, only work on `stream` may use the ring; where host and device may use it at the same time, any
    /// work.
    ///
    /// # Errors
    /// [`DeviceError`]s: no managed memory, none left, a stream of another device.
    pub fn new(device: &Device, stream: &Stream, layout: RingLayout) -> Result<Self, BridgeError<DeviceError>> {
        let memory = SeenByHost::managed(device, stream, layout.words()).map_err(BridgeError::Link)?;
        create(&memory, layout)?;
        Ok(Self { memory: Arc::new(memory), visibility: device.visibility() })
    }

    /// Address of the ring, the same for device and host.
    pub fn address(&self) -> u64 {
        self.memory.block().address()
    }

    /// The ring, for host and device to use at the same time.
    ///
    /// # Errors
    /// [`DeviceError::BadOption`] where they must take turns: use a [`lease`](UnifiedRing::lease).
    pub fn shared(&self) -> Result<Arc<SeenByHost>, DeviceError> {
        match self.visibility {
            Visibility::System => Ok(Arc::clone(&self.memory)),
            Visibility::Device | Visibility::Copies => {
                Err(DeviceError::BadOption("host and device take turns with this device's memory: use a lease".into()))
            }
        }
    }

    /// Leases the ring to the host, after waiting for the streams that use it.
    ///
    /// Where host and device take turns, this waits for the whole device, as
    /// [`UnifiedBuffer::lease`](crate::UnifiedBuffer::lease) does. Caller must put no work on such a device while the
    /// lease lives.
    ///
    /// # Errors
    /// The driver's error.
    pub fn lease(&mut self) -> Result<RingLease<'_>, DeviceError> {
        self.memory.block().host_turn()?;
        Ok(RingLease { ring: self })
    }
}

impl std::fmt::Debug for UnifiedRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnifiedRing").field("memory", &self.memory).field("visibility", &self.visibility).finish()
    }
}

/// The host's exclusive access to a [`UnifiedRing`].
///
/// A producer or consumer opened on `&lease` continues where the last one stopped.
#[derive(Debug)]
pub struct RingLease<'r> {
    ring: &'r UnifiedRing,
}

impl RingMemory for RingLease<'_> {
    fn header(&self) -> &Header {
        self.ring.memory.header()
    }

    fn words(&self) -> &[AtomicU32] {
        self.ring.memory.words()
    }
}
