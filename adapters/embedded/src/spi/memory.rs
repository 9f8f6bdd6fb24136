//! The bytes of a chip.

use super::error::SpiError;

/// A chip of bytes behind a bus.
pub trait SpiMemory {
    /// The bus's own error.
    type Error;

    /// Capacity of the chip in bytes: addresses are 0 to `capacity() - 1`.
    fn capacity(&self) -> u32;

    /// Reads bytes from `address` on, in as many transactions as the chip needs.
    ///
    /// # Errors
    /// [`SpiError::Outside`], before anything is sent; [`SpiError::Bus`], after which the contents of `bytes` are unspecified.
    fn read(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), SpiError<Self::Error>>;

    /// Writes bytes from `address` on, in as many transactions as the chip needs.
    ///
    /// # Errors
    /// [`SpiError::Outside`], before anything is sent; [`SpiError::Bus`], after which a prefix of the bytes may be on the chip:
    /// write all of them again.
    fn write(&mut self, address: u32, bytes: &[u8]) -> Result<(), SpiError<Self::Error>>;
}
