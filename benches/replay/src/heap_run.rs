//! A recorded run on a heap of the core, in memory of a given size.
//!
//! Promises upward: the calls are those that the recorded program makes of a `FirmwareHeap` (or of a heap with headers), in the order of the
//! recording; the first request without room ends the run.
//! Asks from below: operations of a trace, whose blocks are live from their allocation to their free.

use crate::operation::{Operation, OperationKind};
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use terrace_core::FreeError;
use terrace_core::heap::{HeapConfig, RegionHeap};

/// A run to repeat on heaps: what it asks for, and its blocks.
pub struct HeapRun {
    requests: Vec<HeapRequest>,
    /// The block in each slot, with its layout; `None` when the slot is empty.
    blocks: Vec<Option<(NonNull<u8>, Layout)>>,
    /// The most bytes live at once, as asked for.
    pub peak: u64,
    /// The largest alignment of a block.
    pub align: u64,
}

/// One call to the heap.
struct HeapRequest {
    slot: u32,
    kind: OperationKind,
    /// What to allocate, or the new layout, whose alignment is the one that the block keeps.
    layout: Layout,
}

/// What a run's blocks get beside their bytes.
#[derive(Clone, Copy, Debug)]
pub struct BlockRules {
    /// The largest alignment that a block gets: larger ones are cut to it.
    pub align_most: Option<u64>,
    /// What `malloc` promises on the target: where `align_most` is `None`, the alignment of blocks recorded at 16 bytes.
    pub malloc_align: u64,
    /// Bytes of a header in front of each block, a power of two; 0 for none.
    pub header: u64,
}

/// What `malloc` promises on 64 bits, and so the recorded alignment of most blocks.
const MALLOC_ALIGN: u64 = 16;

impl BlockRules {
    /// The alignment of a block that was recorded with another.
    fn align(&self, recorded: u64) -> u64 {
        let align = match self.align_most {
            Some(most) => recorded.min(most),
            None if recorded == MALLOC_ALIGN => self.malloc_align,
            None => recorded,
        };
        align.max(self.header).max(1)
    }
}

impl HeapRun {
    /// A run of these operations; `None` when a block has more bytes than this machine can address.
    pub fn new(operations: &[Operation], rules: BlockRules) -> Option<Self> {
        let mut run = Self { requests: Vec::with_capacity(operations.len()), blocks: Vec::new(), peak: 0, align: 1 };
        // Of each slot: bytes asked for, and the alignment that the block keeps as long as it lives.
        let mut slots: Vec<(u64, u64)> = Vec::new();
        let mut live = 0;
        for operation in operations {
            let slot = operation.slot as usize;
            slots.resize(slots.len().max(slot + 1), (0, 1));
            let (old, kept) = slots[slot];
            let align = match operation.kind {
                OperationKind::Allocate => rules.align(1 << operation.align_log2),
                OperationKind::Reallocate | OperationKind::Free => kept,
            };
            slots[slot] = (operation.bytes, align);
            live = live - old + operation.bytes;
            run.peak = run.peak.max(live);
            run.align = run.align.max(align);
            // As `HeaderHeap` does: the header lies at the end of as many bytes as the alignment has.
            let lead = if rules.header > 0 { align } else { 0 };
            let size = usize::try_from(operation.bytes.checked_add(lead)?).ok()?;
            let layout = Layout::from_size_align(size, usize::try_from(align).ok()?).ok()?;
            run.requests.push(HeapRequest { slot: operation.slot, kind: operation.kind, layout });
        }
        run.blocks = vec![None; slots.len()];
        Some(run)
    }

    /// The most bytes live at once, each block (its header included) rounded up to granules.
    pub fn peak_in_granules(&self, granule: u64) -> u64 {
        let mut sizes = vec![0; self.blocks.len()];
        let (mut live, mut peak) = (0, 0);
        for request in &self.requests {
            let size = match request.kind {
                OperationKind::Free => 0,
                _ => (request.layout.size() as u64).next_multiple_of(granule),
            };
            live = live - std::mem::replace(&mut sizes[request.slot as usize], size) + size;
            peak = peak.max(live);
        }
        peak
    }
}

/// Whether a heap whose one region is `memory` serves every request.
///
/// Fails if the heap refuses a free or a resize of a live block, which would be a fault of the heap.
pub fn fits<C: HeapConfig>(memory: &mut [MaybeUninit<u8>], run: &mut HeapRun) -> Result<bool, FreeError> {
    let mut heap: RegionHeap<C> = RegionHeap::empty();
    run.blocks.fill(None);
    // SAFETY: the memory is borrowed for longer than the heap lives, and nothing else accesses it.
    if unsafe { heap.add_region(NonNull::from(&mut *memory).cast(), memory.len()) }.is_err() {
        return Ok(false);
    }
    for request in &run.requests {
        let slot = &mut run.blocks[request.slot as usize];
        let (block, layout) = match (*slot, request.kind) {
            (None, _) => (heap.allocate(request.layout), request.layout),
            (Some((block, layout)), OperationKind::Free) => {
                // SAFETY: the slot has a live block of this heap with its layout, and is emptied below.
                unsafe { heap.free(block, layout)? };
                *slot = None;
                continue;
            }
            (Some((block, layout)), _) => {
                // SAFETY: the slot has a live block of this heap with its layout, and gets the new pointer below. The
                // new size is one of a layout of the same alignment.
                (unsafe { heap.reallocate(block, layout, request.layout.size())? }, request.layout)
            }
        };
        let Some(block) = block else { return Ok(false) };
        *slot = Some((block, layout));
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
