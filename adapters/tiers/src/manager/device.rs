//! Leases of addresses on a device.
//!
//! Promises upward: while a lease is held the bytes do not move; later reads see what was written under a
//! [`DeviceLeaseMut`]; accesses of the manager and of later lessees are ordered after the work on streams that the
//! bytes were lent to.
//! Asks from the user: work on these bytes only on streams that the lease was lent to.

use super::buffer_state::BufferState;
use super::error::Error;
use super::lease_gate::Lessee;
use super::lease_word::{Attempt, Purpose};
use super::{Buffer, DataLocation, ManagerShared, TierStorage};
use crate::ledger::{LedgerEvent, Medium};
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
/// Acquiring the lease makes the durable bytes and all other copies stale.
#[derive(Debug)]
pub struct DeviceLeaseMut<'a> {
    buffer: &'a Buffer,
    on: DeviceBytes,
}

/// The address of leased bytes on a device, and the streams that use them.
pub struct DeviceBytes {
    tier: Tier,
    address: u64,
    bytes: u64,
    /// The stream on which the manager orders its own copies of the bytes.
    home: Stream,
    /// Whether processors address the bytes too: their accesses can only be ordered after a stream's work by waiting
    /// for it.
    shared: bool,
    lent: Mutex<Vec<Stream>>,
}

impl DeviceBytes {
    /// The address of the first byte, in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The tier that has the bytes.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Lends the bytes to a stream: orders the stream's work with the manager's own copies.
    ///
    /// Work submitted to the stream from now on begins after the manager's copies in progress. The manager's later work
    /// begins after all work that is submitted to the stream before the lease is dropped. Where processors address the
    /// same memory, dropping the lease waits for the stream's work.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn lend(&self, to: &Stream) -> Result<(), Error> {
        to.wait_for(&self.home)?;
        self.lent.lock().unwrap_or_else(PoisonError::into_inner).push(to.clone());
        Ok(())
    }

    /// Orders the manager's later work after the work of the streams that the bytes were lent to. The lease must still
    /// be held.
    fn reclaim(&mut self) {
        for stream in self.lent.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // This fails only on a lost device, which runs no later work.
            let _ = if self.shared { stream.synchronize() } else { self.home.wait_for(&stream) };
        }
    }
}

