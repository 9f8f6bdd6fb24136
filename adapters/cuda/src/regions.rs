//! Memory that comes in whole regions, by kind.
//!
//! Promises upward: a region is there and usable when [`allocate`] returns, and a refused call holds nothing. Regions of the
//! driver's pool come and go in the order of a stream of our own, which is waited for before one is handed out: what the
//! caller does next, on any stream, comes later.
//! Asks from below: one function for each kind and direction.

use crate::context::{handle, number};
use crate::cuda::Cuda;
use crate::layouts;
use crate::library::missing_fault;
use crate::result_codes::{as_bad_handle, size};
use std::ptr::null_mut;
use terrace_device::{Fault, Kind, Reason, insist};

/// A region of a kind.
pub fn allocate(cuda: &Cuda, kind: Kind, bytes: u64) -> Result<u64, Fault> {
    match kind {
        Kind::Device => allocate_device(cuda, bytes),
        Kind::Pool => allocate_pooled(cuda, bytes),
        Kind::Pinned => allocate_pinned(cuda, bytes),
        Kind::Managed => allocate_managed(cuda, bytes),
    }
}

/// Gives a region back.
///
/// # Safety
/// [`allocate`] gave it for this kind, it is not given back yet, and no work uses it.
pub unsafe fn free(cuda: &Cuda, kind: Kind, address: u64) -> Result<(), Fault> {
    let done = match kind {
        Kind::Device | Kind::Managed => cuda.primary.call_relaxed("cuMemFree_v2", |core| {
            // SAFETY: the caller's promise.
            unsafe { (core.cuMemFree_v2)(address) }
        }),
        Kind::Pinned => cuda.primary.call_relaxed("cuMemFreeHost", |core| {
            // SAFETY: the caller's promise.
            unsafe { (core.cuMemFreeHost)(handle(address)) }
        }),
        Kind::Pool => {
            let pools = cuda.primary.functions.pools.as_ref().map_err(missing_fault)?;
            cuda.primary.call_relaxed("cuMemFreeAsync", |_| {
                // SAFETY: the caller's promise; the stream is ours.
                unsafe { (pools.cuMemFreeAsync)(address, handle(cuda.stream)) }
            })
        }
    };
    done.map_err(as_bad_handle)
}

/// Pins memory of the process where it is.
///
/// # Safety
/// It is memory of the process, and stays so until it is unregistered.
pub unsafe fn register(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let functions = cuda.primary.functions.registration.as_ref().map_err(missing_fault)?;
    let size = size("cuMemHostRegister_v2", bytes)?;
    cuda.primary.call_relaxed("cuMemHostRegister_v2", |_| {
        // SAFETY: the caller's promise.
        unsafe { (functions.cuMemHostRegister_v2)(handle(address), size, layouts::HOST_ALLOC_FLAGS) }
    })
}

/// Ends that.
///
/// # Safety
/// It was registered here, and no work uses it.
pub unsafe fn unregister(cuda: &Cuda, address: u64) -> Result<(), Fault> {
    let functions = cuda.primary.functions.registration.as_ref().map_err(missing_fault)?;
    let done = cuda.primary.call_relaxed("cuMemHostUnregister", |_| {
        // SAFETY: the caller's promise.
        unsafe { (functions.cuMemHostUnregister)(handle(address)) }
    });
    done.map_err(as_bad_handle)
}

fn allocate_device(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let size = size("cuMemAlloc_v2", bytes)?;
    let mut address = 0;
    cuda.primary.call_relaxed("cuMemAlloc_v2", |core| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (core.cuMemAlloc_v2)(&raw mut address, size) }
    })?;
    Ok(address)
}

fn allocate_pinned(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let size = size("cuMemHostAlloc", bytes)?;
    let mut address = null_mut();
    cuda.primary.call_relaxed("cuMemHostAlloc", |core| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (core.cuMemHostAlloc)(&raw mut address, size, layouts::HOST_ALLOC_FLAGS) }
    })?;
    Ok(number(address))
}

