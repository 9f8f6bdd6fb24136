//! Buckets that grow: a segment is a region of the source, divided into blocks of one size class.
//!
//! Promises upward: the contract of [`Allocator`]; O(1) allocate and free when a segment of the class has room; stale
//! handles are always detected (64-bit tickets count up). An allocation fails only when the source has no memory even
//! after all empty segments have been returned, and no larger class has a suitable block.
//! Asks from below: a [`Source`] of whole regions; slices for records, which the caller lends (a `Vec` on hosts).
//!
//! Sizes: with `s` steps in an octave (a factor of two), a class wastes at most 1/(s+1) of a block. A segment has
//! `segment_bytes`, or one block where a block is larger.
//!
//! Invariants, beside those of the records:
//! - bit `c` of `room` is set iff the list of class `c` is not empty
//! - `counters.in_use` = sum of the live blocks' bytes, `counters.reserved` = sum of the segments' regions

use super::size_classes::SizeClasses;
use crate::allocator::{Block, Request};
use crate::counters::Counters;
use crate::error::{AllocError, Cause, FreeError};
use crate::source::Source;
pub use records::{BlockRecord, SegmentRecord};
use records::{FreeRecords, NONE, link, unlink};

mod allocator;
mod grow;
mod records;

/// Number of class lists: at least the classes of any [`SizeClasses`] up to [`LARGEST`]. Eight steps in an octave start
/// at 2^3: (40 - 3) octaves * 8 + 1 = 297, rounded up to whole 64-bit words.
const CLASSES: usize = 320;
/// Bytes of the largest request: 1 TiB, more than any device has today; the table of classes then has 1.3 KiB.
const LARGEST: u64 = 1 << 40;
/// Blocks start at multiples of so many bytes, or of the largest power of two in their size where that is smaller.
/// Device allocators promise as much (CUDA: 256 bytes, PyTorch: 512). Larger alignments need padding inside a larger
/// block.
const START_ALIGN: u64 = 512;

/// Power-of-two (or finer) buckets over a growing set of segments.
///
/// `T` and `G` lend the records of blocks and of segments: each a `Vec`, an array or `&mut [_]`, with a record for each
/// block (live, or free for reuse) and for each segment held at once; [`records_mut`](Self::records_mut) can lengthen
/// them later.
///
/// # Example
/// ```
/// # use terrace_core::{Region, Source, SourceError, SourceUsage};
/// use terrace_core::pool::{BlockRecord, BucketArena, SegmentRecord, SizeClasses};
/// use terrace_core::{Allocator, Owner, Request};
/// # struct Counting(u64);
/// # impl Source for Counting {
/// #     fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
/// #         self.0 += 1 << 30;
/// #         Ok(Region { id: self.0, base: self.0, bytes })
/// #     }
/// #     fn give_back(&mut self, _: Region) -> Result<(), SourceError> { Ok(()) }
/// #     fn usage(&self) -> SourceUsage { SourceUsage::default() }
/// # }
/// # let source = Counting(0);
/// let blocks = [BlockRecord::default(); 64];
/// let segments = [SegmentRecord::default(); 8];
/// let mut arena = BucketArena::new(source, SizeClasses::new(512, 1)?, 2 << 20, blocks, segments);
/// let block = arena.allocate(Request::new(3000))?;
/// assert_eq!((block.bytes, arena.stats().reserved), (4096, 2 << 20));
/// arena.free(block, Owner(0))?;
/// assert_eq!(arena.trim(), 2 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BucketArena<S, T, G> {
    source: S,
    steps: SizeClasses,
    /// Bytes of a segment, unless one block is larger.
    segment_bytes: u64,
    blocks: T,
    segments: G,
    spare_blocks: FreeRecords,
    spare_segments: FreeRecords,
    /// By class, the index of the first segment with room.
    heads: [u32; CLASSES],
    /// Bitmap of the classes whose list is not empty.
    room: [u64; CLASSES / 64],
    /// The last ticket issued; tickets start at 1.
    ticket: u64,
    /// Number of calls made to the source.
    calls: u64,
    counters: Counters,
    /// Bytes of all blocks so far.
    allocated_bytes: u64,
}

