//! Memory behind an SPI bus: bytes that the processor cannot touch, given out as blocks.
//!
//! Promises upward: blocks of a chip's bytes, read and written by offset and never outside of the block; a stale name is
//! refused; after a bus error nothing is lost that was written before, and the same call may be made again.
//! Asks from below: [`embedded_hal`]'s `SpiDevice` (its bus, its chip select) and, to wake a PSRAM or to poll a flash, `DelayNs`.
//!
//! ```text
//!  SpiRegion   allocate, free: Range over lent slots       read, write(block, offset, ..)
//!      |                                                        |
//!      |                                              LineCache  lines of the chip, written back late
//!      |                                                        |
//!      +------- SpiMemory  <- Sram23  commands, modes, pages   <+
//!                          <- Psram   reset, bursts, wait bytes
//!                          <- Nor25   sectors erased when they must be, polling
//! ```
//!
//! # Example
//! ```
//! use embedded_hal::spi::SpiDevice;
//! use terrace_core::{Request, Slot};
//! use terrace_embedded::spi::{AccessError, SramMode, SpiRegion, Sram23};
//!
//! /// 128 KiB of measurements on the board's own chip. 4 lines of 32 bytes save most transactions.
//! fn log<D: SpiDevice>(device: D) -> Result<u8, AccessError<D::Error>> {
//!     let chip = Sram23::open(device, SramMode::Sequential)?;
//!     let mut slots = [Slot::EMPTY; 16];
//!     let mut region = SpiRegion::<_, _, 4, 32>::new(chip, &mut slots[..], 32)?;
//!     let block = region.allocate(Request::new(1000))?;
//!     region.write(&block, 10, b"measured")?;
//!     let mut first = [0];
//!     region.read(&block, 10, &mut first)?;
//!     region.free(block)?;
//!     Ok(first[0])
//! }
//! ```

mod error;
mod line_cache;
mod nor;
mod psram;
mod region;
mod sram;

pub use error::{AccessError, SpiError};
pub use nor::Nor25;
pub use psram::{Psram, PsramSettings};
pub use region::SpiRegion;
pub use sram::{Sram23, SramMode};

use embedded_hal::spi::{Operation, SpiDevice};

/// A chip of bytes behind a bus.
pub trait SpiMemory {
    /// What the bus says when it fails.
    type Error;

    /// Bytes of the chip; addresses are below.
    fn capacity(&self) -> u32;

    /// Reads bytes from an address on. In as many transactions as the chip needs.
    ///
    /// # Errors
    /// [`SpiError::Outside`] before anything is sent; [`SpiError::Bus`]: `bytes` then holds anything.
    fn read(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), SpiError<Self::Error>>;

    /// Writes bytes from an address on. In as many transactions as the chip needs.
    ///
    /// # Errors
    /// [`SpiError::Outside`] before anything is sent; [`SpiError::Bus`]: the first of them may have been written. Writing
    /// them again mends it.
    fn write(&mut self, address: u32, bytes: &[u8]) -> Result<(), SpiError<Self::Error>>;
}

/// Refuses what does not lie in a chip.
fn check_bounds<E>(capacity: u32, address: u32, bytes: usize) -> Result<(), SpiError<E>> {
    let room = capacity.checked_sub(address).map_or(0, |room| room as usize);
    if bytes <= room { Ok(()) } else { Err(SpiError::Outside { address, bytes, capacity }) }
}

/// A transaction: what is sent, and what the chip answers.
fn command_read<D: SpiDevice>(device: &mut D, sent: &[u8], bytes: &mut [u8]) -> Result<(), SpiError<D::Error>> {
    device.transaction(&mut [Operation::Write(sent), Operation::Read(bytes)]).map_err(SpiError::Bus)
}

/// A transaction: a command, and its bytes.
fn command_write<D: SpiDevice>(device: &mut D, command: &[u8], bytes: &[u8]) -> Result<(), SpiError<D::Error>> {
    device.transaction(&mut [Operation::Write(command), Operation::Write(bytes)]).map_err(SpiError::Bus)
}

/// A command and its address, the highest byte first.
fn header(command: u8, address: u32) -> [u8; 4] {
    let [_, high, middle, low] = address.to_be_bytes();
    [command, high, middle, low]
}
