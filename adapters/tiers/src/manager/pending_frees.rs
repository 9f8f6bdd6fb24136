//! Frees device memory that buffers no longer use, without the manager's lock.
//!
//! Freeing device memory may run code that a program left with it: releases of wrapped memory, keepers of streams. That
//! code may call the manager.
//!
//! Promises upward: an allocation on a device fails only if the device is full of memory that the ledger counts as
//! used.
//! Asks from below: a device that has freed a block when the block's drop returns.

use super::ManagerShared;
use super::block::HostBlock;
use super::buffer_state::TierCopy;
use super::error::Error;
use super::state::State;
use std::sync::MutexGuard;
use terrace_device::DeviceError;
use terrace_guard::catch_panic;

/// Copies that wait to be freed; guarded by the manager's lock.
#[derive(Debug, Default)]
pub(super) struct PendingFrees {
    /// Copies to free after the manager's lock is released.
    copies: Vec<TierCopy>,
    /// Number of threads that free copies now. The ledger counts the memory of these copies as free already.
    under_way: usize,
}

impl PendingFrees {
    /// Adds copies that their buffers no longer use. Copies that are not in a device's memory are dropped at once.
    pub(super) fn add(&mut self, copies: impl IntoIterator<Item = TierCopy>) {
        let on_device = |copy: &TierCopy| match copy {
            TierCopy::Device(_) => true,
            TierCopy::Memory(block) => matches!(**block, HostBlock::Pinned(_)),
            TierCopy::Blank(blank) => matches!(**blank.block(), HostBlock::Pinned(_)),
            TierCopy::Pieces(_) => false,
        };
        self.copies.extend(copies.into_iter().filter(on_device));
    }

    /// Takes the copies to free. If there are any, the caller must call [`ManagerShared::free_device_memory`].
    fn begin(&mut self) -> Vec<TierCopy> {
        self.under_way += usize::from(!self.copies.is_empty());
        std::mem::take(&mut self.copies)
    }
}

impl ManagerShared {
    /// Releases the manager's lock, then frees device memory and reports pressure levels to the program.
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let (levels, copies) = (std::mem::take(&mut state.levels), state.pending_frees.begin());
        #[cfg(feature = "tracing")]
        let notices = state.ledger.notices.take();
        drop(state);
        #[cfg(feature = "tracing")]
        super::trace::report(notices);
        self.free_device_memory(copies);
        if let Some(told) = &self.on_pressure {
            for (tier, level) in levels {
                catch_panic(|| told(tier, level));
            }
        }
    }

    fn free_device_memory(&self, copies: Vec<TierCopy>) {
        if !copies.is_empty() {
            drop(copies);
            self.state().pending_frees.under_way -= 1;
            self.moved.notify();
        }
    }

    /// Allocates on a device. If the device is full while another thread frees memory, waits for that thread and tries
    /// again.
    pub(super) async fn take_from_device<T>(&self, take: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        loop {
            // Both are read before the attempt, so that a thread that frees memory during the attempt is waited for
            // too.
            let (given_back, under_way) = (self.moved.listen(), self.state().pending_frees.under_way > 0);
            match take() {
                Err(Error::Device(DeviceError::OutOfMemory(_))) if under_way => given_back.await,
                taken => return taken,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Manager;
    use crate::ledger::LedgerEvent;
    use std::time::Duration;
    use terrace_device::Device;

    #[test]
    fn a_promotion_waits_for_memory_that_another_thread_gives_back() {
        const BYTES: u64 = 2 << 20;
        let device = Device::host();
        device.set_capacity(3 << 20);
        let builder =
            Manager::builder().device_of(&device, BYTES).memory(2 * BYTES).maintenance_interval(Duration::ZERO);
        let manager = builder.build().expect("it is built");
        // The second allocation evicts the first buffer.
        let [first, second] = [(); 2].map(|()| manager.allocate(BYTES).expect("room"));
        let (id, shared) = (second.handle.buffer.id, &manager.shared);
        let mut state = shared.state();
        state.handle(shared, LedgerEvent::Free { id }).expect("no lease is held");
        // The state that `unlock` leaves when it has released the lock but not freed the copies.
        let copies = state.pending_frees.begin();
        drop(state);
        let mut promoted = manager.promote_async(&first, 0);
        std::thread::sleep(Duration::from_millis(50));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::pin::Pin::new(&mut promoted).poll(&mut context).is_pending(), "the device is full");
        shared.free_device_memory(copies);
        assert_eq!((promoted.wait(), manager.tiers()[0].view.suspended_until), (Ok(()), None));
    }
}
