//! Memory of devices that buffers no longer use: it is given back without the manager's lock.
//!
//! A device that takes memory back may run what a program left with it: releases of wrapped memory, keepers of streams.
//! Those may call the manager.
//!
//! Promises upward: an allocation fails only if the device is full of memory that the ledger counts as used.
//! Asks from below: that a device frees a block before the drop of it returns.

use super::Shared;
use super::block::Block;
use super::body::Copied;
use super::error::Error;
use super::state::State;
use std::sync::MutexGuard;
use terrace_device::DeviceError;
use terrace_guard::catch_panic;

/// Under the manager's lock.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Copies to give back when the lock is released.
    copies: Vec<Copied>,
    /// Threads that give copies back now: the ledger counts their memory as free already.
    under_way: usize,
}

impl Returns {
    /// Takes copies that their buffer no longer uses. What no device has is dropped at once.
    pub(super) fn add(&mut self, copies: impl IntoIterator<Item = Copied>) {
        let on_device = |copy: &Copied| matches!(copy, Copied::Device(_) | Copied::Memory(Block::Pinned(_)));
        self.copies.extend(copies.into_iter().filter(on_device));
    }

    /// The copies to give back. If there are any, [`Shared::give_back`] must follow.
    fn begin(&mut self) -> Vec<Copied> {
        self.under_way += usize::from(!self.copies.is_empty());
        std::mem::take(&mut self.copies)
    }
}

impl Shared {
    /// Releases the lock, then gives memory back to devices and tells the program of pressure.
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let (levels, copies) = (std::mem::take(&mut state.levels), state.returns.begin());
        drop(state);
        self.give_back(copies);
        if let Some(told) = &self.on_pressure {
            for (tier, level) in levels {
                catch_panic(|| told(tier, level));
            }
        }
    }

    fn give_back(&self, copies: Vec<Copied>) {
        if !copies.is_empty() {
            drop(copies);
            self.state().returns.under_way -= 1;
            self.moved.notify();
        }
    }

    /// Allocates on a device. If that fails while memory is being given back, waits for that memory and tries again.
    pub(super) async fn take_from_device<T>(&self, take: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        loop {
            // Read before the attempt: what is given back during it is waited for too.
            let (given_back, under_way) = (self.moved.listen(), self.state().returns.under_way > 0);
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
    use crate::ledger::Event;
    use std::time::Duration;
    use terrace_device::Device;

    #[test]
    fn a_promotion_waits_for_memory_that_another_thread_gives_back() {
        const BYTES: u64 = 2 << 20;
        let device = Device::host();
        device.set_capacity(3 << 20);
        let builder = Manager::builder().device_of(&device, BYTES).memory(2 * BYTES).upkeep(Duration::ZERO);
        let manager = builder.build().expect("it is built");
        // The second evicts the first.
        let [first, second] = [(); 2].map(|()| manager.allocate(BYTES).expect("room"));
        let (id, shared) = (second.handle.body.id, &manager.shared);
        let mut state = shared.state();
        state.handle(shared, Event::Free { id }).expect("no lease is held");
        // Where `unlock` is when it has released the lock.
        let copies = state.returns.begin();
        drop(state);
        let mut promoted = manager.promote_async(&first, 0);
        std::thread::sleep(Duration::from_millis(50));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::pin::Pin::new(&mut promoted).poll(&mut context).is_pending(), "the device is full");
        shared.give_back(copies);
        assert_eq!((promoted.wait(), manager.tiers()[0].view.rests_until), (Ok(()), None));
    }
}
