//! Memory of a buffer that processors address: a frame, or pinned memory that a device addresses too; and such memory
//! as source and target of transfers.
//!
//! Asks from below: blocks that do not move in memory while they live; [`raw_bytes`](super::raw_bytes).

use super::buffer_state::BufferState;
use super::migration::SMALL_CHUNK;
use super::raw_bytes::{ExclusiveBytes, RawBytes, SharedBytes};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_device::{DeviceBlock, HostBuffer, HostSource};
use terrace_file::{ALIGN, Frame};
use terrace_guard::Process;

/// The memory of one buffer.
#[derive(Debug)]
pub(super) enum HostBlock {
    Frame(Frame),
    /// Memory shared with a device that has none of its own: one copy for both.
    Pinned(Box<DeviceBlock>),
}

impl HostBlock {
    /// The address of its first byte.
    pub(super) fn pointer(&self) -> *mut u8 {
        match self {
            Self::Frame(frame) => frame.pointer(),
            // Pinned memory has the same address on the device and here; the pool that allocated it has exposed its
            // provenance.
            Self::Pinned(block) => std::ptr::with_exposed_provenance_mut(block.address() as usize),
        }
    }

    /// All its bytes.
    pub(super) fn raw_bytes(&self) -> RawBytes {
        let bytes = match self {
            Self::Frame(frame) => frame.len(),
            Self::Pinned(block) => block.bytes() as usize,
        };
        RawBytes::new(self.pointer(), bytes)
    }

    /// The `bytes` bytes from `at` on as a frame for I/O on files, which then needs no copy; `None` if they do not begin
    /// at a page, or the last of the pages that they take is not inside the block.
    ///
    /// # Safety
    /// As for [`Frame::part_of`].
    pub(super) unsafe fn part(self: &Arc<Self>, at: usize, bytes: usize) -> Option<Frame> {
        let pages = bytes.next_multiple_of(ALIGN);
        if pages > self.raw_bytes().bytes().checked_sub(at)? {
            return None;
        }
        let part = RawBytes::new(self.pointer().wrapping_add(at), pages);
        // SAFETY: the block does not move in memory and lives as long as the reference; the rest as the caller promises.
        unsafe { frame_over(Arc::clone(self) as Arc<dyn Send + Sync>, part) }
    }
}

/// Memory as a frame; `None` if it is not whole pages.
///
/// # Safety
/// As for [`Frame::part_of`].
unsafe fn frame_over(owner: Arc<dyn Send + Sync>, memory: RawBytes) -> Option<Frame> {
    let start = NonNull::new(memory.start())?;
    let pages = start.addr().get().is_multiple_of(ALIGN) && memory.bytes().is_multiple_of(ALIGN);
    // SAFETY: as the caller promises.
    pages.then(|| unsafe { Frame::part_of(owner, start, memory.bytes()) })
}

/// How long a call waits for a disk that has answered and still holds the caller's memory, before it ends the process.
const RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Memory that a caller lends to disks for the time of a call, as frames.
///
/// Dropping this value waits until no disk holds a frame. As a rule all frames have come back by then; not if a disk keeps one after
/// its answer, or the kernel refuses calls for a ring. After [`RETURN_TIMEOUT`] the process ends: the caller would use its memory
/// while a disk writes there. The task of such a call cannot be cancelled, since the thread that drops the task may be the one
/// that takes frames back.
pub(super) struct LentMemory {
    /// Cloned into each frame.
    holders: Arc<()>,
    /// No disk of a forked child has the memory.
    process: Process,
}

impl LentMemory {
    pub(super) fn new() -> Self {
        Self { holders: Arc::default(), process: Process::current() }
    }

