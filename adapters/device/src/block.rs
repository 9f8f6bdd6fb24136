//! Blocks: memory of a device that goes back when dropped, behind its fence.
//!
//! Promises upward: a block is used on its home stream without more ado, on others after [`DeviceBlock::used_on`] (or the
//! copies here, which say so themselves); dropping it never waits, never panics, and never lets its memory be used again
//! before the streams that were named are done with it.
//! Asks from below: its stream's cache, and the pool behind it.

use crate::backend::RawStream;
use crate::capability::Capabilities;
use crate::error::{BlockId, DeviceError};
use crate::hint::{Advice, Hint, PrefetchTarget};
use crate::stream::{BlockExtra, BlockOrigin, HostMemory, HostSlice, NO_ROUTE, Release, Service, Stream, StreamCore};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use terrace_core::Block;

/// Live memory of a device. Dropping it gives it back.
pub struct DeviceBlock {
    block: Block,
    /// Taken out when the block is dropped, and never looked at after that.
    home: ManuallyDrop<Arc<StreamCore>>,
    /// Likewise. Empty for a block of the arena that only its own stream uses.
    extra: ManuallyDrop<OnceLock<Box<BlockExtra>>>,
}

impl DeviceBlock {
    /// A block of the arena.
    #[inline]
    pub(crate) fn new(block: Block, home: Arc<StreamCore>) -> Self {
        Self { block, home: ManuallyDrop::new(home), extra: ManuallyDrop::new(OnceLock::new()) }
    }

    /// A block from elsewhere.
    pub(crate) fn with(block: Block, home: Arc<StreamCore>, extra: BlockExtra) -> Self {
        let extra = OnceLock::from(Box::new(extra));
        Self { block, home: ManuallyDrop::new(home), extra: ManuallyDrop::new(extra) }
    }

    fn place(&self) -> BlockOrigin {
        self.extra.get().map_or(BlockOrigin::Pool, |extra| extra.place)
    }

    /// The address, in the device's space. It does not change.
    #[inline]
    pub fn address(&self) -> u64 {
        self.block.address
    }

