//! Events that somebody looks at again and again: how far a stream has come, without waiting for it.

use super::Pool;
use crate::backend::{Backend, RawEvent, RawStream};
use crate::error::DeviceError;
use crate::loss::insist;

/// What a pool knows of its streams' progress. Callers hold the streams that they name, and drop each event once, last.
pub(crate) trait Marks {
    /// Makes an event.
    fn make_mark(&self) -> Result<RawEvent, DeviceError>;
    /// Lets it happen when everything put on the stream so far is done.
    fn mark(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError>;
    /// Whether it has happened.
    fn marked(&self, event: RawEvent) -> Result<bool, DeviceError>;
    /// Takes it back.
    fn drop_mark(&self, event: RawEvent);
}

impl<B: Backend> Marks for Pool<B> {
    fn make_mark(&self) -> Result<RawEvent, DeviceError> {
        self.usable()?;
        self.ground.backend.create_event().map_err(|fault| self.driver(fault))
    }

    fn mark(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        // SAFETY: the caller has the event from `make_mark`, and holds the stream.
        unsafe { self.ground.backend.record(event, stream) }.map_err(|fault| self.driver(fault))
    }

    fn marked(&self, event: RawEvent) -> Result<bool, DeviceError> {
        self.usable()?;
        // SAFETY: the caller has the event from `make_mark`.
        unsafe { self.ground.backend.query(event) }.map_err(|fault| self.driver(fault))
    }

    fn drop_mark(&self, event: RawEvent) {
        if self.usable().is_ok() {
            // Refused twice: it goes with the device.
            // SAFETY: the caller has the event from `make_mark`, and lets go of it. A refused call destroyed nothing.
            let _ = insist(|| unsafe { self.ground.backend.destroy_event(event) });
        }
    }
}
