//! One allocator for several tenants, with caps, guarantees and isolation.
//!
//! Promises upward:
//! - a tenant never has more than its cap, nor bytes that are guaranteed to others
//! - memory that passes from one tenant to another is zeroed first; if that fails, the allocation fails
//! - a tenant cannot free or resize another's block
//!
//! Asks from below: [`ZeroFill`] writes zeroes; the inner allocator has no other user, and region numbers below 2^24; the
//! caller lends the table of shares and the table of [`PageOwners`].
//!
//! Tenants are owners: `Request::owner` is the tenant that allocates, the owner passed to `free` the tenant that frees. The
//! tenant's index in the table is in the low 8 bits of a block's region. A handle is not a capability: this isolates
//! honest programs, not a program that forges handles in its own process.
//!
//! Guarantees are in bytes, not in contiguous bytes: the inner allocator may have them only in several pieces.
//!
//! Invariants: `used <= cap` for each share; sum of `used` = the inner `in_use`; `unmet` = sum over shares of
//! `guaranteed - used` where positive; sum of `guaranteed <= capacity`.

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::source::SourceError;
use crate::stats::Stats;
pub use page_owners::PageOwners;

mod page_owners;

/// Maximum number of tenants: 8 bits of a block's region.
const MOST: usize = 1 << 8;

/// Writes zeroes: `memset` on a host, a driver call on a device.
pub trait ZeroFill {
    /// Makes `[address, address + bytes)` read as zeroes for the next tenant.
    ///
    /// # Errors
    /// The device's refusal; the block is then not given to the tenant.
    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError>;
}

impl<F: FnMut(u64, u64) -> Result<(), SourceError>> ZeroFill for F {
    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        self(address, bytes)
    }
}

/// The share of one tenant: its cap, its guarantee, and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantShare {
    /// The tenant.
    pub owner: Owner,
    /// Maximum bytes of the tenant's live blocks.
    pub cap: u64,
    /// Bytes guaranteed: reserved for the tenant while its live blocks have fewer.
    pub guaranteed: u64,
    /// Bytes of the tenant's live blocks.
    used: u64,
}

impl TenantShare {
    /// A tenant's share, with no live blocks.
    pub const fn new(owner: Owner, cap: u64, guaranteed: u64) -> Self {
        Self { owner, cap, guaranteed, used: 0 }
    }

    /// Bytes of the tenant's live blocks.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of the tenant's guarantee that it does not use yet.
    const fn unmet(&self) -> u64 {
        self.guaranteed.saturating_sub(self.used)
    }
}

/// One allocator for several tenants, isolated from each other.
#[derive(Debug)]
pub struct Tenants<'a, A, Z> {
    inner: A,
    zero: Z,
    shares: &'a mut [TenantShare],
    pages: PageOwners<'a>,
    /// Bytes that all tenants together may use.
    capacity: u64,
    /// Bytes of the live blocks of all tenants.
    used: u64,
    /// Bytes that are guaranteed and not yet used: the sum of `TenantShare::unmet` over the shares.
    unmet: u64,
    /// Number of requests that this layer refused (the inner allocator counts its own).
    refused: u64,
}

impl<'a, A: Allocator, Z: ZeroFill> Tenants<'a, A, Z> {
    /// Divides `capacity` bytes of an allocator without live blocks among tenants.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when two shares have one owner, there are more than 256, or a guarantee is above its cap;
    /// [`Cause::OverLimit`] when the guarantees together are above the capacity.
    pub fn new(
        inner: A,
        zero: Z,
        capacity: u64,
        shares: &'a mut [TenantShare],
        pages: PageOwners<'a>,
    ) -> Result<Self, AllocError> {
        let mut unmet = 0u64;
        for (at, share) in shares.iter().enumerate() {
            let twice = shares[..at].iter().any(|other| other.owner == share.owner);
            if twice || share.guaranteed > share.cap || at >= MOST {
                return Err(AllocError::new(Cause::BadRequest, share.guaranteed));
            }
            unmet = unmet.saturating_add(share.guaranteed);
        }
        if unmet > capacity {
            return Err(AllocError { largest_free: capacity, ..AllocError::new(Cause::OverLimit, unmet) });
        }
        shares.iter_mut().for_each(|share| share.used = 0);
        Ok(Self { inner, zero, shares, pages, capacity, used: 0, unmet, refused: 0 })
    }

    /// The shares of all tenants.
    pub fn shares(&self) -> &[TenantShare] {
        self.shares
    }

