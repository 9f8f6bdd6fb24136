//! Leases of addresses on a device.
//!
//! Promises upward: while a lease is held the bytes stay on the device where they are; what is written under a
//! [`DeviceLeaseMut`] is what everybody reads afterwards; what the manager, or the next holder, does with the bytes
//! comes after what was put on the streams that they were lent to.
//! Asks from the user: that work is put on streams that the lease was lent to, and no other.

use super::alone::Going;
use super::body::Body;
use super::error::Error;
use super::{Buffer, Place, Seat, Shared};
use crate::ledger::{Event, TierKind};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_core::residence::Tier;
use terrace_device::Stream;
use terrace_file::JoinHandle;

/// The bytes of a buffer on a device, for work that reads them.
#[derive(Debug)]
pub struct DeviceLease<'a> {
    buffer: &'a Buffer,
    on: DeviceBytes,
}

/// The bytes of a buffer on a device, for work that writes them.
///
/// What is durable, and every other copy, is older from now on.
#[derive(Debug)]
pub struct DeviceLeaseMut<'a> {
    buffer: &'a Buffer,
    on: DeviceBytes,
}

/// Where leased bytes are on a device, and whose work uses them.
pub struct DeviceBytes {
    tier: Tier,
    address: u64,
    bytes: u64,
    /// The manager's own work with them.
    home: Stream,
    /// Whether processors address them too: nothing but waiting keeps them back.
    shared: bool,
    lent: Mutex<Vec<Stream>>,
}

impl DeviceBytes {
    /// The first byte, in the device's space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes from there on.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The tier that they are in.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Orders work on a stream with the manager's own copies of the bytes.
    ///
    /// Work submitted to the stream from now on begins after the copies under way; work of the manager after the lease
    /// begins after what was submitted before the lease is dropped. Where processors address the same memory, dropping
    /// the lease waits for that.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn lend(&self, to: &Stream) -> Result<(), Error> {
        to.wait_for(&self.home)?;
        self.lent.lock().unwrap_or_else(PoisonError::into_inner).push(to.clone());
        Ok(())
    }

    /// Has what comes next wait for the work on those streams. While the lease is held.
    fn reclaim(&mut self) {
        for stream in self.lent.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Refused by a device that is lost: there is no later work then.
            let _ = if self.shared { stream.synchronize() } else { self.home.wait_for(&stream) };
        }
    }
}

impl Buffer {
    /// The bytes on the best device that has them or has room, where they stay while the lease is held.
    ///
    /// Brought there first if they are elsewhere; where the device shares the machine's memory, into that. Takes its
    /// turn with calls that write.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best), and [`Error::Leased`] while any lease is held of bytes that must be brought
    /// first; [`Error::NoTier`] where no device is large enough; [`Error::Device`].
    pub fn lease_device(&self) -> Result<DeviceLease<'_>, Error> {
        let tiers = self.shared.devices(None)?;
        self.shared.tasks.block_on(|| self.lease_among(Going::Blocks, &tiers))
    }

    /// The same, on the device of a tier.
    ///
    /// # Errors
    /// As there.
    pub fn lease_device_on(&self, tier: Tier) -> Result<DeviceLease<'_>, Error> {
        let tiers = self.shared.devices(Some(tier))?;
        self.shared.tasks.block_on(|| self.lease_among(Going::Blocks, &tiers))
    }

    async fn lease_among(&self, going: Going, tiers: &[Tier]) -> Result<DeviceLease<'_>, Error> {
        self.lease_by(going, || self.try_among(tiers), || self.to_device(tiers)).await
    }

    /// As [`lease_device`](Self::lease_device).
    ///
    /// # Errors
    /// As there.
    pub async fn lease_device_async(&self) -> Result<DeviceLease<'_>, Error> {
        self.lease_among(Going::MayStop, &self.shared.devices(None)?).await
    }

    /// The same if the bytes are on a device now; never waits.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device).
    pub fn try_lease_device(&self) -> Result<Option<DeviceLease<'_>>, Error> {
        self.try_among(&self.shared.devices(None)?)
    }

    fn try_among(&self, tiers: &[Tier]) -> Result<Option<DeviceLease<'_>>, Error> {
        let (shared, body) = (&*self.shared, &*self.handle.body);
        shared.is_here()?;
        body.is_own()?;
        if shared.share(body, shared.pinned_cap)?.is_none() {
            return Ok(None);
        }
        // The lease keeps them where they are.
        let on = shared.on_device(body, tiers);
        if !matches!(on, Ok(Some(_))) {
            shared.unshare(body);
        }
        Ok(on?.map(|on| DeviceLease { buffer: self, on }))
    }

    /// The bytes on the best device that has them or has room, to write.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device); [`Error::Leased`] while somebody has any lease.
    pub fn lease_device_mut(&self) -> Result<DeviceLeaseMut<'_>, Error> {
        let tiers = self.shared.devices(None)?;
        self.shared.tasks.block_on(|| self.lease_mut_among(Going::Blocks, &tiers))
    }

    /// The same, on the device of a tier.
    ///
    /// # Errors
    /// As there.
    pub fn lease_device_mut_on(&self, tier: Tier) -> Result<DeviceLeaseMut<'_>, Error> {
        let tiers = self.shared.devices(Some(tier))?;
        self.shared.tasks.block_on(|| self.lease_mut_among(Going::Blocks, &tiers))
    }

    /// As [`lease_device_mut`](Self::lease_device_mut).
    ///
    /// # Errors
    /// As there.
    pub async fn lease_device_mut_async(&self) -> Result<DeviceLeaseMut<'_>, Error> {
        self.lease_mut_among(Going::MayStop, &self.shared.devices(None)?).await
    }

    async fn lease_mut_among(&self, going: Going, tiers: &[Tier]) -> Result<DeviceLeaseMut<'_>, Error> {
        self.lease_by(going, || self.try_mut_among(tiers), || self.to_device(tiers)).await
    }

    fn try_mut_among(&self, tiers: &[Tier]) -> Result<Option<DeviceLeaseMut<'_>>, Error> {
        let (shared, body) = (&*self.shared, &*self.handle.body);
        shared.is_here()?;
        body.is_own()?;
        // Looked at first: the word is not taken for nothing, nor for bytes that are lost.
        if shared.on_device(body, tiers)?.is_none() {
            return Ok(None);
        }
        let those = |tier| tiers.contains(&tier);
        if shared.exclude(body, (0, body.bytes), shared.pinned_cap, &those)?.is_none() {
            return Ok(None);
        }
        let on = shared.on_device(body, tiers);
        if !matches!(on, Ok(Some(_))) {
            shared.include(body);
        }
        Ok(on?.map(|on| DeviceLeaseMut { buffer: self, on }))
    }

    /// Begins to bring the bytes to a device.
    fn to_device(&self, tiers: &[Tier]) -> JoinHandle<Result<(), Error>> {
        let (shared, body, tiers) = (Arc::clone(&self.shared), Arc::clone(&self.handle.body), tiers.to_vec());
        self.shared.tasks.spawn(async move { shared.bring_to_device(&body, &tiers).await })
    }
}

