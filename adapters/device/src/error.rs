//! What goes wrong on a device, and what to do about it.
//!
//! Promises upward: every failure names the device and the block or stream it speaks of; nothing here asks a driver.

use crate::fault::Fault;
use std::fmt;
use terrace_core::Cause;
use terrace_core::residence::ResidenceError;

/// A block, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// Where it lies.
    pub address: u64,
    /// Bytes it holds.
    pub bytes: u64,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the block at {:#x} of {} bytes", self.address, self.bytes)
    }
}

/// What was asked when memory ran out, and what there was. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Asked for.
    pub asked: u64,
    /// The largest free block at that moment.
    pub largest_free: u64,
    /// Taken from the driver.
    pub reserved: u64,
    /// In live blocks.
    pub in_use: u64,
    /// The most to take from the driver; 0: no limit.
    pub capacity: u64,
    /// What stood in the way.
    pub cause: Cause,
    /// What the driver said, when it was asked for more and refused.
    pub fault: Option<Fault>,
}

/// What goes wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The request can never be met: the rule it breaks.
    BadRequest {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
        /// The rule.
        rule: &'static str,
    },
    /// An option has a value that does not work: the rule it breaks.
    BadOption(&'static str),
    /// No memory, after everything that could be given back was.
    OutOfMemory(Box<OutOfMemory>),
    /// A block or stream of another device.
    OtherDevice {
        /// The block; `None` when it is a stream.
        block: Option<BlockId>,
        /// The device it belongs to.
        of: String,
        /// The device that was asked.
        asked: String,
    },
    /// A range that leaves its block.
    OutOfBounds {
        /// The block.
        block: BlockId,
        /// First byte of the range.
        offset: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A buffer's newest bytes are not where they would have to be.
    Residence(ResidenceError),
    /// The stream's graph capture is the wrong way round for this.
    Capture(&'static str),
    /// The device is lost, or this is a forked child.
    Lost {
        /// Its name.
        device: String,
        /// What the driver said first.
        fault: Fault,
        /// The block that was to be used, if any.
        block: Option<BlockId>,
    },
    /// The transfer was given up before all of it was done.
    Cancelled,
    /// The driver refused.
    Driver {
        /// The device's name.
        device: String,
        /// What it said.
        fault: Fault,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest { bytes, align, rule } => {
                write!(f, "bad request of {bytes} bytes at an alignment of {align}: {rule}")
            }
            Self::BadOption(rule) => write!(f, "bad option: {rule}"),
            Self::OutOfMemory(what) => what.fmt(f),
            Self::OtherDevice { block: Some(block), of, asked } => {
                write!(f, "{block} belongs to {of}, not to {asked}; copy it there, or ask its own device")
            }
            Self::OtherDevice { block: None, of, asked } => {
                write!(f, "the stream belongs to {of}, not to {asked}; make one with that device's stream()")
            }
            Self::OutOfBounds { block, offset, bytes } => {
                write!(f, "{bytes} bytes from offset {offset} on leave {block}")
            }
            Self::Residence(refusal) => {
                write!(f, "residence of a buffer (tier 0 is the host, 1 the device): {refusal}")
            }
            Self::Capture(rule) => write!(f, "graph capture: {rule}"),
            Self::Lost { device, fault, block: Some(block) } => {
                write!(f, "{device} is lost, and with it {block}: {fault}")
            }
            Self::Lost { device, fault, block: None } => write!(f, "{device} is lost: {fault}"),
            Self::Cancelled => write!(f, "the transfer was cancelled before all of it was done"),
            Self::Driver { device, fault } => write!(f, "{device}: {fault}"),
        }
    }
}

impl From<ResidenceError> for DeviceError {
    fn from(refusal: ResidenceError) -> Self {
        Self::Residence(refusal)
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, largest_free, reserved, in_use, capacity, cause, fault } = self;
        write!(f, "out of device memory: asked for {asked} bytes, the largest free block has {largest_free}; ")?;
        write!(f, "{in_use} bytes are in use, {reserved} taken from the driver")?;
        match capacity {
            0 => {}
            capacity => write!(f, " of at most {capacity}")?,
        }
        match (cause, fault) {
            (Cause::OutOfSlots, _) => write!(f, "; no record left for a block: raise DeviceOptions::blocks"),
            (_, Some(fault)) => write!(f, "; the driver said: {fault}; free something, or turn the fallback on"),
            (_, None) => write!(f, "; free something, raise the capacity, or turn the fallback on"),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost { fault, .. } | Self::Driver { fault, .. } => Some(fault),
            Self::Residence(refusal) => Some(refusal),
            Self::OutOfMemory(what) => what.fault.as_ref().map(|fault| fault as _),
            _ => None,
        }
    }
}
