//! Pins memory of the user in place.
//!
//! Promises upward: registered memory is unregistered once: by the buffer that owns it, or by the pool once the streams
//! that used it are done.
//! Asks from below: [`Backend::register`].

use super::DevicePool;
use crate::backend::Backend;
use crate::capability::Capabilities;
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::health::insist;
use crate::stream::{Registers, Unregister};
use std::sync::Arc;

impl<B: Backend> Registers for DevicePool<B> {
    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.usable()?;
        let backend = &self.context.backend;
        if !backend.description().capabilities.contains(Capabilities::REGISTRATION) {
            return Err(self.driver(Fault::of("register host memory", FaultReason::Unsupported)));
        }
        // SAFETY: the caller's promise.
        unsafe { backend.register(address, bytes) }.map_err(|fault| self.driver(fault))
    }

    unsafe fn unregister(&self, address: u64) -> Result<(), DeviceError> {
        self.usable()?;
        // SAFETY: the caller's promise; a refused call changed nothing.
        insist(|| unsafe { self.context.backend.unregister(address) }).map_err(|fault| self.driver(fault))
    }

    unsafe fn unregister_later(&self) -> Unregister {
        let (backend, health) = (Arc::clone(&self.context.backend), Arc::clone(&self.context.health));
        Box::new(move |address| {
            // SAFETY: the promise of the caller of `unregister_later`; a refused call changed nothing.
            let done = insist(|| unsafe { backend.unregister(address) });
            done.map_err(|fault| health.note(fault)).is_ok()
        })
    }
}