impl Buffer {
    /// Leases the bytes on the best device that has them or has room; they do not move while it is held.
    ///
    /// Moves the bytes there first if needed; where the device shares the machine's memory, to that memory. Waits for
    /// calls that write.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best); also [`Error::Leased`] if the bytes must be moved first while any lease is
    /// held, [`Error::NoTier`] if no device is large enough, and [`Error::Device`].
    pub fn lease_device(&self) -> Result<DeviceLease<'_>, Error> {
        let tiers = self.shared.device_tiers(None)?;
        self.shared.tasks.block_on(|| self.lease_among(Lessee::Thread, &tiers))
    }

    /// As [`lease_device`](Self::lease_device), on the device of a tier.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device).
    pub fn lease_device_on(&self, tier: Tier) -> Result<DeviceLease<'_>, Error> {
        let tiers = self.shared.device_tiers(Some(tier))?;
        self.shared.tasks.block_on(|| self.lease_among(Lessee::Thread, &tiers))
    }

    async fn lease_among(&self, lessee: Lessee, tiers: &[Tier]) -> Result<DeviceLease<'_>, Error> {
        self.lease_by(
            lessee,
            |lease: &DeviceLease<'_>| lease.on.tier,
            || self.try_among(tiers),
            || self.to_device(tiers),
        )
        .await
    }

    /// As [`lease_device`](Self::lease_device), as a future.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device).
    pub async fn lease_device_async(&self) -> Result<DeviceLease<'_>, Error> {
        self.lease_among(Lessee::Future, &self.shared.device_tiers(None)?).await
    }

    /// Leases the bytes if they are on a device now; never waits.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device).
    pub fn try_lease_device(&self) -> Result<Option<DeviceLease<'_>>, Error> {
        let lease = self.try_among(&self.shared.device_tiers(None)?)?.now()?;
        lease.iter().for_each(|lease| self.shared.stats.found(lease.on.tier));
        Ok(lease)
    }

    fn try_among(&self, tiers: &[Tier]) -> Result<Attempt<DeviceLease<'_>>, Error> {
        let (shared, buffer) = (&*self.shared, &*self.handle.buffer);
        shared.check_process()?;
        buffer.check_unmapped()?;
        shared.acquire_shared(buffer, Purpose::Lease)?.and_then(|_| {
            // While the lease is held, the bytes are not moved.
            let on = shared.on_device(buffer, tiers);
            if !matches!(on, Ok(Some(_))) {
                shared.release_shared(buffer, Purpose::Lease);
            }
            Ok(on?.map_or(Attempt::Elsewhere, |on| Attempt::Taken(DeviceLease { buffer: self, on })))
        })
    }

    /// Leases the bytes on the best device that has them or has room, to write.
    ///
    /// # Errors
    /// As [`lease_device`](Self::lease_device); [`Error::Leased`] while any lease is held.
    pub fn lease_device_mut(&self) -> Result<DeviceLeaseMut<'_>, Error> {
        let tiers = self.shared.device_tiers(None)?;
        self.shared.tasks.block_on(|| self.lease_mut_among(Lessee::Thread, &tiers))
    }

    /// As [`lease_device_mut`](Self::lease_device_mut), on the device of a tier.
    ///
    /// # Errors
    /// As [`lease_device_mut`](Self::lease_device_mut).
    pub fn lease_device_mut_on(&self, tier: Tier) -> Result<DeviceLeaseMut<'_>, Error> {
        let tiers = self.shared.device_tiers(Some(tier))?;
        self.shared.tasks.block_on(|| self.lease_mut_among(Lessee::Thread, &tiers))
    }

    /// As [`lease_device_mut`](Self::lease_device_mut), as a future.
    ///
    /// # Errors
    /// As [`lease_device_mut`](Self::lease_device_mut).
    pub async fn lease_device_mut_async(&self) -> Result<DeviceLeaseMut<'_>, Error> {
        self.lease_mut_among(Lessee::Future, &self.shared.device_tiers(None)?).await
    }

    async fn lease_mut_among(&self, lessee: Lessee, tiers: &[Tier]) -> Result<DeviceLeaseMut<'_>, Error> {
        self.lease_by(
            lessee,
            |lease: &DeviceLeaseMut<'_>| lease.on.tier,
            || self.try_mut_among(tiers),
            || self.to_device(tiers),
        )
        .await
    }

    fn try_mut_among(&self, tiers: &[Tier]) -> Result<Attempt<DeviceLeaseMut<'_>>, Error> {
        let (shared, buffer) = (&*self.shared, &*self.handle.buffer);
        shared.check_process()?;
        buffer.check_unmapped()?;
        // Checked before the exclusive lease is acquired, which would be in vain if no device has the bytes or their
        // copy is lost.
        if shared.on_device(buffer, tiers)?.is_none() {
            return Ok(Attempt::Elsewhere);
        }
        let those = |tier| tiers.contains(&tier);
        shared.acquire_exclusive(buffer, (0, buffer.bytes), Purpose::Lease, &those)?.and_then(|_| {
            let on = shared.on_device(buffer, tiers);
            if !matches!(on, Ok(Some(_))) {
                shared.release_exclusive(buffer, Purpose::Lease);
            }
            Ok(on?.map_or(Attempt::Elsewhere, |on| Attempt::Taken(DeviceLeaseMut { buffer: self, on })))
        })
    }

    /// Starts to move the bytes to a device.
    fn to_device(&self, tiers: &[Tier]) -> JoinHandle<Result<(), Error>> {
        let (shared, buffer, tiers) = (Arc::clone(&self.shared), Arc::clone(&self.handle.buffer), tiers.to_vec());
        self.shared.tasks.spawn(async move { shared.move_to_device(&buffer, &tiers).await })
    }
}

