//! Leases of addresses on a device.
//!
//! Promises upward: while a lease is held the bytes stay on the device where they are; what is written under a
//! [`DeviceLeaseMut`] is what everybody reads afterwards.
//! Asks from the user: that work on streams of their own is ordered by [`lend`](DeviceLease::lend) and
//! [`reclaim`](DeviceLeaseMut::reclaim), or waited for.

use super::body::Body;
use super::error::Error;
use super::{Buffer, Place, Seat, Shared};
use crate::ledger::{Event, TierKind};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_core::residence::Tier;
use terrace_device::{DeviceBlock, DeviceError, Stream};
use terrace_file::Join;

/// The bytes of a buffer on a device, for work that reads them.
pub struct DeviceLease<'a> {
    buffer: &'a Buffer,
    tier: Tier,
    address: u64,
}

/// The bytes of a buffer on a device, for work that writes them. What is durable, and every other copy, is older from now on.
pub struct DeviceLeaseMut<'a> {
    buffer: &'a Buffer,
    tier: Tier,
    address: u64,
}

impl Buffer {
    /// The bytes on the best device that has them or has room, where they stay while the lease is held. Brought there first if
    /// they are elsewhere; where the device shares the machine's memory, into that.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best); [`Error::NoTier`] where no device is large enough; [`Error::Device`].
    pub fn lease_device(&self) -> Result<DeviceLease<'_>, Error> {
        loop {
            if let Some(lease) = self.try_lease_device()? {
                return Ok(lease);
            }
            self.shared.tasks.block_on(|| self.to_device())?;
        }
    }

    /// As [`lease_device`](Self::lease_device).
    ///
    /// # Errors
    /// As there.
    pub async fn lease_device_async(&self) -> Result<DeviceLease<'_>, Error> {
        loop {
            if let Some(lease) = self.try_lease_device()? {
                return Ok(lease);
            }
            self.to_device().await?;
        }
    }

    /// The same if the bytes are on a device now; never waits.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device).
    pub fn try_lease_device(&self) -> Result<Option<DeviceLease<'_>>, Error> {
        let (shared, body) = (&*self.shared, &*self.handle.body);
        let kind = shared.device_kind()?;
        let Some(start) = shared.share(body, shared.pinned_cap)? else { return Ok(None) };
        // The lease keeps them where they are.
        match shared.on_device(body, kind, start) {
            Some((tier, address)) => Ok(Some(DeviceLease { buffer: self, tier, address })),
            None => {
                shared.unshare(body);
                Ok(None)
            }
        }
    }

    /// The bytes on a device, to write.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device); [`Error::Leased`] while somebody has any lease.
    pub fn lease_device_mut(&self) -> Result<DeviceLeaseMut<'_>, Error> {
        let (shared, body) = (&self.shared, &*self.handle.body);
        let kind = shared.device_kind()?;
        loop {
            if shared.exclude(body, (0, body.bytes), shared.pinned_cap, kind)?.is_some() {
                let start = body.best.load(Ordering::Relaxed);
                if let Some((tier, address)) = shared.on_device(body, kind, start) {
                    return Ok(DeviceLeaseMut { buffer: self, tier, address });
                }
                shared.include(body);
                return Err(Error::Freed);
            }
            shared.tasks.block_on(|| self.to_device())?;
        }
    }

    /// Begins to bring the bytes to a device.
    fn to_device(&self) -> Join<Result<(), Error>> {
        let (shared, body) = (Arc::clone(&self.shared), Arc::clone(&self.handle.body));
        self.shared.tasks.spawn(async move { shared.bring_to_device(&body).await })
    }
}

impl Shared {
    /// The kind of tier in which a device addresses bytes.
    fn device_kind(&self) -> Result<TierKind, Error> {
        let has = |wanted: fn(&Place) -> bool| self.places.iter().any(|made| wanted(&made.place));
        if has(|place| matches!(place, Place::Device(_))) {
            Ok(TierKind::Device)
        } else if has(|place| matches!(place, Place::Joint(_))) {
            Ok(TierKind::Memory)
        } else {
            Err(Error::NoTier("on a device"))
        }
    }

    /// The newest bytes as a device addresses them. A lease is held.
    fn on_device(&self, body: &Body, kind: TierKind, start: *mut u8) -> Option<(Tier, u64)> {
        let residence = self.state().ledger.view(body.id).ok()?.residence;
        let tier = self.newest(&residence, kind)?;
        match kind {
            TierKind::Device => Some((tier, body.copies().devices[usize::from(tier)].as_ref()?.address)),
            _ => Some((tier, start.addr() as u64)).filter(|_| !start.is_null()),
        }
    }

    /// Has a buffer brought to a device, or waits until what is under way with it has ended.
    async fn bring_to_device(self: &Arc<Self>, body: &Arc<Body>) -> Result<(), Error> {
        let kind = self.device_kind()?;
        let changed = body.changed.listen();
        match self.seat(body)? {
            Seat::Moving => {
                changed.await;
                Ok(())
            }
            _ if kind == TierKind::Memory => self.raise_up(body).await,
            _ => {
                let to = self.large(body.bytes, kind)?;
                self.wish(body, Event::Promote { id: body.id, to }, to).await
            }
        }
    }

    /// The memory under a lease.
    fn leased<T>(
        &self,
        body: &Body,
        tier: Tier,
        work: impl FnOnce(&DeviceBlock) -> Result<T, DeviceError>,
    ) -> Result<T, Error> {
        let copies = body.copies();
        if let Some(there) = copies.devices[usize::from(tier)].clone() {
            drop(copies);
            return there.with(work);
        }
        match &copies.memory[usize::from(tier)] {
            Some(super::block::Block::Pinned(block)) => Ok(work(block)?),
            _ => Err(Error::Freed),
        }
    }
}

impl DeviceLease<'_> {
    /// The first byte, in the device's space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The tier that it is in.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Lets work on a stream use the bytes: what is put there from now on begins after what the manager has under way with them,
    /// and the memory is nobody else's before it is done.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn lend(&self, to: &Stream) -> Result<(), Error> {
        self.buffer.shared.leased(&self.buffer.handle.body, self.tier, |block| block.lend(to))
    }
}

impl DeviceLeaseMut<'_> {
    /// The first byte, in the device's space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The tier that it is in.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// As [`DeviceLease::lend`].
    ///
    /// # Errors
    /// As there.
    pub fn lend(&self, to: &Stream) -> Result<(), Error> {
        self.buffer.shared.leased(&self.buffer.handle.body, self.tier, |block| block.lend(to))
    }

    /// Ends that: the manager's copies of the bytes begin after what was put on the stream so far. Where processors address the
    /// same memory, wait for the stream instead.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn reclaim(&self, from: &Stream) -> Result<(), Error> {
        self.buffer.shared.leased(&self.buffer.handle.body, self.tier, |block| block.reclaim(from))
    }
}

impl Drop for DeviceLease<'_> {
    fn drop(&mut self) {
        self.buffer.shared.unshare(&self.buffer.handle.body);
    }
}

impl Drop for DeviceLeaseMut<'_> {
    fn drop(&mut self) {
        self.buffer.shared.include(&self.buffer.handle.body);
    }
}

impl fmt::Debug for DeviceLease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLease").field("address", &self.address).field("tier", &self.tier).finish_non_exhaustive()
    }
}

impl fmt::Debug for DeviceLeaseMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLeaseMut")
            .field("address", &self.address)
            .field("tier", &self.tier)
            .finish_non_exhaustive()
    }
}
