//! Blocks: device memory that is freed on drop, and reused once the streams that used it are done.
//!
//! Promises upward: a block may be used on its home stream at any time, on another stream after
//! [`DeviceBlock::used_on`] (the copies here order or record the streams themselves); dropping a block never waits,
//! never panics, and its memory is not reused before the recorded streams are done with it.
//! Asks from below: the cache of the home stream, and the pool behind that cache.

mod free;

pub(crate) use free::free_all;

use crate::backend::{MemoryPlace, RawStream};
use crate::capability::Capabilities;
use crate::error::{BlockId, DeviceError};
use crate::hint::{Advice, Hint, PrefetchTarget};
use crate::stream::{BlockExtra, BlockOrigin, HostMemory, HostSlice, NO_ROUTE, Release, Service, Stream, StreamCore};
use crate::tracking::StampedBlock;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use terrace_core::{Block, Request};

/// Live memory of a device. Dropping the block frees it.
// The block comes first, so that its address is no sum: an instruction less at each free with the feature `track`.
#[repr(C)]
pub struct DeviceBlock {
    block: StampedBlock,
    /// Moved out when the block is dropped, and never accessed after that.
    home: ManuallyDrop<Arc<StreamCore>>,
    /// Moved out on drop, as `home`. Empty for a block of the pool's arena that only its home stream uses.
    extra: ManuallyDrop<OnceLock<Box<BlockExtra>>>,
}

impl DeviceBlock {
    /// Wraps a block of the pool's arena.
    #[inline]
    pub(crate) fn new(block: Block, asked: Request, home: Arc<StreamCore>) -> Self {
        let block = StampedBlock::allocated(block, asked, BlockOrigin::Pool, &home);
        Self { block, home: ManuallyDrop::new(home), extra: ManuallyDrop::new(OnceLock::new()) }
    }

    /// Wraps a block from anywhere else: `extra` says where it came from.
    pub(crate) fn with(block: Block, asked: Request, home: Arc<StreamCore>, extra: BlockExtra) -> Self {
        let block = StampedBlock::allocated(block, asked, extra.place, &home);
        let extra = OnceLock::from(Box::new(extra));
        Self { block, home: ManuallyDrop::new(home), extra: ManuallyDrop::new(extra) }
    }

    /// Wraps a block that the pool served from an origin.
    pub(crate) fn served((block, origin): (Block, BlockOrigin), asked: Request, home: Arc<StreamCore>) -> Self {
        match origin {
            BlockOrigin::Pool => Self::new(block, asked, home),
            origin => Self::with(block, asked, home, BlockExtra::new(origin)),
        }
    }

    fn origin(&self) -> BlockOrigin {
        self.extra.get().map_or(BlockOrigin::Pool, |extra| extra.place)
    }

    /// The block's address, in the device's address space. It never changes.
    #[inline]
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// Where calls of the driver find the block.
    ///
    /// That is an object and an offset where a driver's memory comes in objects, else the address.
    pub fn place(&self) -> MemoryPlace {
        self.home.service.backend().place(self.address())
    }

