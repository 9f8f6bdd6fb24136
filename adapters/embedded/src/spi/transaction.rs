//! Commands of a chip, each in one transaction.

use embedded_hal::spi::{Operation, SpiDevice};

use super::error::SpiError;

/// Refuses an access that does not lie within a chip.
pub fn check_bounds<E>(capacity: u32, address: u32, bytes: usize) -> Result<(), SpiError<E>> {
    let room = capacity.checked_sub(address).map_or(0, |room| room as usize);
    if bytes <= room { Ok(()) } else { Err(SpiError::Outside { address, bytes, capacity }) }
}

/// Sends a command and reads the chip's answer into `bytes`.
pub fn command_read<D: SpiDevice>(device: &mut D, command: &[u8], bytes: &mut [u8]) -> Result<(), SpiError<D::Error>> {
    device.transaction(&mut [Operation::Write(command), Operation::Read(bytes)]).map_err(SpiError::Bus)
}

/// Sends a command and its data.
pub fn command_write<D: SpiDevice>(device: &mut D, command: &[u8], bytes: &[u8]) -> Result<(), SpiError<D::Error>> {
    device.transaction(&mut [Operation::Write(command), Operation::Write(bytes)]).map_err(SpiError::Bus)
}

/// A command byte and three address bytes, the highest first.
pub fn header(command: u8, address: u32) -> [u8; 4] {
    let [_, high, middle, low] = address.to_be_bytes();
    [command, high, middle, low]
}
