//! Memory that comes in whole regions, by kind.
//!
//! Promises upward: a region is there and usable when [`take`] returns, and a refused call holds nothing. Regions of the
//! driver's pool come and go in the order of a stream of our own, which is waited for before one is handed out: what the
//! caller does next, on any stream, comes later.
//! Asks from below: one function for each kind and direction.

use crate::codes::{of_handle, size};
use crate::cuda::Cuda;
use crate::layouts;
use crate::library::absent;
use crate::primary::{handle, number};
use std::ptr::null_mut;
use terrace_device::{Fault, FaultReason, MemoryKind, insist};

/// A region of a kind.
pub fn take(cuda: &Cuda, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
    match kind {
        MemoryKind::Device => device(cuda, bytes),
        MemoryKind::Pool => pooled(cuda, bytes),
        MemoryKind::Pinned => pinned(cuda, bytes),
        MemoryKind::Managed => managed(cuda, bytes),
    }
}

/// Gives a region back.
///
/// # Safety
/// [`take`] gave it for this kind, it is not given back yet, and no work uses it.
pub unsafe fn give_back(cuda: &Cuda, kind: MemoryKind, address: u64) -> Result<(), Fault> {
    let done = match kind {
        MemoryKind::Device | MemoryKind::Managed => cuda.primary.relaxed("cuMemFree_v2", |core| {
            // SAFETY: the caller's promise.
            unsafe { (core.cuMemFree_v2)(address) }
        }),
        MemoryKind::Pinned => cuda.primary.relaxed("cuMemFreeHost", |core| {
            // SAFETY: the caller's promise.
            unsafe { (core.cuMemFreeHost)(handle(address)) }
        }),
        MemoryKind::Pool => {
            let pools = cuda.primary.functions.pools.as_ref().map_err(absent)?;
            cuda.primary.relaxed("cuMemFreeAsync", |_| {
                // SAFETY: the caller's promise; the stream is ours.
                unsafe { (pools.cuMemFreeAsync)(address, handle(cuda.stream)) }
            })
        }
    };
    done.map_err(of_handle)
}

/// Pins memory of the process where it is.
///
/// # Safety
/// It is memory of the process, and stays so until it is unregistered.
pub unsafe fn register(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let functions = cuda.primary.functions.registration.as_ref().map_err(absent)?;
    let size = size("cuMemHostRegister_v2", bytes)?;
    cuda.primary.relaxed("cuMemHostRegister_v2", |_| {
        // SAFETY: the caller's promise.
        unsafe { (functions.cuMemHostRegister_v2)(handle(address), size, layouts::PINNED) }
    })
}

/// Ends that.
///
/// # Safety
/// It was registered here, and no work uses it.
pub unsafe fn unregister(cuda: &Cuda, address: u64) -> Result<(), Fault> {
    let functions = cuda.primary.functions.registration.as_ref().map_err(absent)?;
    let done = cuda.primary.relaxed("cuMemHostUnregister", |_| {
        // SAFETY: the caller's promise.
        unsafe { (functions.cuMemHostUnregister)(handle(address)) }
    });
    done.map_err(of_handle)
}

fn device(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let size = size("cuMemAlloc_v2", bytes)?;
    let mut address = 0;
    cuda.primary.relaxed("cuMemAlloc_v2", |core| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (core.cuMemAlloc_v2)(&raw mut address, size) }
    })?;
    Ok(address)
}

fn pinned(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let size = size("cuMemHostAlloc", bytes)?;
    let mut address = null_mut();
    cuda.primary.relaxed("cuMemHostAlloc", |core| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (core.cuMemHostAlloc)(&raw mut address, size, layouts::PINNED) }
    })?;
    Ok(number(address))
}

fn managed(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let functions = cuda.primary.functions.managed.as_ref().map_err(absent)?;
    let size = size("cuMemAllocManaged", bytes)?;
    let mut address = 0;
    cuda.primary.relaxed("cuMemAllocManaged", |_| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (functions.cuMemAllocManaged)(&raw mut address, size, layouts::MANAGED) }
    })?;
    Ok(address)
}

