//! Memory behind an SPI bus: bytes that the processor cannot address, allocated as blocks.
//!
//! Promises upward: blocks of a chip's bytes, read and written by offset and never outside of the block; a call with a stale
//! block is refused; a bus error loses nothing that was written before, and the same call may be made again.
//! Asks from below: [`embedded_hal`]'s `SpiDevice` (its bus, its chip select) and, to wake a PSRAM or to poll a flash, `DelayNs`.
//!
//! ```text
//!  region       SpiRegion   allocate, free: Range over lent slots       read, write(block, offset, ..)
//!  line_cache                                                  LineCache  write-back cache of lines of the chip
//!  sram         Sram23      modes, pages
//!  psram        Psram       reset, bursts, wait bytes
//!  nor          Nor25       sectors, erased only when they must be; polling
//!  memory       SpiMemory   a chip's bytes;  transaction: commands;  error
//! ```
//!
//! # Example
//! ```
//! use embedded_hal::spi::SpiDevice;
//! use terrace_core::{Request, Slot};
//! use terrace_embedded::spi::{AccessError, SramMode, SpiRegion, Sram23};
//!
//! /// Writes a measurement to a chip of 128 KiB and reads it back. 4 lines of 32 bytes save most transactions.
//! fn measure<D: SpiDevice>(device: D) -> Result<u8, AccessError<D::Error>> {
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
mod memory;
mod nor;
mod psram;
mod region;
mod sram;
mod transaction;

pub use error::{AccessError, SpiError};
pub use memory::SpiMemory;
pub use nor::Nor25;
pub use psram::{Psram, PsramSettings};
pub use region::SpiRegion;
pub use sram::{Sram23, SramMode};