impl<S, T, G> BucketArena<S, T, G>
where
    S: Source,
    T: AsRef<[BlockRecord]> + AsMut<[BlockRecord]>,
    G: AsRef<[SegmentRecord]> + AsMut<[SegmentRecord]>,
{
    /// An empty arena; takes nothing from the source yet.
    pub fn new(source: S, steps: SizeClasses, segment_bytes: u64, blocks: T, segments: G) -> Self {
        Self {
            source,
            steps,
            segment_bytes,
            blocks,
            segments,
            spare_blocks: FreeRecords::EMPTY,
            spare_segments: FreeRecords::EMPTY,
            heads: [NONE; CLASSES],
            room: [0; CLASSES / 64],
            ticket: 0,
            calls: 0,
            counters: Counters::new(),
            allocated_bytes: 0,
        }
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The lent records, so that the caller can lengthen them.
    ///
    /// Caller must not shorten, change or reorder them: `check` would report it.
    pub fn records_mut(&mut self) -> (&mut T, &mut G) {
        (&mut self.blocks, &mut self.segments)
    }

    /// Allocates a block of the request's class, or of a larger one.
    fn find(&mut self, request: Request) -> Result<Block, AllocError> {
        // An alignment above that of block starts needs room for padding in front of the block.
        let padding = if request.align > START_ALIGN { request.align } else { 0 };
        let bytes = request.bytes.checked_add(padding).filter(|bytes| *bytes <= LARGEST);
        let class = bytes.and_then(|bytes| self.steps.aligned(bytes, request.align.min(START_ALIGN)));
        // The record of a block has 32 bits for the padding.
        let class = class.filter(|class| (*class as usize) < CLASSES && request.align <= 1 << 31);
        let class = class.ok_or(AllocError::new(Cause::TooLarge, request.bytes))?;
        let calls = self.calls;
        let class = match self.prepare(class) {
            Ok(()) => class,
            Err(cause) => self.larger(class, request).ok_or_else(|| self.refusal(cause, request))?,
        };
        let block = self.serve(class, request)?;
        self.counters.allocated(block.bytes, calls == self.calls);
        self.allocated_bytes += block.bytes;
        Ok(block)
    }

    fn refusal(&self, cause: Cause, request: Request) -> AllocError {
        AllocError { cause, asked: request.bytes, largest_free: self.largest_free() }
    }

    /// Bytes of the largest block that a segment has room for.
    fn largest_free(&self) -> u64 {
        let words = self.room.iter().enumerate().rev();
        let top = words.filter(|(_, word)| **word != 0).map(|(at, word)| at as u32 * 64 + word.ilog2()).next();
        top.map_or(0, |class| self.size(class))
    }

    /// A larger class with room whose blocks fit the request at any address.
    fn larger(&self, class: u32, request: Request) -> Option<u32> {
        let least = self.steps.ceil(request.bytes.checked_add(request.align)?)?.max(class);
        let word = |word: usize| self.room[word] & if word == least as usize / 64 { !0 << (least % 64) } else { !0 };
        let found = (least as usize / 64..self.room.len()).find(|at| word(*at) != 0)?;
        Some(found as u32 * 64 + word(found).trailing_zeros())
    }

    /// Allocates a block in the first segment of a class, which must have room.
    fn serve(&mut self, class: u32, request: Request) -> Result<Block, AllocError> {
        let segment = self.heads[class as usize];
        let size = self.size(class);
        let (segments, blocks) = (self.segments.as_mut(), self.blocks.as_mut());
        let owner = &mut segments[segment as usize];
        let slot = if owner.free != NONE {
            let slot = owner.free;
            owner.free = blocks[slot as usize].next;
            slot
        } else {
            let spare = self.spare_blocks.take(blocks.len(), |at| blocks[at as usize].next);
            let slot = spare.ok_or(AllocError::new(Cause::OutOfSlots, request.bytes))?;
            let place = owner.start + size * u64::from(owner.carved);
            blocks[slot as usize] = BlockRecord { place, segment, ..BlockRecord::default() };
            owner.carved += 1;
            slot
        };
        owner.live += 1;
        if owner.live == owner.capacity {
            unlink(segments, &mut self.heads[class as usize], segment);
            let empty = self.heads[class as usize] == NONE;
            self.room[class as usize / 64] &= !(u64::from(empty) << (class % 64));
        }
        self.ticket += 1;
        let block = &mut blocks[slot as usize];
        let address = block.place.next_multiple_of(request.align);
        (block.ticket, block.pad) = (self.ticket, (address - block.place) as u32);
        Ok(Block { address, bytes: size - u64::from(block.pad), slot, region: segment, ticket: self.ticket })
    }

    /// The record of a live block.
    fn live(&self, block: Block) -> Result<BlockRecord, FreeError> {
        let address = block.address;
        let record = self.blocks.as_ref().get(block.slot as usize).copied().unwrap_or_default();
        if block.ticket == 0 || block.ticket > self.ticket || block.slot >= self.spare_blocks.fresh {
            return Err(FreeError::Foreign { address });
        }
        if record.ticket != block.ticket {
            return Err(FreeError::Stale { address });
        }
        let segment = &self.segments.as_ref()[record.segment as usize];
        let bytes = self.size(segment.class) - u64::from(record.pad);
        let same = record.place + u64::from(record.pad) == address && bytes == block.bytes;
        if same && record.segment == block.region { Ok(record) } else { Err(FreeError::Foreign { address }) }
    }

    /// Puts a live block on its segment's free list.
    fn put_back(&mut self, slot: u32, segment: u32) {
        let (segments, blocks) = (self.segments.as_mut(), self.blocks.as_mut());
        let owner = &mut segments[segment as usize];
        let class = owner.class;
        let was_full = owner.live == owner.capacity;
        owner.live -= 1;
        let record = &mut blocks[slot as usize];
        (record.ticket, record.next) = (0, owner.free);
        owner.free = slot;
        if was_full {
            link(segments, &mut self.heads[class as usize], segment);
            self.room[class as usize / 64] |= 1 << (class % 64);
        }
    }

    fn size(&self, class: u32) -> u64 {
        self.steps.size(class).unwrap_or(LARGEST)
    }
}
