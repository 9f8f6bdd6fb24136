//! Bytes in and out: copies and fills on a stream.

use super::Pool;
use crate::backend::{Backend, RawStream};
use crate::error::DeviceError;
use crate::source::wait;

/// The host's side of a copy.
pub(crate) enum Host<'a> {
    /// It is read.
    Read(&'a [u8]),
    /// It is written.
    Write(&'a mut [u8]),
}

impl<B: Backend> Pool<B> {
    /// Copies between host and device and waits. The device's range is inside a live block, which the caller borrows.
    pub(super) fn transfer(&self, host: Host<'_>, device: u64, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        let backend = &self.ground.backend;
        let copied = match host {
            Host::Read(bytes) => {
                let from = bytes.as_ptr().expose_provenance() as u64;
                // SAFETY: `from` is borrowed until this function has waited, `device` lies in a block that is borrowed too.
                unsafe { backend.copy(device, from, bytes.len() as u64, stream) }
            }
            Host::Write(bytes) => {
                let to = bytes.as_mut_ptr().expose_provenance() as u64;
                // SAFETY: as above; `bytes` is borrowed for writing.
                unsafe { backend.copy(to, device, bytes.len() as u64, stream) }
            }
        };
        // Also after a refusal: the driver may have begun.
        let waited = wait(&**backend, stream);
        copied.and(waited).map_err(|fault| self.driver(fault))
    }
}
