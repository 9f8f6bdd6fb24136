//! Passes hints about managed memory to the backend.

use super::DevicePool;
use crate::backend::{Backend, RawStream};
use crate::capability::Capabilities;
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::hint::{Advice, Hint, PrefetchTarget};
use crate::stream::Hints;

impl<B: Backend> DevicePool<B> {
    /// Gives a hint to a device that takes hints. A backend that has the capability but refuses hints as unsupported
    /// (the host, or an old driver that lacks the function) is no error either.
    fn hint(&self, bytes: u64, give: impl FnOnce(&B) -> Result<(), Fault>) -> Result<Hint, DeviceError> {
        self.usable()?;
        let takes = self.context.backend.description().capabilities.contains(Capabilities::CONCURRENT_MANAGED);
        if bytes == 0 || !takes {
            return Ok(Hint::Ignored);
        }
        match give(&self.context.backend) {
            Ok(()) => Ok(Hint::Given),
            Err(Fault { reason: FaultReason::Unsupported | FaultReason::Missing, .. }) => Ok(Hint::Ignored),
            Err(fault) => Err(self.driver(fault)),
        }
    }
}

impl<B: Backend> Hints for DevicePool<B> {
    fn prefetch(&self, at: u64, bytes: u64, to: PrefetchTarget, stream: RawStream) -> Result<Hint, DeviceError> {
        // SAFETY: a range of a live managed block, which is not freed before this stream has done all work put on it.
        self.hint(bytes, |backend| unsafe { backend.prefetch(at, bytes, to, stream) })
    }

    fn advise(&self, at: u64, bytes: u64, advice: Advice) -> Result<Hint, DeviceError> {
        // SAFETY: a range of a live managed block.
        self.hint(bytes, |backend| unsafe { backend.advise(at, bytes, advice) })
    }
}