    /// Size in bytes: at least the size that was requested.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.block.bytes()
    }

    /// Address and size, by which errors name the block.
    pub fn id(&self) -> BlockId {
        BlockId { address: self.block.address(), bytes: self.block.bytes() }
    }

    /// Whether the block is pinned host memory, allocated because the device was full.
    pub fn is_fallback(&self) -> bool {
        self.origin() == BlockOrigin::Host(HostMemory::Fallback)
    }

    /// Whether the block is pinned host memory, as a fallback or on request.
    fn on_host(&self) -> bool {
        matches!(self.origin(), BlockOrigin::Host(HostMemory::Fallback | HostMemory::Pinned))
    }

    /// Whether the block wraps memory that the pool did not allocate.
    pub fn is_foreign(&self) -> bool {
        self.origin() == BlockOrigin::Foreign
    }

    /// Records that work on another stream uses the block.
    ///
    /// After the block is dropped, its memory is not reused before that stream has done all work put on it until the
    /// drop.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`].
    pub fn used_on(&self, stream: &Stream) -> Result<(), DeviceError> {
        let home = &self.home;
        home.at_home()?;
        home.service.check_stream(stream.core())?;
        if home.owner != stream.core().owner {
            self.note(stream.core());
        }
        Ok(())
    }

    /// Makes stream `to` wait for the block's home stream, and records that `to` uses the block.
    ///
    /// Later work of `to` starts after all work put on the home stream so far; the memory is not reused before both
    /// streams are done with it, as for [`DeviceBlock::used_on`].
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; the driver's error.
    pub fn lend(&self, to: &Stream) -> Result<(), DeviceError> {
        self.used_on(to)?;
        let (home, other) = (&self.home, to.core());
        if home.owner == other.owner { Ok(()) } else { home.service.order(other.raw, home.raw) }
    }

    /// Ends a [`lend`](Self::lend): makes the block's home stream wait for stream `from`.
    ///
    /// Later work of the home stream starts after all work put on `from` so far.
    ///
    /// # Errors
    /// As for [`DeviceBlock::lend`].
    pub fn reclaim(&self, from: &Stream) -> Result<(), DeviceError> {
        let (home, other) = (&self.home, from.core());
        home.service.check_stream(other)?;
        if home.owner == other.owner { Ok(()) } else { home.service.order(home.raw, other.raw) }
    }

    /// Fails while a graph is captured on the home stream: waiting for that stream would invalidate the capture.
    pub(crate) fn not_captured(&self) -> Result<(), DeviceError> {
        let rule =
            "bytes are read and written by waiting, which a captured stream may not; copy on the device, or later";
        if self.home.route() == NO_ROUTE { Ok(()) } else { Err(DeviceError::Capture(rule)) }
    }

    /// Adds a stream to those that use the block.
    fn note(&self, stream: &Arc<StreamCore>) {
        let mut uses = self.extra.get_or_init(|| Box::new(BlockExtra::new(BlockOrigin::Pool))).uses.lock();
        if uses.iter().all(|other| other.owner != stream.owner) {
            uses.push(Arc::clone(stream));
        }
    }

    /// The address at which a range of the block starts; fails if the range leaves the block.
    fn within(&self, offset: u64, bytes: u64) -> Result<u64, DeviceError> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        if inside {
            Ok(self.address() + offset)
        } else {
            Err(DeviceError::OutOfBounds { block: self.id(), offset, bytes })
        }
    }

    /// Copies bytes from the host to the block, on the block's stream, and waits for the copy.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error, after which the bytes in the range are undefined.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write_shared(offset, bytes)
    }

    /// As [`Self::write`]. Caller must have exclusive access to the written range.
    pub(crate) fn write_shared(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let to = self.within(offset, bytes.len() as u64)?;
        self.not_captured()?;
        self.home.service.copy_host(HostSlice::Read(bytes), to, self.home.raw)
    }

    /// Copies bytes of the block to the host, after earlier work of the block's stream, and waits.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error, after which `bytes` are undefined.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let from = self.within(offset, bytes.len() as u64)?;
        self.not_captured()?;
        self.home.service.copy_host(HostSlice::Write(bytes), from, self.home.raw)
    }

    /// Sets each byte of a range to a value, on the block's stream; does not wait.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error.
    pub fn fill(&mut self, offset: u64, bytes: u64, value: u8) -> Result<(), DeviceError> {
        self.fill_shared(offset, bytes, value)
    }

    /// As [`Self::fill`]. Caller must have exclusive access to the filled range.
    pub(crate) fn fill_shared(&self, offset: u64, bytes: u64, value: u8) -> Result<(), DeviceError> {
        let at = self.within(offset, bytes)?;
        self.home.service.fill(at, value, bytes, self.home.raw)
    }

    /// Copies between two ranges of the block that must not overlap. Caller must have exclusive access to both.
    pub(crate) fn copy_within(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        let (target, source) = (self.within(to, bytes)?, self.within(from, bytes)?);
        if to.abs_diff(from) < bytes {
            return Err(DeviceError::OutOfBounds { block: self.id(), offset: to, bytes });
        }
        self.home.service.copy(target, source, bytes, self.home.raw)
    }

    /// Copies a range of another block, of this or another device, in the order of both blocks' streams.
    ///
    /// The copy runs on this block's stream, after all work put on the other block's stream so far and before later
    /// work there. Returns the path that the bytes took.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the drivers' errors.
    pub fn copy_from(&mut self, offset: u64, from: &Self, at: u64, bytes: u64) -> Result<Path, DeviceError> {
        self.copy_shared(offset, from, at, bytes)
    }

    /// As [`Self::copy_from`]. Caller must have exclusive access to the target range.
    pub(crate) fn copy_shared(&self, offset: u64, from: &Self, at: u64, bytes: u64) -> Result<Path, DeviceError> {
        let (to, source) = (self.within(offset, bytes)?, from.within(at, bytes)?);
        let (home, other) = (&self.home, &from.home);
        if home.service.is(&*other.service) {
            let apart = home.owner != other.owner;
            if !apart {
                return home.service.copy(to, source, bytes, home.raw).map(|()| Path::Local);
            }
            home.service.order(home.raw, other.raw)?;
            let copied = home.service.copy(to, source, bytes, home.raw);
            let ordered = copied.and_then(|()| home.service.order(other.raw, home.raw));
            // The copy may be in flight, and the source's stream does not wait for it: record that this stream uses the
            // source.
            return ordered.inspect_err(|_| from.note(home)).map(|()| Path::Local);
        }
        // A peer copy goes between two devices' own memory: pinned host memory belongs to no device.
        let direct = !self.on_host()
            && !from.on_host()
            && home.service.description().backend == other.service.description().backend
            && home.service.can_reach(other.service.description().ordinal);
        // No event orders streams of two devices: the calling thread waits for the source's stream.
        other.service.synchronize_stream(other.raw)?;
        if direct {
            home.service.copy_peer(to, source, other.service.description().ordinal, bytes, home.raw)?;
            return Ok(Path::Peer);
        }
        self.copy_staged(offset, from, at, bytes).map(|()| Path::Staged)
    }

    /// Copies through host memory, one piece at a time.
    fn copy_staged(&self, offset: u64, from: &Self, at: u64, bytes: u64) -> Result<(), DeviceError> {
        /// Bytes per piece: large enough that a copy's fixed cost (10 microseconds) is a few percent of its time at 25
        /// GB/s.
        const PIECE: u64 = 4 << 20;
        let mut stage = vec![0; bytes.min(PIECE) as usize];
        for start in (0..bytes).step_by(PIECE as usize) {
            let piece = &mut stage[..(bytes - start).min(PIECE) as usize];
            from.read(at + start, piece)?;
            self.write_shared(offset + start, piece)?;
        }
        Ok(())
    }

    /// Copies between this block and a pinned one, on this block's stream; does not wait. Once dropped, the pinned
    /// block's memory is not reused before that stream is done.
    pub(crate) fn copy_pinned(&self, pinned: &Self, bytes: u64, to_device: bool) -> Result<(), DeviceError> {
        let (here, there) = (self.within(0, bytes)?, pinned.within(0, bytes)?);
        let home = &self.home;
        if !home.service.is(&*pinned.home.service) {
            let (of, asked) = (pinned.home.service.description(), home.service.description());
            let (of, asked) = (of.name.clone(), asked.name.clone());
            return Err(DeviceError::OtherDevice { block: Some(pinned.id()), of, asked });
        }
        if home.owner != pinned.home.owner {
            pinned.note(home);
        }
        let (to, from) = if to_device { (here, there) } else { (there, here) };
        home.service.copy(to, from, bytes, home.raw)
    }

    /// Waits until the host may access the block's managed memory: for all streams recorded as its users, or for the
    /// whole device where host and device must not access managed memory at the same time.
    pub(crate) fn host_turn(&self) -> Result<(), DeviceError> {
        let service = &self.home.service;
        if !service.description().capabilities.contains(Capabilities::CONCURRENT_MANAGED) {
            return service.synchronize();
        }
        self.finish()
    }

    /// Prefetches a range of managed memory to the processor that uses it next, on the block's stream.
    pub(crate) fn prefetch(&self, offset: u64, bytes: u64, to: PrefetchTarget) -> Result<Hint, DeviceError> {
        let at = self.within(offset, bytes)?;
        self.home.service.prefetch(at, bytes, to, self.home.raw)
    }

    /// Advises the driver how a range of managed memory will be used.
    pub(crate) fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<Hint, DeviceError> {
        let at = self.within(offset, bytes)?;
        self.home.service.advise(at, bytes, advice)
    }

    /// Removes the release callback of wrapped memory, and returns it: the caller must release the memory instead.
    pub(crate) fn take_release(&mut self) -> Option<Release> {
        self.extra.get_mut()?.release.take()
    }

    /// Waits for the recorded streams other than the home stream.
    pub(crate) fn others_done(&self) -> Result<(), DeviceError> {
        self.home.at_home()?;
        let noted = || self.extra.get().map_or(Vec::new(), |extra| extra.uses.lock().clone());
        noted().iter().try_for_each(|stream| stream.service.synchronize_stream(stream.raw))
    }

    /// Waits for every stream that may use the block.
    pub(crate) fn finish(&self) -> Result<(), DeviceError> {
        self.others_done()?;
        self.home.service.synchronize_stream(self.home.raw)
    }

    /// A new reference to the block's home stream.
    pub(crate) fn stream_core(&self) -> Arc<StreamCore> {
        Arc::clone(&self.home)
    }

    /// The pool of the block's device.
    pub(crate) fn service(&self) -> &dyn Service {
        &*self.home.service
    }

    /// The name of the block's device.
    pub(crate) fn device_name(&self) -> &str {
        &self.home.service.description().name
    }

    /// The raw handle of the block's home stream.
    pub fn raw_stream(&self) -> RawStream {
        self.home.raw
    }
}

/// The path of a copy from one block to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Within one device.
    Local,
    /// Directly from one device to another.
    Peer,
    /// Through host memory.
    Staged,
}

impl fmt::Debug for DeviceBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBlock")
            .field("address", &format_args!("{:#x}", self.block.address()))
            .field("bytes", &self.block.bytes())
            .field("place", &self.origin())
            .finish_non_exhaustive()
    }
}
