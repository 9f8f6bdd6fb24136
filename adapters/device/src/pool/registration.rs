//! The user's own memory, pinned in place.
//!
//! Promises upward: what was registered is unregistered once, whoever does it: the buffer that has it, or the pool after
//! the streams that used it.
//! Asks from below: [`Backend::register`].

use super::DevicePool;
use crate::backend::Backend;
use crate::capability::Capabilities;
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::health::insist;
use std::sync::Arc;

/// Ends a registration, by the address that it began with. False when the driver refused: the memory is still pinned.
pub(crate) type Unregister = Box<dyn FnOnce(u64) -> bool + Send + Sync>;

/// What a pool does with memory of others.
pub(crate) trait Registers {
    /// Pins a range.
    ///
    /// # Safety
    /// It is memory of this process, and stays so until it is unregistered.
    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Unpins it.
    ///
    /// # Safety
    /// It was registered here, and no work in flight uses it.
    unsafe fn unregister(&self, address: u64) -> Result<(), DeviceError>;
    /// Unpins it later. Keeps the driver, not the pool: the pool may be what calls it, when it ends.
    ///
    /// # Safety
    /// Whoever calls it does so once, for what was registered here, when no work in flight uses it.
    unsafe fn unregister_later(&self) -> Unregister;
}

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
            // SAFETY: the promise of who called `unregister_later`; a refused call changed nothing.
            let done = insist(|| unsafe { backend.unregister(address) });
            done.map_err(|fault| health.note(fault)).is_ok()
        })
    }
}
