//! Events that callers record and query repeatedly, to follow a stream without waiting for it.

use super::DevicePool;
use crate::backend::{Backend, RawEvent, RawStream};
use crate::error::DeviceError;
use crate::health::insist;
use crate::stream::StreamProgress;

impl<B: Backend> StreamProgress for DevicePool<B> {
    fn create_event(&self) -> Result<RawEvent, DeviceError> {
        self.usable()?;
        self.context.backend.create_event().map_err(|fault| self.driver(fault))
    }

    fn record_event(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        // SAFETY: the caller has the event from `create_event`, and holds the stream.
        unsafe { self.context.backend.record(event, stream) }.map_err(|fault| self.driver(fault))
    }

    fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError> {
        self.usable()?;
        // SAFETY: the caller has the event from `create_event`.
        unsafe { self.context.backend.query(event) }.map_err(|fault| self.driver(fault))
    }

    fn destroy_event(&self, event: RawEvent) {
        if self.usable().is_ok() {
            // If the driver refuses twice, the event is destroyed with the device's context.
            // SAFETY: the caller has the event from `create_event`, and uses it no more. A refused call destroyed
            // nothing.
            let _ = insist(|| unsafe { self.context.backend.destroy_event(event) });
        }
    }
}