    /// Bytes it holds: at least what was asked.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.block.bytes
    }

    /// As errors name it.
    pub fn id(&self) -> BlockId {
        BlockId { address: self.block.address, bytes: self.block.bytes }
    }

    /// Whether it is pinned host memory, given because the device had none left.
    pub fn is_fallback(&self) -> bool {
        self.place() == BlockOrigin::Host(HostMemory::Fallback)
    }

    /// Whether it is pinned host memory, for whatever reason.
    fn on_host(&self) -> bool {
        matches!(self.place(), BlockOrigin::Host(HostMemory::Fallback | HostMemory::Pinned))
    }

    /// Whether it was wrapped, not allocated.
    pub fn is_foreign(&self) -> bool {
        self.place() == BlockOrigin::Foreign
    }

    /// Records that work on another stream uses the block.
    ///
    /// After the drop, the memory is not reused before that stream has done everything put on it until the drop.
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

    /// Makes another stream wait for the block's own, and records that it uses the block.
    ///
    /// What is put on `to` from now on begins after everything put on the block's stream so far; the memory is not reused
    /// before both are done, as for [`DeviceBlock::used_on`].
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; the driver's error.
    pub fn lend(&self, to: &Stream) -> Result<(), DeviceError> {
        self.used_on(to)?;
        let (home, other) = (&self.home, to.core());
        if home.owner == other.owner { Ok(()) } else { home.service.order(other.raw, home.raw) }
    }

    /// Ends a loan: makes the block's own stream wait for the other.
    ///
    /// What is put on the block's stream from now on begins after everything put on `from` so far.
    ///
    /// # Errors
    /// As for [`DeviceBlock::lend`].
    pub fn reclaim(&self, from: &Stream) -> Result<(), DeviceError> {
        let (home, other) = (&self.home, from.core());
        home.service.check_stream(other)?;
        if home.owner == other.owner { Ok(()) } else { home.service.order(home.raw, other.raw) }
    }

    /// Refuses to wait for a stream on which a graph is captured: the capture would be lost.
    pub(crate) fn not_captured(&self) -> Result<(), DeviceError> {
        let rule =
            "bytes are read and written by waiting, which a captured stream may not; copy on the device, or later";
        if self.home.route() == NO_ROUTE { Ok(()) } else { Err(DeviceError::Capture(rule)) }
    }

    /// Remembers that a stream uses the block.
    fn note(&self, stream: &Arc<StreamCore>) {
        let mut uses = self.extra.get_or_init(|| Box::new(BlockExtra::new(BlockOrigin::Pool))).uses.lock();
        if uses.iter().all(|other| other.owner != stream.owner) {
            uses.push(Arc::clone(stream));
        }
    }

    /// The range as addresses, when it is inside.
    fn within(&self, offset: u64, bytes: u64) -> Result<u64, DeviceError> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        if inside {
            Ok(self.address() + offset)
        } else {
            Err(DeviceError::OutOfBounds { block: self.id(), offset, bytes })
        }
    }

    /// Copies bytes from the host, on the block's stream, and waits for it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error: then the block's bytes are undefined.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write_shared(offset, bytes)
    }

    /// As [`Self::write`]. Caller must have exclusive access to the written range.
    pub(crate) fn write_shared(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let to = self.within(offset, bytes.len() as u64)?;
        self.not_captured()?;
        self.home.service.copy_host(HostSlice::Read(bytes), to, self.home.raw)
    }

    /// Copies bytes to the host, after everything put on the block's stream so far.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error: then `bytes` are undefined.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let from = self.within(offset, bytes.len() as u64)?;
        self.not_captured()?;
        self.home.service.copy_host(HostSlice::Write(bytes), from, self.home.raw)
    }

    /// Sets bytes to a value, on the block's stream.
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

    /// Copies between two ranges of the block that do not overlap. Caller must have exclusive access to both.
    pub(crate) fn copy_within(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        let (target, source) = (self.within(to, bytes)?, self.within(from, bytes)?);
        if to.abs_diff(from) < bytes {
            return Err(DeviceError::OutOfBounds { block: self.id(), offset: to, bytes });
        }
        self.home.service.copy(target, source, bytes, self.home.raw)
    }

    /// Copies from another block, also of another device, in the order of both streams.
    ///
    /// The copy runs on this block's stream, after everything put on the other's so far and before what is put on that
    /// from now on. Returns the path that the bytes took.
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
            // The copy may be on its way, and the other stream knows nothing of it: its memory waits for this stream too.
            return ordered.inspect_err(|_| from.note(home)).map(|()| Path::Local);
        }
        // A driver copies between devices' own memory; the host's has no device.
        let direct = !self.on_host()
            && !from.on_host()
            && home.service.description().backend == other.service.description().backend
            && home.service.can_reach(other.service.description().ordinal);
        // Streams of two devices have no common order here: what was put on the other is waited for.
        other.service.synchronize_stream(other.raw)?;
        if direct {
            home.service.copy_peer(to, source, other.service.description().ordinal, bytes, home.raw)?;
            return Ok(Path::Peer);
        }
        self.copy_staged(offset, from, at, bytes).map(|()| Path::Staged)
    }

    /// By way of the host, a piece at a time.
    fn copy_staged(&self, offset: u64, from: &Self, at: u64, bytes: u64) -> Result<(), DeviceError> {
        /// Bytes of a piece: large enough that a transfer's own cost (10 microseconds) is a few percent of it at 25 GB/s.
        const PIECE: u64 = 4 << 20;
        let mut stage = vec![0; bytes.min(PIECE) as usize];
        for start in (0..bytes).step_by(PIECE as usize) {
            let piece = &mut stage[..(bytes - start).min(PIECE) as usize];
            from.read(at + start, piece)?;
            self.write_shared(offset + start, piece)?;
        }
        Ok(())
    }

    /// Copies to this block from pinned memory, or the other way, on this block's stream; does not wait. The pinned block
    /// waits for that stream when it is dropped.
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

    /// Waits until the host may touch managed memory: for the block's stream and those that were named, or for the whole
    /// device where both may not touch managed memory at once.
    pub(crate) fn host_turn(&self) -> Result<(), DeviceError> {
        let service = &self.home.service;
        if !service.description().capabilities.contains(Capabilities::CONCURRENT_MANAGED) {
            return service.synchronize();
        }
        self.finish()
    }

    /// Prefetches a range of managed memory to the side that uses it next, on the block's stream.
    pub(crate) fn prefetch(&self, offset: u64, bytes: u64, to: PrefetchTarget) -> Result<Hint, DeviceError> {
        let at = self.within(offset, bytes)?;
        self.home.service.prefetch(at, bytes, to, self.home.raw)
    }

    /// Says how a part of managed memory will be used.
    pub(crate) fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<Hint, DeviceError> {
        let at = self.within(offset, bytes)?;
        self.home.service.advise(at, bytes, advice)
    }

    /// Takes the release callback of wrapped memory out: the caller releases the memory instead.
    pub(crate) fn take_release(&mut self) -> Option<Release> {
        self.extra.get_mut()?.release.take()
    }

    /// Waits for the streams besides its own that were noted.
    pub(crate) fn others_done(&self) -> Result<(), DeviceError> {
        self.home.at_home()?;
        let noted = || self.extra.get().map_or(Vec::new(), |extra| extra.uses.lock().clone());
        noted().iter().try_for_each(|stream| stream.service.synchronize_stream(stream.raw))
    }

    /// Waits for every stream that may use it.
    pub(crate) fn finish(&self) -> Result<(), DeviceError> {
        self.others_done()?;
        self.home.service.synchronize_stream(self.home.raw)
    }

    /// Returns a reference to the block's stream.
    pub(crate) fn stream_core(&self) -> Arc<StreamCore> {
        Arc::clone(&self.home)
    }

    /// What stands behind its device.
    pub(crate) fn service(&self) -> &dyn Service {
        &*self.home.service
    }

    /// The name of its device.
    pub(crate) fn device_name(&self) -> &str {
        &self.home.service.description().name
    }

    /// The raw stream it belongs to.
    pub fn raw_stream(&self) -> RawStream {
        self.home.raw
    }
}

