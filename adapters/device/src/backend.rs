//! The driver interface that a device needs: memory, pages, streams, events, copies.
//!
//! Promises upward: all other code is written against the trait [`Backend`] alone; one of another crate passes the same tests (`terrace_tests::device`).
//! Asks from below: each method makes one driver call, or a few; it never panics; a refused call changes nothing.
//!
//! The pool takes its backend as a type parameter, so that no allocation goes through a vtable; `Device` hides it.

use crate::capability::{Description, Memory};
use crate::fault::{Fault, unsupported};
pub use crate::handles::{CopyRange, MemoryKind, MemoryPlace, PhysicalHandle, RawEvent, RawStream};
use crate::hint::{Advice, PrefetchTarget};

/// A device and the driver that works it.
///
/// Every method may be called from any thread. Addresses are the device's (one address space with the host's under
/// [`Capabilities::MANAGED`](crate::Capabilities::MANAGED)), or those of an [`ObjectSpace`](crate::ObjectSpace). A backend that
/// keeps a default which refuses must leave the method's capability unset.
///
/// Methods that take addresses are `unsafe`: the caller must pass ranges inside memory that this backend allocated,
/// and no work in flight may use them unless the call is ordered after that work. Methods that take handles are
/// `unsafe` too: all handles must be live ([`RawStream`] defines it).
///
/// # Safety
/// Buffers make slices of the memory that a backend returns, and safe programs read and write through them. So the
/// trait itself is `unsafe`, and an implementation promises:
///
/// - **Memory.** A region from [`take`](Backend::take) has the bytes asked for, starts at a multiple of 256, and
///   overlaps no other memory of the process or of the device until [`give_back`](Backend::give_back) freed it. The
///   same holds for address space from [`reserve`](Backend::reserve), and for the memory of a mapped handle.
/// - **Host access.** Where [`PINNED`](crate::Capabilities::PINNED) is set, the host may read and write a region of
///   [`MemoryKind::Pinned`] at its address, whose provenance is exposed. Where
///   [`MANAGED`](crate::Capabilities::MANAGED) is set, the same holds for [`MemoryKind::Managed`] while no work of the
///   device is in flight; where [`CONCURRENT_MANAGED`](crate::Capabilities::CONCURRENT_MANAGED) is set, at any time.
/// - **Accesses.** Work touches only the ranges passed to its call; a stream does its work in the order of the calls.
/// - **Answers about streams and events are true.** `Ok` from [`wait`](Backend::wait) and `Ok(true)` from
///   [`query`](Backend::query) mean that all work put on the stream before [`record`](Backend::record) is done, and
///   touches no memory any more; `Ok` from [`synchronize_stream`](Backend::synchronize_stream) and
///   [`synchronize`](Backend::synchronize), and `Ok(true)` from [`is_idle`](Backend::is_idle), mean the same of all
///   work on the stream or device. After `Ok` from [`order`](Backend::order), later work of the stream starts once the
///   event has completed. An error proves nothing, not even that the device is lost: work may go on after it.
/// - **Synchronous backends.** Where [`SYNCHRONOUS`](crate::Capabilities::SYNCHRONOUS) is set, a copy or fill touches
///   no memory any more once its call has returned, `Ok` or not.
/// - **Pinning.** After `Ok` from [`unregister`](Backend::unregister), the device does not access that memory any more.
/// - [`description`](Backend::description) always returns the same value, and no method unwinds.
pub unsafe trait Backend: Send + Sync + 'static {
    /// Describes the device. Every call returns the same description.
    fn description(&self) -> &Description;

    /// Free and total memory as of now.
    ///
    /// # Errors
    /// The driver's error.
    fn memory(&self) -> Result<Memory, Fault>;

    /// Allocates a region of at least `bytes` bytes, whose address is a multiple of 256 at least.
    ///
    /// # Errors
    /// The driver's error.
    fn take(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault>;

    /// Frees a region.
    ///
    /// # Errors
    /// The driver's error; the region is then still allocated.
    ///
    /// # Safety
    /// `address` must come from [`take`](Backend::take) for `bytes` bytes, not be freed yet, and be used by no work.
    unsafe fn give_back(&self, kind: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault>;

    /// Where the driver's own calls find an address: by default there.
    fn place(&self, address: u64) -> MemoryPlace {
        MemoryPlace { object: 0, offset: address }
    }

    /// The least granule of its blocks, to which a pool raises its own: a power of two of at most 2 MiB.
    fn least_granule(&self) -> u64 {
        1
    }

    /// Returns to the system the freed memory that the driver's own pool caches.
    ///
    /// # Errors
    /// The driver's error.
    fn trim(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Reserves address space, with no memory mapped in it.
    ///
    /// # Errors
    /// The driver's error.
    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        let _ = bytes;
        unsupported("reserve")
    }

    /// Releases reserved address space.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The range must have been reserved here, with this many bytes, and nothing may be mapped in it.
    unsafe fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let _ = (address, bytes);
        unsupported("unreserve")
    }

    /// Allocates physical memory of `bytes` bytes, whole pages, mapped nowhere.
    ///
    /// # Errors
    /// The driver's error.
    fn create_handle(&self, bytes: u64) -> Result<PhysicalHandle, Fault> {
        let _ = bytes;
        unsupported("create_handle")
    }

    /// Releases physical memory. It is freed once no address maps it.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The handle must be live; no later call may name it.
    unsafe fn release_handle(&self, handle: PhysicalHandle) -> Result<(), Fault> {
        let _ = handle;
        unsupported("release_handle")
    }

    /// Maps all memory of a handle at an address. It may be mapped at two addresses while it moves.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The handle must be live and have `bytes` bytes; the address must be a multiple of the page size in space reserved here, and
    /// nothing may be mapped in the range.
    unsafe fn map(&self, address: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Fault> {
        let _ = (address, bytes, handle);
        unsupported("map")
    }

    /// Lets this device and those in `peers` (by ordinal) access mapped memory, with one call for all of the range.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The range must be mapped, by whole handles.
    unsafe fn allow(&self, address: u64, bytes: u64, peers: &[u32]) -> Result<(), Fault> {
        let _ = (address, bytes, peers);
        unsupported("allow")
    }

    /// Unmaps the handles of a range. Their memory stays allocated.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The range must be mapped, by whole handles, and no work in flight may use it.
    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let _ = (address, bytes);
        unsupported("unmap")
    }

    /// Creates a stream that does not synchronise with the driver's default stream.
    ///
    /// # Errors
    /// The driver's error.
    fn create_stream(&self) -> Result<RawStream, Fault>;

    /// Destroys a stream. Work in flight on it still completes.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The stream must be live; no later call may name it.
    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<(), Fault>;

    /// A stream's id, which the driver never reuses; `None` where the driver has no such ids.
    ///
    /// # Errors
    /// The driver's error: [`FaultReason::BadHandle`](crate::FaultReason::BadHandle) for a stream that does not exist.
    ///
    /// # Safety
    /// The stream must be live.
    unsafe fn stream_name(&self, stream: RawStream) -> Result<Option<u64>, Fault> {
        let _ = stream;
        Ok(None)
    }

    /// Whether all work put on a stream is done. By default `false`: the caller then queries an event.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The stream must be live.
    unsafe fn is_idle(&self, stream: RawStream) -> Result<bool, Fault> {
        let _ = stream;
        Ok(false)
    }

    /// Waits until all work on a stream is done.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The stream must be live.
    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault>;

    /// Waits until all work on the device is done.
    ///
    /// # Errors
    /// The driver's error.
    fn synchronize(&self) -> Result<(), Fault>;

    /// Creates an event.
    ///
    /// # Errors
    /// The driver's error.
    fn create_event(&self) -> Result<RawEvent, Fault>;

    /// Destroys an event.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The event must be live; no later call may name it.
    unsafe fn destroy_event(&self, event: RawEvent) -> Result<(), Fault>;

    /// Records an event: it completes when all work put on the stream so far is done.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The event and the stream must be live.
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Fault>;

    /// Whether a recorded event has completed.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The event must be live.
    unsafe fn query(&self, event: RawEvent) -> Result<bool, Fault>;

    /// Waits until a recorded event has completed.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The event must be live.
    unsafe fn wait(&self, event: RawEvent) -> Result<(), Fault>;

    /// Makes later work of the stream start after a recorded event has completed; the thread does not wait.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The event and the stream must be live.
    unsafe fn order(&self, stream: RawStream, event: RawEvent) -> Result<(), Fault>;

    /// Whether a graph is being captured on a stream, which then cannot wait for work outside. By default `false`.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The stream must be live.
    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool, Fault> {
        let _ = stream;
        Ok(false)
    }

    /// Copies within the device, or between device and host where addresses are unified, in stream order.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// Both ranges must lie in live memory, not overlap, and stay allocated until the stream is done; host memory must be pinned,
    /// or the caller must wait for the stream before touching it.
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault>;

    /// Copies many ranges in stream order, by as few calls as possible; by default one for each range.
    ///
    /// # Errors
    /// The driver's error; some of the copies may have been put on the stream.
    ///
    /// # Safety
    /// As for [`copy`](Backend::copy), for each range; no target may overlap another range.
    unsafe fn copy_batch(&self, copies: &[CopyRange], stream: RawStream) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        copies.iter().try_for_each(|&CopyRange { to, from, bytes }| unsafe { self.copy(to, from, bytes, stream) })
    }

    /// Binds the calling thread to this device until it ends: what each call would set up is done once.
    ///
    /// # Errors
    /// The driver's error.
    fn attach(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Copies to this device from the one of the same backend whose ordinal is `of`.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// As for [`copy`](Backend::copy).
    unsafe fn copy_peer(&self, to: u64, from: u64, of: u32, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let _ = (to, from, of, bytes, stream);
        unsupported("copy_peer")
    }

    /// Sets each byte of a range to a value, in stream order.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// As for [`copy`](Backend::copy).
    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), Fault>;

    /// Prefetches managed memory to the processor that uses it next, in stream order.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The range must lie in a live managed region, which must stay allocated until the stream is done.
    unsafe fn prefetch(&self, address: u64, bytes: u64, to: PrefetchTarget, stream: RawStream) -> Result<(), Fault> {
        let _ = (address, bytes, to, stream);
        unsupported("prefetch")
    }

    /// Advises the driver how managed memory will be used from now on.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The range must lie in a live managed region.
    unsafe fn advise(&self, address: u64, bytes: u64, advice: Advice) -> Result<(), Fault> {
        let _ = (address, bytes, advice);
        unsupported("advise")
    }

    /// Pins memory of the process in place, so that the device can access it at the same address.
    ///
    /// # Errors
    /// The driver's error, also for memory that is registered already.
    ///
    /// # Safety
    /// The range must be memory of the process until it is unregistered.
    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let _ = (address, bytes);
        unsupported("register")
    }

    /// Unpins the memory that [`register`](Backend::register) pinned at this address.
    ///
    /// # Errors
    /// The driver's error; the memory is then still pinned.
    ///
    /// # Safety
    /// The memory must have been registered here, and no work in flight may use it.
    unsafe fn unregister(&self, address: u64) -> Result<(), Fault> {
        let _ = address;
        unsupported("unregister")
    }

    /// Whether this device can access the memory of another device of the same backend.
    ///
    /// # Errors
    /// The driver's error.
    fn can_reach(&self, ordinal: u32) -> Result<bool, Fault> {
        let _ = ordinal;
        Ok(false)
    }

    /// Lets this device access the memory of another device of the same backend. Repeating the call is no error.
    ///
    /// # Errors
    /// The driver's error.
    fn reach(&self, ordinal: u32) -> Result<(), Fault> {
        let _ = ordinal;
        unsupported("reach")
    }
}
