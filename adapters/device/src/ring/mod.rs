//! Rings of messages between the host and a device: the core's ring, over a device's memory.
//!
//! Promises upward: what the core's ring promises, whatever the device writes into it; no copy touches freed memory,
//! since copies run in order on one stream, and the memory of ring and shadow is reused only once that stream is done.
//! Asks from below: blocks, pinned and managed memory, copies in stream order, events.
//!
//! | strategy | the host's call | for |
//! | --- | --- | --- |
//! | [`RingStrategy::Synchronous`] | waits for each copy | few messages, seen at once |
//! | [`RingStrategy::Stream`] | puts copies on the stream; waits for answers only | many messages, ordered with work |
//! | [`RingStrategy::Polled`] | as `Stream`, but queries an event between sleeps | hosts with other work; timeouts |
//! | [`UnifiedRing`] | reads and writes the ring itself, without copies | devices that see the host's writes |
//!
//! On the device, the ring is a header of 256 bytes ([`Control`](terrace_core::ring::Control) is its layout), then the
//! slots. A kernel that waits for messages must run on another stream than the ring's copies.
//!
//! # Example
//! ```
//! use terrace_core::ring::{NoDelay, Backoff, RingLayout};
//! use terrace_device::{Device, RingOptions, RingStrategy, send_ring};
//! let device = Device::host();
//! let stream = device.stream()?;
//! let options = RingOptions { layout: RingLayout::new(16, 256)?, strategy: RingStrategy::Stream, backoff: Backoff::SECOND };
//! let mut sender = send_ring(&device, &stream, options, NoDelay)?;
//! sender.push(b"a message")?; // into the shadow
//! sender.push(b"and another")?;
//! sender.flush()?; // both, in one copy of slots and one of a counter
//! println!("the device reads at {:#x}", sender.link().address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod link;
mod memory;
mod unified;

pub use link::DeviceLink;
pub use memory::SeenByHost;
pub use unified::{RingLease, UnifiedRing};

use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use terrace_core::ring::bridge::{BridgeError, Receiver, Sender, shadow_words};
use terrace_core::ring::{Backoff, Delay, RingLayout};

/// How copies are made and waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RingStrategy {
    /// Each call waits for its copy.
    Synchronous,
    /// Copies are put on the stream; a call waits for the stream only if it needs the result of a copy.
    #[default]
    Stream,
    /// As `Stream`, but the caller does not wait in the driver: it queries an event, with sleeps between.
    Polled,
}

/// The settings of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Number of slots, and their size in bytes.
    pub layout: RingLayout,
    /// How copies are made and waited for.
    pub strategy: RingStrategy,
    /// How long a call waits for room, for a message, or for a copy.
    pub backoff: Backoff,
}

/// Sends messages to a device.
pub type DeviceSender<D> = Sender<SeenByHost, DeviceLink, D>;

/// Receives messages from a device.
pub type DeviceReceiver<D> = Receiver<SeenByHost, DeviceLink, D>;

/// Puts the calling thread to sleep: pass `&mut sleep` as the [`Delay`] of a ring on a host.
pub fn sleep(nanoseconds: u32) {
    std::thread::sleep(std::time::Duration::from_nanos(nanoseconds.into()));
}

/// Creates a ring in the device's memory, to which the host sends. Copies run on `stream`.
///
/// # Errors
/// [`DeviceError`]s: no memory, no pinned memory, a stream of another device, a failed copy; [`BridgeError::Late`].
pub fn send_ring<D: Delay>(
    device: &Device,
    stream: &Stream,
    options: RingOptions,
    delay: D,
) -> Result<DeviceSender<D>, BridgeError<DeviceError>> {
    let (memory, link) = parts(device, stream, options).map_err(BridgeError::Link)?;
    Sender::create(memory, options.layout, link, delay, options.backoff)
}

/// Creates a ring in the device's memory, from which the host receives. Copies run on `stream`.
///
/// # Errors
/// As for [`send_ring`].
pub fn receive_ring<D: Delay>(
    device: &Device,
    stream: &Stream,
    options: RingOptions,
    delay: D,
) -> Result<DeviceReceiver<D>, BridgeError<DeviceError>> {
    let (memory, link) = parts(device, stream, options).map_err(BridgeError::Link)?;
    Receiver::create(memory, options.layout, link, delay, options.backoff)
}

/// Allocates a shadow in pinned memory, and a ring in the device's memory with the link to it.
fn parts(device: &Device, stream: &Stream, options: RingOptions) -> Result<(SeenByHost, DeviceLink), DeviceError> {
    let shadow = SeenByHost::pinned(device, stream, shadow_words(options.layout))?;
    let block = device.allocate_aligned(stream, options.layout.bytes(), memory::ALIGN)?;
    Ok((shadow, DeviceLink::new(block, stream.clone(), options.strategy)?))
}
