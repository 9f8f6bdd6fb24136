//! Allocation of whole regions: device, pooled, pinned and managed memory.
//!
//! Promises upward: a region is usable on any stream once [`allocate`] returns; a refused call leaves nothing
//! allocated. The driver's pool allocates and frees in the order of a stream, for which this crate uses one of its own:
//! [`allocate`] waits for that stream, so work that the caller queues afterwards on any stream runs after the
//! allocation.
//! Asks from below: for each kind of memory, one function of the driver to allocate and one to free.

use crate::context::{handle, number};
use crate::cuda::Cuda;
use crate::layouts;
use crate::library::missing_fault;
use crate::result_codes::{as_bad_handle, size};
use std::ptr::null_mut;
use terrace_device::{Fault, FaultReason, MemoryKind, insist};

/// Allocates a region of a kind.
pub fn allocate(cuda: &Cuda, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
    match kind {
        MemoryKind::Device => allocate_device(cuda, bytes),
        MemoryKind::Pool => allocate_pooled(cuda, bytes),
        MemoryKind::Pinned => allocate_pinned(cuda, bytes),
        MemoryKind::Managed => allocate_managed(cuda, bytes),
    }
}

/// Frees a region that [`allocate`] returned.
///
/// # Safety
/// [`allocate`] must have returned the region for this kind, it must not be freed yet, and no queued work may use it.
pub unsafe fn free(cuda: &Cuda, kind: MemoryKind, address: u64) -> Result<(), Fault> {
    let done = match kind {
        MemoryKind::Device | MemoryKind::Managed => cuda.primary.call_relaxed("cuMemFree_v2", |core| {
            // SAFETY: the caller promises a live, unused region of this kind.
            unsafe { (core.cuMemFree_v2)(address) }
        }),
        MemoryKind::Pinned => cuda.primary.call_relaxed("cuMemFreeHost", |core| {
            // SAFETY: the caller promises a live, unused region of this kind.
            unsafe { (core.cuMemFreeHost)(handle(address)) }
        }),
        MemoryKind::Pool => {
            let pools = cuda.primary.functions.pools.as_ref().map_err(missing_fault)?;
            cuda.primary.call_relaxed("cuMemFreeAsync", |_| {
                // SAFETY: the caller promises a live, unused region of this kind; the stream is our own.
                unsafe { (pools.cuMemFreeAsync)(address, handle(cuda.stream)) }
            })
        }
    };
    done.map_err(as_bad_handle)
}

/// Pins host memory that the program allocated.
///
/// # Safety
/// The range must be memory of this process and must stay mapped until it is unregistered.
pub unsafe fn register(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let functions = cuda.primary.functions.registration.as_ref().map_err(missing_fault)?;
    let size = size("cuMemHostRegister_v2", bytes)?;
    cuda.primary.call_relaxed("cuMemHostRegister_v2", |_| {
        // SAFETY: the caller promises mapped memory of this process.
        unsafe { (functions.cuMemHostRegister_v2)(handle(address), size, layouts::HOST_ALLOC_FLAGS) }
    })
}

/// Unpins memory that [`register`] pinned.
///
/// # Safety
/// [`register`] must have pinned the address, and no queued work may use it.
pub unsafe fn unregister(cuda: &Cuda, address: u64) -> Result<(), Fault> {
    let functions = cuda.primary.functions.registration.as_ref().map_err(missing_fault)?;
    let done = cuda.primary.call_relaxed("cuMemHostUnregister", |_| {
        // SAFETY: the caller promises registered memory that no work uses.
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
    let pool = cuda.pool.ok_or_else(|| cuda.primary.fault(CALL, FaultReason::Unsupported))?;
    let size = size(CALL, bytes)?;
    let mut address = 0;
    cuda.primary.call_relaxed(CALL, |_| {
        // SAFETY: the out parameter lives through the call; pool and stream are our own and live.
        unsafe { (pools.cuMemAllocFromPoolAsync)(&raw mut address, size, handle(pool), handle(cuda.stream)) }
    })?;
    synchronize(cuda).inspect_err(|_| {
        // SAFETY: allocated above and not handed out yet. If the free is refused too, the region leaks.
        let _ = insist(|| unsafe { free(cuda, MemoryKind::Pool, address) });
    })?;
    Ok(address)
}

/// Waits until the stream that `cuda` owns is idle.
pub fn synchronize(cuda: &Cuda) -> Result<(), Fault> {
    cuda.primary.call_relaxed("cuStreamSynchronize", |core| {
        // SAFETY: our own stream, which lives as long as `cuda`.
        unsafe { (core.cuStreamSynchronize)(handle(cuda.stream)) }
    })
}

/// Creates the driver's pool, which retains all freed memory until [`trim`] releases it.
pub fn create_pool(cuda: &Cuda) -> Result<u64, Fault> {
    let pools = cuda.primary.functions.pools.as_ref().map_err(missing_fault)?;
    let mut pool = null_mut();
    let properties = layouts::PoolProperties::on(cuda.primary.device);
    cuda.primary.call_relaxed("cuMemPoolCreate", |_| {
        // SAFETY: out parameter and properties live through the call.
        unsafe { (pools.cuMemPoolCreate)(&raw mut pool, &raw const properties) }
    })?;
    let mut threshold = u64::MAX;
    let set = cuda.primary.call_relaxed("cuMemPoolSetAttribute", |_| {
        // SAFETY: the pool was created above; the attribute is a `u64`, which lives through the call.
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

/// Grants `peers` access to all memory of a pool.
///
/// Needed because `cuCtxEnablePeerAccess` does not cover memory of pools.
pub fn grant_pool_access(cuda: &Cuda, pool: u64, peers: &[u32]) -> Result<(), Fault> {
    let pools = cuda.primary.functions.pools.as_ref().map_err(missing_fault)?;
    let accesses: Vec<_> = layouts::full_access(peers).collect();
    cuda.primary.call_relaxed("cuMemPoolSetAccess", |_| {
        // SAFETY: our own live pool; the descriptors live through the call.
        unsafe { (pools.cuMemPoolSetAccess)(handle(pool), accesses.as_ptr(), accesses.len()) }
    })
}

/// Destroys a pool made by [`create_pool`].
pub fn destroy_pool(cuda: &Cuda, pool: u64) {
    let Ok(pools) = &cuda.primary.functions.pools else { return };
    let _ = insist(|| {
        cuda.primary.call_relaxed("cuMemPoolDestroy", |_| {
            // SAFETY: made by `create_pool` and destroyed once, since a refused call destroys nothing. The driver defers the
            // destruction until all regions are freed.
            unsafe { (pools.cuMemPoolDestroy)(handle(pool)) }
        })
    });
}

/// Releases the unused memory of the driver's pool to the system.
pub fn trim(cuda: &Cuda) -> Result<(), Fault> {
    let (Ok(pools), Some(pool)) = (&cuda.primary.functions.pools, cuda.pool) else { return Ok(()) };
    synchronize(cuda)?;
    cuda.primary.call_relaxed("cuMemPoolTrimTo", |_| {
        // SAFETY: our own live pool.
        unsafe { (pools.cuMemPoolTrimTo)(handle(pool), 0) }
    })
}