fn allocate_managed(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let functions = cuda.primary.functions.managed.as_ref().map_err(missing_fault)?;
    let size = size("cuMemAllocManaged", bytes)?;
    let mut address = 0;
    cuda.primary.call_relaxed("cuMemAllocManaged", |_| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (functions.cuMemAllocManaged)(&raw mut address, size, layouts::ATTACH_GLOBAL) }
    })?;
    Ok(address)
}

fn allocate_pooled(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    const CALL: &str = "cuMemAllocFromPoolAsync";
    let pools = cuda.primary.functions.pools.as_ref().map_err(missing_fault)?;
    let pool = cuda.pool.ok_or(Fault::of(CALL, Reason::Unsupported))?;
    let size = size(CALL, bytes)?;
    let mut address = 0;
    cuda.primary.call_relaxed(CALL, |_| {
        // SAFETY: the out parameter lives through the call; pool and stream are ours.
        unsafe { (pools.cuMemAllocFromPoolAsync)(&raw mut address, size, handle(pool), handle(cuda.stream)) }
    })?;
    synchronize(cuda).inspect_err(|_| {
        // SAFETY: taken above, and nobody knows of it. Where this is refused too, the device is lost.
        let _ = insist(|| unsafe { free(cuda, Kind::Pool, address) });
    })?;
    Ok(address)
}

/// Waits for our own stream.
pub fn synchronize(cuda: &Cuda) -> Result<(), Fault> {
    cuda.primary.call_relaxed("cuStreamSynchronize", |core| {
        // SAFETY: the stream is ours, and lives as long as `cuda`.
        unsafe { (core.cuStreamSynchronize)(handle(cuda.stream)) }
    })
}

/// Makes the driver's pool. It keeps what comes back: when memory goes to the system is decided above, by [`trim`].
pub fn create_pool(cuda: &Cuda) -> Result<u64, Fault> {
    let pools = cuda.primary.functions.pools.as_ref().map_err(missing_fault)?;
    let mut pool = null_mut();
    let properties = layouts::PoolProperties::on(cuda.primary.device);
    cuda.primary.call_relaxed("cuMemPoolCreate", |_| {
        // SAFETY: both live through the call.
        unsafe { (pools.cuMemPoolCreate)(&raw mut pool, &raw const properties) }
    })?;
    let mut threshold = u64::MAX;
    let set = cuda.primary.call_relaxed("cuMemPoolSetAttribute", |_| {
        // SAFETY: the pool was made above; this attribute is 64 bits, which live through the call.
        unsafe { (pools.cuMemPoolSetAttribute)(pool, layouts::POOL_RELEASE_THRESHOLD, (&raw mut threshold).cast()) }
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
pub fn grant_pool_access(cuda: &Cuda, pool: u64, peers: &[u32]) -> Result<(), Fault> {
    let pools = cuda.primary.functions.pools.as_ref().map_err(missing_fault)?;
    let accesses: Vec<_> = layouts::full_access(peers).collect();
    cuda.primary.call_relaxed("cuMemPoolSetAccess", |_| {
        // SAFETY: the pool is ours; the accesses live through the call.
        unsafe { (pools.cuMemPoolSetAccess)(handle(pool), accesses.as_ptr(), accesses.len()) }
    })
}

/// Ends a pool.
pub fn destroy_pool(cuda: &Cuda, pool: u64) {
    let Ok(pools) = &cuda.primary.functions.pools else { return };
    let _ = insist(|| {
        cuda.primary.call_relaxed("cuMemPoolDestroy", |_| {
            // SAFETY: made by `create_pool`, destroyed once: a refused call destroys nothing. Regions that are still out
            // stay good until they are given back.
            unsafe { (pools.cuMemPoolDestroy)(handle(pool)) }
        })
    });
}

/// Gives what the driver's pool keeps back to the system.
pub fn trim(cuda: &Cuda) -> Result<(), Fault> {
    let (Ok(pools), Some(pool)) = (&cuda.primary.functions.pools, cuda.pool) else { return Ok(()) };
    synchronize(cuda)?;
    cuda.primary.call_relaxed("cuMemPoolTrimTo", |_| {
        // SAFETY: the pool is ours.
        unsafe { (pools.cuMemPoolTrimTo)(handle(pool), 0) }
    })
}