/// How bytes got from one block to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Within the device.
    Local,
    /// From device to device.
    Peer,
    /// By way of the host.
    Staged,
}

impl Drop for DeviceBlock {
    #[inline]
    fn drop(&mut self) {
        if self.home.forked() {
            // In a child nothing of the driver works, and a lock may be held by a thread that is not here.
            return;
        }
        // SAFETY: taken once: here, when the block is dropped.
        let mut home = unsafe { ManuallyDrop::take(&mut self.home) };
        if self.extra.get_mut().is_none() {
            match home.keep(self.block) {
                Ok(()) => return,
                Err(back) => home = back,
            }
        }
        // SAFETY: as above.
        give_back(home, self.block, unsafe { ManuallyDrop::take(&mut self.extra) });
    }
}

/// To the pool, when the stream's cache cannot have it.
#[cold]
fn give_back(home: Arc<StreamCore>, block: Block, extra: OnceLock<Box<BlockExtra>>) {
    let extra = extra.into_inner().map(|extra| *extra);
    home.service.give_back(&home, block, extra);
}

impl fmt::Debug for DeviceBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBlock")
            .field("address", &format_args!("{:#x}", self.block.address))
            .field("bytes", &self.block.bytes)
            .field("place", &self.place())
            .finish_non_exhaustive()
    }
}