impl ManagerShared {
    /// Returns the tiers whose bytes a device addresses: only `on` if that is given; else all tiers in devices' own
    /// memory; if there are none, the tier that a device shares with the machine.
    fn device_tiers(&self, on: Option<Tier>) -> Result<Vec<Tier>, Error> {
        let all = |wanted: fn(&TierStorage) -> bool| -> Vec<Tier> {
            self.tiers().filter(|tier| self.storage(*tier).is_some_and(wanted)).collect()
        };
        let tiers = match on {
            Some(tier) => Vec::from_iter(self.device_tier(tier).map(|_| tier)),
            None => all(|storage| matches!(storage, TierStorage::Device(_))),
        };
        let tiers = match tiers.is_empty() && on.is_none() {
            true => all(|storage| matches!(storage, TierStorage::Joint(_))),
            false => tiers,
        };
        if tiers.is_empty() { Err(Error::NoTier("on a device")) } else { Ok(tiers) }
    }

    /// Returns the newest bytes as a device addresses them; `None` if none of the tiers has them. Without a lease the
    /// bytes may be moved, and the caller must check again.
    fn on_device(&self, buffer: &BufferState, tiers: &[Tier]) -> Result<Option<DeviceBytes>, Error> {
        let residence = self.state().ledger.view(buffer.id)?.residence;
        let Some(tier) = tiers.iter().copied().find(|tier| residence.valid(*tier)) else { return Ok(None) };
        let lent = Mutex::default();
        if self.medium(tier) == Medium::Device {
            let copy = buffer.copies().device(tier).cloned();
            let Some(copy) = copy else { return Ok(None) };
            copy.check()?;
            let (address, home) = (copy.address, copy.stream.clone());
            return Ok(Some(DeviceBytes { tier, address, bytes: buffer.bytes, home, shared: false, lent }));
        }
        let address = buffer.best.load(Ordering::Acquire).addr() as u64;
        let home = self.device_tier(tier).filter(|_| address > 0).map(|gpu| gpu.home().clone());
        Ok(home.map(|home| DeviceBytes { tier, address, bytes: buffer.bytes, home, shared: true, lent }))
    }

    /// Moves a buffer to one of these tiers, or waits until a migration in progress has ended.
    async fn move_to_device(self: &Arc<Self>, buffer: &Arc<BufferState>, tiers: &[Tier]) -> Result<(), Error> {
        let changed = buffer.changed().listen();
        let location = self.location(buffer)?;
        if matches!(location, DataLocation::Moving) {
            changed.await;
            return Ok(());
        }
        let mut refused = Error::NoTier("on a device that is large enough for the buffer");
        for &to in tiers {
            let large = self.state().ledger.tier(to).is_some_and(|view| view.limit >= buffer.bytes);
            if !large {
                continue;
            }
            let event = match location {
                // The memory that a device shares is a lower tier than a device's own: the copy down is a replication.
                DataLocation::Device if self.medium(to) == Medium::Memory => {
                    LedgerEvent::Replicate { id: buffer.id, to }
                }
                _ => LedgerEvent::Promote { id: buffer.id, to },
            };
            match self.request_move(buffer, event, to).await {
                Err(error @ (Error::NoRoom { .. } | Error::Suspended { .. } | Error::Device(_) | Error::Memory(_))) => {
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
        self.buffer.shared.release_shared(&self.buffer.handle.buffer, Purpose::Lease);
    }
}

impl Drop for DeviceLeaseMut<'_> {
    fn drop(&mut self) {
        self.on.reclaim();
        self.buffer.shared.release_exclusive(&self.buffer.handle.buffer, Purpose::Lease);
    }
}

impl fmt::Debug for DeviceBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBytes").field("address", &self.address).field("tier", &self.tier).finish_non_exhaustive()
    }
}