fn pooled(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    const CALL: &str = "cuMemAllocFromPoolAsync";
    let pools = cuda.primary.functions.pools.as_ref().map_err(absent)?;
    let pool = cuda.pool.ok_or(Fault::of(CALL, FaultReason::Unsupported))?;
    let size = size(CALL, bytes)?;
    let mut address = 0;
    cuda.primary.relaxed(CALL, |_| {
        // SAFETY: the out parameter lives through the call; pool and stream are ours.
        unsafe { (pools.cuMemAllocFromPoolAsync)(&raw mut address, size, handle(pool), handle(cuda.stream)) }
    })?;
    settle(cuda).inspect_err(|_| {
        // SAFETY: taken above, and nobody knows of it. Where this is refused too, the device is lost.
        let _ = insist(|| unsafe { give_back(cuda, MemoryKind::Pool, address) });
    })?;
    Ok(address)
}

/// Waits for our own stream.
pub fn settle(cuda: &Cuda) -> Result<(), Fault> {
    cuda.primary.relaxed("cuStreamSynchronize", |core| {
        // SAFETY: the stream is ours, and lives as long as `cuda`.
        unsafe { (core.cuStreamSynchronize)(handle(cuda.stream)) }
    })
}

/// Makes the driver's pool. It keeps what comes back: when memory goes to the system is decided above, by [`trim`].
pub fn create_pool(cuda: &Cuda) -> Result<u64, Fault> {
    let pools = cuda.primary.functions.pools.as_ref().map_err(absent)?;
    let mut pool = null_mut();
    let properties = layouts::PoolProperties::on(cuda.primary.device);
    cuda.primary.relaxed("cuMemPoolCreate", |_| {
        // SAFETY: both live through the call.
        unsafe { (pools.cuMemPoolCreate)(&raw mut pool, &raw const properties) }
    })?;
    let mut keeps = u64::MAX;
    let set = cuda.primary.relaxed("cuMemPoolSetAttribute", |_| {
        // SAFETY: the pool was made above; this attribute is 64 bits, which live through the call.
        unsafe { (pools.cuMemPoolSetAttribute)(pool, layouts::POOL_KEEPS, (&raw mut keeps).cast()) }
    });
    match set {
        Ok(()) => Ok(number(pool)),
        Err(fault) => {
            destroy_pool(cuda, number(pool));
            Err(fault)
        }
    }
}

/// Lets `peers` use whatever comes from a pool: to enable a peer's access does not open it, as it opens other memory.
pub fn open_pool(cuda: &Cuda, pool: u64, peers: &[u32]) -> Result<(), Fault> {
    let pools = cuda.primary.functions.pools.as_ref().map_err(absent)?;
    let accesses: Vec<_> = layouts::accesses(peers).collect();
    cuda.primary.relaxed("cuMemPoolSetAccess", |_| {
        // SAFETY: the pool is ours; the accesses live through the call.
        unsafe { (pools.cuMemPoolSetAccess)(handle(pool), accesses.as_ptr(), accesses.len()) }
    })
}

/// Ends a pool.
pub fn destroy_pool(cuda: &Cuda, pool: u64) {
    let Ok(pools) = &cuda.primary.functions.pools else { return };
    let _ = insist(|| {
        cuda.primary.relaxed("cuMemPoolDestroy", |_| {
            // SAFETY: made by `create_pool`, destroyed once: a refused call destroys nothing. Regions that are still out
            // stay good until they are given back.
            unsafe { (pools.cuMemPoolDestroy)(handle(pool)) }
        })
    });
}

/// Gives what the driver's pool keeps back to the system.
pub fn trim(cuda: &Cuda) -> Result<(), Fault> {
    let (Ok(pools), Some(pool)) = (&cuda.primary.functions.pools, cuda.pool) else { return Ok(()) };
    settle(cuda)?;
    cuda.primary.relaxed("cuMemPoolTrimTo", |_| {
        // SAFETY: the pool is ours.
        unsafe { (pools.cuMemPoolTrimTo)(handle(pool), 0) }
    })
}
