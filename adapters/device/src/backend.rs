//! What is asked of a device: memory, pages, streams, events, copies.
//!
//! Promises upward: everything above is written against this trait alone; a backend from elsewhere passes the same suite
//! (`terrace_tests::device`).
//! Asks from below: each call is one call of a driver, or a few; it never panics; a refused call changes nothing.
//!
//! A backend is a type parameter inside, so that no call that allocates goes through a table; users see
//! [`Device`](crate::Device), which hides it.

use crate::capability::{Description, Memory};
use crate::fault::{Fault, FaultReason};
pub use crate::handles::{CopyRange, MemoryKind, Page, RawEvent, RawStream};
use crate::hint::{Advice, PrefetchTarget};

const fn unsupported<T>(call: &'static str) -> Result<T, Fault> {
    Err(Fault::of(call, FaultReason::Unsupported))
}

/// A device and the driver that works it.
///
/// Every call may come from any thread. Addresses are the device's (unified with the host's where it has
/// [`Capabilities::MANAGED`](crate::Capabilities::MANAGED)). Where a default is given, it refuses: leave the capability
/// unset then.
///
/// Calls that take addresses are `unsafe`: the caller names memory that the backend gave, whole, within its bounds, and used
/// by no work in flight unless the call is ordered after that work. So are calls that take handles, all of which must be live
/// ([`RawStream`] says what that is).
///
/// # Safety
/// Buffers turn a backend's answers into slices, and safe programs read and write through them. So the trait itself is
/// `unsafe`, and an implementation promises:
///
/// - **Memory.** A region that [`take`](Backend::take) gives has the bytes asked for, starts at a multiple of 256, and
///   overlaps no other memory of the process or of the device until [`give_back`](Backend::give_back) took it back. So has a
///   space that [`reserve`](Backend::reserve) gives, and so do the bytes behind a mapped page.
/// - **The host's side.** Where [`PINNED`](crate::Capabilities::PINNED) is set, a region of [`MemoryKind::Pinned`] is memory that the
///   host may read and write at that address, its provenance exposed; where [`MANAGED`](crate::Capabilities::MANAGED) is set,
///   so is one of [`MemoryKind::Managed`] while no work of the device is in flight, or at any time where
///   [`CONCURRENT_MANAGED`](crate::Capabilities::CONCURRENT_MANAGED) is set.
/// - **Accesses.** Work touches the ranges it was given, and no other; a stream's work is done in the order it was put there.
/// - **Answers about streams and events are true.** `Ok` from [`wait`](Backend::wait) and `Ok(true)` from
///   [`query`](Backend::query) mean that everything on the stream before [`record`](Backend::record) is done, and will touch
///   no memory any more; `Ok` from [`synchronize_stream`](Backend::synchronize_stream) and
///   [`synchronize`](Backend::synchronize), and `Ok(true)` from [`is_idle`](Backend::is_idle), mean the same of everything on
///   the stream or device. After `Ok` from [`order`](Backend::order), later work of the stream begins when that event has
///   happened. An error means nothing of this: work may go on after it, also after one that says that the device is lost.
/// - **Synchronous backends.** Where [`SYNCHRONOUS`](crate::Capabilities::SYNCHRONOUS) is set, a copy or fill that returned,
///   `Ok` or not, touches no memory any more.
/// - **Pinning.** After `Ok` from [`unregister`](Backend::unregister), the device does not reach that memory any more.
/// - [`description`](Backend::description) always gives the same, and no call unwinds.
pub unsafe trait Backend: Send + Sync + 'static {
    /// What it is. Never changes.
    fn description(&self) -> &Description;

    /// Memory as of now.
    ///
    /// # Errors
    /// The driver's.
    fn memory(&self) -> Result<Memory, Fault>;

    /// A region of at least `bytes` bytes, whose address is a multiple of 256 at least.
    ///
    /// # Errors
    /// The driver's.
    fn take(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault>;

    /// Gives a region back.
    ///
    /// # Errors
    /// The driver's; the region is still out then.
    ///
    /// # Safety
    /// `address` and `bytes` are what [`take`](Backend::take) gave and was asked, not given back yet, and no work uses it.
    unsafe fn give_back(&self, kind: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault>;

    /// Gives back to the system what the driver keeps of regions that came back: its pool.
    ///
    /// # Errors
    /// The driver's.
    fn trim(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Reserves address space; nothing is behind it.
    ///
    /// # Errors
    /// The driver's.
    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        let _ = bytes;
        unsupported("reserve")
    }

    /// Gives address space back.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// It was reserved here, with this many bytes, and nothing is mapped in it.
    unsafe fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let _ = (address, bytes);
        unsupported("unreserve")
    }

    /// Takes one page of memory, mapped nowhere.
    ///
    /// # Errors
    /// The driver's.
    fn create_page(&self) -> Result<Page, Fault> {
        unsupported("create_page")
    }

    /// Gives a page back. Its memory is free once it is mapped nowhere.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The page is live, and no later call names it.
    unsafe fn release_page(&self, page: Page) -> Result<(), Fault> {
        let _ = page;
        unsupported("release_page")
    }

    /// Maps a page at an address. A page may be mapped in two places while it moves.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The address is a multiple of the page in space reserved here, and nothing is mapped there.
    unsafe fn map(&self, address: u64, page: Page) -> Result<(), Fault> {
        let _ = (address, page);
        unsupported("map")
    }

    /// Lets this device and those in `peers` (by ordinal) use mapped pages.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// All of the range is mapped.
    unsafe fn allow(&self, address: u64, bytes: u64, peers: &[u32]) -> Result<(), Fault> {
        let _ = (address, bytes, peers);
        unsupported("allow")
    }

    /// Takes the pages under a range away. They live on.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// All of the range is mapped, and no work in flight uses it.
    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let _ = (address, bytes);
        unsupported("unmap")
    }

    /// Makes a stream that does not wait for the default one.
    ///
    /// # Errors
    /// The driver's.
    fn create_stream(&self) -> Result<RawStream, Fault>;

    /// Destroys a stream. Work in flight on it is still done.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The stream is live, and no later call names it.
    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<(), Fault>;

    /// The driver's name for a stream, which it never uses twice; `None` where it has none.
    ///
    /// # Errors
    /// The driver's: of a stream that does not exist, [`FaultReason::BadHandle`].
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn stream_name(&self, stream: RawStream) -> Result<Option<u64>, Fault> {
        let _ = stream;
        Ok(None)
    }

    /// Whether everything put on a stream so far is done. The default does not know, and says no: an event is asked then.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn is_idle(&self, stream: RawStream) -> Result<bool, Fault> {
        let _ = stream;
        Ok(false)
    }

    /// Waits until everything on a stream is done.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault>;

    /// Waits until everything on the device is done.
    ///
    /// # Errors
    /// The driver's.
    fn synchronize(&self) -> Result<(), Fault>;

    /// Makes an event.
    ///
    /// # Errors
    /// The driver's.
    fn create_event(&self) -> Result<RawEvent, Fault>;

    /// Destroys an event.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The event is live, and no later call names it.
    unsafe fn destroy_event(&self, event: RawEvent) -> Result<(), Fault>;

    /// Lets the event happen when everything put on the stream so far is done.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Fault>;

    /// Whether a recorded event has happened.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The event is live.
    unsafe fn query(&self, event: RawEvent) -> Result<bool, Fault>;

    /// Waits until a recorded event has happened.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The event is live.
    unsafe fn wait(&self, event: RawEvent) -> Result<(), Fault>;

    /// Lets what is put on the stream from now on begin after a recorded event. Does not wait itself.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn order(&self, stream: RawStream, event: RawEvent) -> Result<(), Fault>;

    /// Whether a graph is captured on a stream: it cannot wait for what is not in the graph, and asking it to would spoil the
    /// capture. The default knows of no captures.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool, Fault> {
        let _ = stream;
        Ok(false)
    }

    /// Copies within the device, or between device and host where addresses are unified, in stream order.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// Both ranges lie in live memory, do not overlap, and stay alive until the stream is done; host memory is pinned, or
    /// the caller waits for the stream before it touches it.
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault>;

    /// Copies many ranges in stream order, with as few calls of the driver as it has for that. The default is a call for each.
    ///
    /// # Errors
    /// The driver's: some of the copies may have been put on the stream then.
    ///
    /// # Safety
    /// As for [`copy`](Backend::copy), for each; no target overlaps another range.
    unsafe fn copy_batch(&self, copies: &[CopyRange], stream: RawStream) -> Result<(), Fault> {
        copies.iter().try_for_each(|&CopyRange { to, from, bytes }| {
            // SAFETY: the caller's promise.
            unsafe { self.copy(to, from, bytes, stream) }
        })
    }

    /// The calling thread works for this device alone, until it ends: what every call would do around itself, such as making
    /// a context current, may be done now, once.
    ///
    /// # Errors
    /// The driver's.
    fn attach(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Copies from a device of the same backend to this one.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// As for [`copy`](Backend::copy).
    unsafe fn copy_peer(&self, to: u64, from: u64, of: u32, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let _ = (to, from, of, bytes, stream);
        unsupported("copy_peer")
    }

    /// Sets bytes to a value, in stream order.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// As for [`copy`](Backend::copy).
    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), Fault>;

    /// Prefetches managed memory to the side that uses it next, in stream order.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The range lies in a live managed region, which stays alive until the stream is done.
    unsafe fn prefetch(&self, address: u64, bytes: u64, to: PrefetchTarget, stream: RawStream) -> Result<(), Fault> {
        let _ = (address, bytes, to, stream);
        unsupported("prefetch")
    }

    /// Says how managed memory will be used, from now on.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The range lies in a live managed region.
    unsafe fn advise(&self, address: u64, bytes: u64, advice: Advice) -> Result<(), Fault> {
        let _ = (address, bytes, advice);
        unsupported("advise")
    }

    /// Pins memory of the process where it is, so that the device reaches it by the same address.
    ///
    /// # Errors
    /// The driver's: also for memory that is registered already.
    ///
    /// # Safety
    /// The range is memory of the process, and stays so until it is unregistered.
    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let _ = (address, bytes);
        unsupported("register")
    }

    /// Ends that, by the address that was registered.
    ///
    /// # Errors
    /// The driver's; the memory is still pinned then.
    ///
    /// # Safety
    /// It was registered here, and no work in flight uses it.
    unsafe fn unregister(&self, address: u64) -> Result<(), Fault> {
        let _ = address;
        unsupported("unregister")
    }

    /// Whether this device can use the memory of another of the same backend.
    ///
    /// # Errors
    /// The driver's.
    fn can_reach(&self, ordinal: u32) -> Result<bool, Fault> {
        let _ = ordinal;
        Ok(false)
    }

    /// Lets this device use the memory of another of the same backend. Doing it twice is no error.
    ///
    /// # Errors
    /// The driver's.
    fn reach(&self, ordinal: u32) -> Result<(), Fault> {
        let _ = ordinal;
        unsupported("reach")
    }
}