    /// Lends memory as a frame; `None` if a copy costs less, or it is not whole pages.
    ///
    /// # Safety
    /// The memory must be initialised, and valid until this value has been dropped, which must not be forgotten. Until the
    /// frame is dropped, no thread may write it; if others may read it, the frame must be made read-only at once.
    pub(super) unsafe fn frame(&self, memory: RawBytes) -> Option<Frame> {
        if memory.bytes() <= SMALL_CHUNK {
            return None;
        }
        // SAFETY: `drop` waits for the owner's clones, and so the memory is valid as long as the frame; the rest as the caller
        // promises.
        unsafe { frame_over(Arc::clone(&self.holders) as Arc<dyn Send + Sync>, memory) }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        let begun = Instant::now();
        // `get_mut` sees all that the last holder did.
        while self.process.is_current() && Arc::get_mut(&mut self.holders).is_none() {
            if begun.elapsed() > RETURN_TIMEOUT {
                eprintln!(
                    "terrace: a disk kept the memory of a caller whose read or write has ended; the process ends."
                );
                std::process::abort();
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Memory of a buffer that was never written. Its bytes are counted meanwhile: they may never have been touched, and the
/// system counts them as available then.
#[derive(Debug)]
pub(super) struct BlankBlock {
    block: Arc<HostBlock>,
    counted: Arc<AtomicU64>,
}

impl BlankBlock {
    /// Counts the bytes of the block in `counted` while this value lives.
    pub(super) fn new(block: Arc<HostBlock>, counted: &Arc<AtomicU64>) -> Self {
        counted.fetch_add(block.raw_bytes().bytes() as u64, Ordering::Relaxed);
        Self { block, counted: Arc::clone(counted) }
    }

    pub(super) fn block(&self) -> &Arc<HostBlock> {
        &self.block
    }
}

impl Drop for BlankBlock {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.block.raw_bytes().bytes() as u64, Ordering::Relaxed);
    }
}

/// Memory that a transfer reads or writes, with its owner.
pub(super) struct TransferMemory<O> {
    bytes: ExclusiveBytes<'static>,
    owner: O,
}

impl TransferMemory<Arc<HostBlock>> {
    /// The first `bytes` bytes of a block. The caller must have the only reference that is used.
    pub(super) fn block(block: Arc<HostBlock>, bytes: usize) -> Self {
        // SAFETY: the transfer alone uses the block, which does not move in memory and lives as long as this.
        let bytes = unsafe { ExclusiveBytes::new(block.raw_bytes().first(bytes)) };
        Self { bytes, owner: block }
    }
}

impl TransferMemory<Frame> {
    /// The first `bytes` bytes of a frame.
    pub(super) fn frame(frame: Frame, bytes: usize) -> Self {
        // SAFETY: as above.
        let bytes = unsafe { ExclusiveBytes::new(RawBytes::new(frame.pointer(), frame.len()).first(bytes)) };
        Self { bytes, owner: frame }
    }
}

impl<O> TransferMemory<O> {
    pub(super) fn into_owner(self) -> O {
        self.owner
    }
}

// SAFETY: moving the owner does not move the memory of a block or frame; this is its only owner.
unsafe impl<O: Send + 'static> HostSource<u8> for TransferMemory<O> {
    fn elements(&self) -> &[u8] {
        &self.bytes
    }
}

// SAFETY: as above.
unsafe impl<O: Send + 'static> HostBuffer<u8> for TransferMemory<O> {
    fn elements_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// The bytes of a buffer as the source of a transfer that reads them where they are in memory.
pub(super) struct InPlaceSource {
    bytes: SharedBytes<'static>,
    _buffer: Arc<BufferState>,
}

impl InPlaceSource {
    /// # Safety
    /// While this value lives, the buffer's lease word must be closed, or held shared for this copy, so that no thread
    /// writes or frees the memory.
    pub(super) unsafe fn new(raw_bytes: RawBytes, buffer: Arc<BufferState>) -> Self {
        // SAFETY: as the caller promises.
        let bytes = unsafe { SharedBytes::new(raw_bytes.first(buffer.bytes as usize)) };
        Self { bytes, _buffer: buffer }
    }
}

// SAFETY: the buffer owns the memory and lives as long as this; no thread writes it, as the caller of `new` promised.
unsafe impl HostSource<u8> for InPlaceSource {
    fn elements(&self) -> &[u8] {
        &self.bytes
    }
}