    /// The inner allocator.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    fn tenant(&self, owner: Owner) -> Option<usize> {
        self.shares.iter().position(|share| share.owner == owner)
    }

    /// Bytes that a tenant may still allocate: within its cap, and without bytes that are guaranteed to other tenants.
    fn room(&self, tenant: usize) -> u64 {
        let share = &self.shares[tenant];
        let others = self.unmet - share.unmet();
        let free = self.capacity.saturating_sub(self.used).saturating_sub(others);
        free.min(share.cap.saturating_sub(share.used))
    }

    /// Replaces `old` bytes of a tenant's use by `new` bytes.
    fn charge(&mut self, tenant: usize, old: u64, new: u64) {
        let share = &mut self.shares[tenant];
        self.unmet -= share.unmet();
        share.used = share.used.saturating_sub(old).saturating_add(new);
        self.unmet += share.unmet();
        self.used = self.used.saturating_sub(old).saturating_add(new);
    }

    fn give(&mut self, tenant: usize, request: Request) -> Result<Block, AllocError> {
        let over = AllocError { cause: Cause::OverLimit, asked: request.bytes, largest_free: self.room(tenant) };
        if request.bytes > over.largest_free {
            self.refused += 1;
            return Err(over);
        }
        let block = self.inner.allocate(request)?;
        let outcome = match block.region.checked_mul(MOST as u32) {
            _ if block.bytes > over.largest_free => Err(over),
            None => Err(AllocError::new(Cause::OutOfSlots, request.bytes)),
            Some(region) => self.clean(tenant, block.address, block.bytes).map(|()| region + tenant as u32),
        };
        match outcome {
            Ok(region) => {
                self.charge(tenant, 0, block.bytes);
                Ok(Block { region, ..block })
            }
            Err(error) => {
                // The free is never refused: the block is live, and the tenant does not have its handle.
                let _ = self.inner.free(block, request.owner);
                self.refused += 1;
                Err(error)
            }
        }
    }

    /// Zeroes a range if another tenant may have written it, and records this tenant as its user.
    fn clean(&mut self, tenant: usize, address: u64, bytes: u64) -> Result<(), AllocError> {
        if self.pages.foreign(tenant as u8, address, bytes) {
            let failed = |_| AllocError::new(Cause::SourceFailed, bytes);
            self.zero.zero(address, bytes).map_err(failed)?;
        }
        self.pages.claim(tenant as u8, address, bytes);
        Ok(())
    }

    /// The block's handle in the inner allocator, and the index of the block's tenant.
    fn inside(&self, block: Block) -> Result<(Block, usize), FreeError> {
        let tenant = block.region as usize % MOST;
        if tenant >= self.shares.len() {
            return Err(FreeError::Foreign { address: block.address });
        }
        Ok((Block { region: block.region / MOST as u32, ..block }, tenant))
    }
}

impl<A: Allocator, Z: ZeroFill> Allocator for Tenants<'_, A, Z> {
    /// Fails as the inner allocator does; also with [`Cause::OverLimit`] above the tenant's cap, at the cost of another
    /// tenant's guarantee, or for an owner without a share, and with [`Cause::SourceFailed`] when zeroing fails.
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let stranger = AllocError::new(Cause::OverLimit, request.bytes);
        let tenant = request.validate().and_then(|_| self.tenant(request.owner).ok_or(stranger));
        let tenant = tenant.inspect_err(|_| self.refused += 1)?;
        self.give(tenant, request)
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let (inside, tenant) = self.inside(block)?;
        if self.shares[tenant].owner != owner {
            return Err(FreeError::Foreign { address: block.address });
        }
        self.inner.free(inside, owner)?;
        self.charge(tenant, block.bytes, 0);
        Ok(())
    }

    /// Never grows a block: the new bytes may have another tenant's data, and a growth could not be undone if zeroing
    /// failed.
    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let (inside, tenant) = self.inside(block).map_err(|_| AllocError::new(Cause::NotLive, bytes))?;
        if bytes > block.bytes {
            return Err(AllocError::new(Cause::NoRoom, bytes));
        }
        let resized = self.inner.resize(inside, bytes)?;
        self.charge(tenant, block.bytes, resized.bytes);
        Ok(Block { region: block.region, ..resized })
    }

    fn trim(&mut self) -> u64 {
        self.inner.trim()
    }

    fn stats(&self) -> Stats {
        let inner = self.inner.stats();
        Stats { failed: inner.failed + self.refused, ..inner }
    }

    fn check(&self) -> Result<(), Violation> {
        let used = self.shares.iter().map(|share| share.used).sum::<u64>();
        ensure(used == self.used, "tenants: used = sum over the shares", used)?;
        ensure(used == self.inner.stats().in_use, "tenants: used = the inner in_use", used)?;
        let unmet = self.shares.iter().map(TenantShare::unmet).sum::<u64>();
        ensure(unmet == self.unmet, "tenants: unmet = sum of what each was promised and does not hold", unmet)?;
        for share in self.shares.iter() {
            ensure(share.used <= share.cap, "tenants: no share is above its cap", share.owner.0)?;
        }
        ensure(self.used.saturating_add(unmet) <= self.capacity, "tenants: used + unmet <= capacity", unmet)?;
        self.inner.check()
    }
}