impl Shared {
    /// The tiers whose bytes a device addresses: that one, or all that are of devices alone, or else what is shared.
    fn devices(&self, on: Option<Tier>) -> Result<Vec<Tier>, Error> {
        let all = |wanted: fn(&Place) -> bool| -> Vec<Tier> {
            self.tiers().filter(|tier| self.place(*tier).is_some_and(wanted)).collect()
        };
        let tiers = match on {
            Some(tier) => Vec::from_iter(self.gpu(tier).map(|_| tier)),
            None => all(|place| matches!(place, Place::Device(_))),
        };
        let tiers = match tiers.is_empty() && on.is_none() {
            true => all(|place| matches!(place, Place::Joint(_))),
            false => tiers,
        };
        if tiers.is_empty() { Err(Error::NoTier("on a device")) } else { Ok(tiers) }
    }

    /// The newest bytes as a device addresses them. A lease is held, or it is looked at again.
    fn on_device(&self, body: &Body, tiers: &[Tier]) -> Result<Option<DeviceBytes>, Error> {
        let residence = self.state().ledger.view(body.id)?.residence;
        let Some(tier) = tiers.iter().copied().find(|tier| residence.valid(*tier)) else { return Ok(None) };
        let lent = Mutex::default();
        if self.kind(tier) == TierKind::Device {
            let there = body.copies().device(tier).cloned();
            let Some(there) = there else { return Ok(None) };
            there.check()?;
            let (address, home) = (there.address, there.stream.clone());
            return Ok(Some(DeviceBytes { tier, address, bytes: body.bytes, home, shared: false, lent }));
        }
        let address = body.best.load(Ordering::Acquire).addr() as u64;
        let home = self.gpu(tier).filter(|_| address > 0).map(|gpu| gpu.home().clone());
        Ok(home.map(|home| DeviceBytes { tier, address, bytes: body.bytes, home, shared: true, lent }))
    }

    /// Has a buffer brought to one of these tiers, or waits until what is under way with it has ended.
    async fn bring_to_device(self: &Arc<Self>, body: &Arc<Body>, tiers: &[Tier]) -> Result<(), Error> {
        let changed = body.changed().listen();
        let seat = self.seat(body)?;
        if matches!(seat, Seat::Moving) {
            changed.await;
            return Ok(());
        }
        let mut refused = Error::NoTier("on a device that is large enough for the buffer");
        for &to in tiers {
            let large = self.state().ledger.tier(to).is_some_and(|view| view.capacity >= body.bytes);
            if !large {
                continue;
            }
            let event = match seat {
                // Down from a device of its own to what is shared.
                Seat::Device if self.kind(to) == TierKind::Memory => Event::Save { id: body.id, to },
                _ => Event::Promote { id: body.id, to },
            };
            match self.wish(body, event, to).await {
                Err(error @ (Error::NoRoom { .. } | Error::Resting { .. } | Error::Device(_) | Error::Memory(_))) => {
                    refused = error
                }
                outcome => return outcome,
            }
        }
        Err(refused)
    }
}

impl Deref for DeviceLease<'_> {
    type Target = DeviceBytes;

    fn deref(&self) -> &DeviceBytes {
        &self.on
    }
}

impl Deref for DeviceLeaseMut<'_> {
    type Target = DeviceBytes;

    fn deref(&self) -> &DeviceBytes {
        &self.on
    }
}

impl Drop for DeviceLease<'_> {
    fn drop(&mut self) {
        self.on.reclaim();
        self.buffer.shared.unshare(&self.buffer.handle.body);
    }
}

impl Drop for DeviceLeaseMut<'_> {
    fn drop(&mut self) {
        self.on.reclaim();
        self.buffer.shared.include(&self.buffer.handle.body);
    }
}

impl fmt::Debug for DeviceBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBytes").field("address", &self.address).field("tier", &self.tier).finish_non_exhaustive()
    }
}
