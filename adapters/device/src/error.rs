//! Errors of a device, and what the user can do about them.
//!
//! Promises upward: every error names the device and the block or stream concerned; showing one makes no driver call.

use crate::fault::Fault;
use crate::out_of_memory::OutOfMemory;
use std::borrow::Cow;
use std::fmt;
use terrace_core::residence::ResidenceError;
use terrace_core::settings::BadSetting;

/// Address and size of a block, by which errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// Address of the block's first byte.
    pub address: u64,
    /// Size of the block in bytes.
    pub bytes: u64,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the block at {:#x} of {} bytes", self.address, self.bytes)
    }
}

/// An error of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The request breaks a rule, so it can never succeed.
    BadRequest {
        /// Bytes requested.
        bytes: u64,
        /// Alignment requested, in bytes.
        align: u64,
        /// The rule that the request breaks.
        rule: &'static str,
    },
    /// An option's value breaks a rule, which this text states.
    BadOption(Cow<'static, str>),
    /// No memory, even after all unused memory was released.
    OutOfMemory(Box<OutOfMemory>),
    /// A block or stream belongs to another device than the one called.
    OtherDevice {
        /// The block; `None` if it is a stream that belongs to the other device.
        block: Option<BlockId>,
        /// Name of the device that the block or stream belongs to.
        of: String,
        /// Name of the device that was called.
        asked: String,
    },
    /// A range exceeds its block.
    OutOfBounds {
        /// The block that the range exceeds.
        block: BlockId,
        /// Offset of the range in the block, in bytes.
        offset: u64,
        /// Size of the range in bytes.
        bytes: u64,
    },
    /// A buffer's newest bytes are not where the call needs them.
    Residence(ResidenceError),
    /// The call is not allowed while a graph is captured on the stream: the text says what to do.
    Capture(&'static str),
    /// The device is lost, or this process is a forked child of the one that opened it.
    Lost {
        /// The device's name.
        device: String,
        /// The driver's first fatal fault.
        fault: Fault,
        /// The block that the call was to use, if any.
        block: Option<BlockId>,
    },
    /// The transfer was cancelled before all of its bytes were moved.
    Cancelled,
    /// The driver refused a call.
    Driver {
        /// The device's name.
        device: String,
        /// The driver's refusal.
        fault: Fault,
    },
}

impl From<BadSetting> for DeviceError {
    fn from(bad: BadSetting) -> Self {
        Self::BadOption(bad.to_string().into())
    }
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
