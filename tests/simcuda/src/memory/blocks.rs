//! Blocks: memory that one call allocates and one call frees, and host memory that was registered.
//!
//! Upward: [`World::allocate`], [`World::free_block`], [`World::block_at`].
//! From below: addresses and the arena.

use super::{Arena, PAGE, Past};
use crate::abi::Outcome;
use crate::abi::codes::{INVALID_VALUE, OUT_OF_MEMORY};
use crate::machine::World;
use crate::machine::context::Here;
use crate::order::Lane;

/// Whose a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// `cuMemAlloc`.
    Device,
    /// A variable of a module, by the module's handle.
    Variable(u64),
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocHost`, `cuMemHostAlloc`; the flags.
    Pinned(u32),
    /// `cuMemHostRegister`; the flags.
    Registered(u32),
    /// A pool, by its handle.
    Pool(u64),
}

/// A block. Its first byte is its key.
#[derive(Clone, Debug)]
pub struct Block {
    /// Bytes asked for.
    pub bytes: u64,
    /// First byte taken for it, at or before the block.
    pub base: u64,
    /// Bytes taken for it.
    pub span: u64,
    /// Bytes of device memory counted for it.
    pub charged: u64,
    /// Whose it is.
    pub holder: Holder,
    /// Context it was made in.
    pub context: u64,
    /// Its device.
    pub device: usize,
    /// Its number; none comes again.
    pub id: u64,
    /// The operation that allocates it, where a stream does that: its lane and number.
    pub allocated: Option<(Lane, u64)>,
    /// Set once a stream was told to free it: what the call was. It stays open until its pool lets it go.
    pub freed: Option<String>,
}

impl Block {
    /// What it is, for messages.
    pub fn describe(&self, start: u64) -> String {
        let call = match self.holder {
            Holder::Device => "cuMemAlloc",
            Holder::Variable(_) => "cuModuleLoadData",
            Holder::Managed => "cuMemAllocManaged",
            Holder::Pinned(_) => "cuMemHostAlloc",
            Holder::Registered(_) => "cuMemHostRegister",
            Holder::Pool(_) => "cuMemAllocAsync",
        };
        format!("block {start:#x}+{} of {call} on device {}", self.bytes, self.device)
    }

    /// Whether it is host memory.
    pub fn is_host(&self) -> bool {
        matches!(self.holder, Holder::Pinned(_) | Holder::Registered(_))
    }
}

/// From this size on blocks have chunks of their own; smaller ones are packed.
const LARGE: u64 = 1 << 20;
/// Large blocks are aligned to chunks and counted in them.
pub const CHUNK: u64 = 2 << 20;
/// Small blocks are aligned to this and to nothing more: whoever counts on more is found out.
const SMALL_ALIGN: u64 = 512;

impl World {
    /// Allocates a block and gives its first byte.
    pub fn allocate(&mut self, here: Here, bytes: u64, holder: Holder) -> Outcome<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        // Past every machine: a sum with it could overflow.
        if bytes > 1 << 46 {
            return Err(OUT_OF_MEMORY);
        }
        let (skip, span, align, charged) = shape(bytes);
        let on_device = matches!(holder, Holder::Device | Holder::Variable(_) | Holder::Pool(_));
        let charged = if on_device { charged } else { 0 };
        self.charge(here.device, charged)?;
        let taken = self.memory.take(span, align, 0).and_then(|base| {
            let open = Arena::get().is_some_and(|arena| arena.open(base, span));
            if open { Ok(base) } else { Err(OUT_OF_MEMORY) }
        });
        let base = taken.inspect_err(|_| self.discharge(here.device, charged))?;
        let id = self.memory.next_id();
        let start = base + skip;
        let block = Block {
            bytes,
            base,
            span,
            charged,
            holder,
            context: self.root(here.context),
            device: here.device,
            id,
            allocated: None,
            freed: None,
        };
        self.memory.blocks.insert(start, block);
        self.races.ledger.forget(base, span);
        Ok(start)
    }

    /// The block that has this byte, and its first byte.
    pub fn block_at(&self, address: u64) -> Option<(u64, &Block)> {
        let (start, block) = self.memory.blocks.range(..=address).next_back()?;
        (address - start < block.bytes).then_some((*start, block))
    }

    /// Takes a block out and gives its memory back. No operation on it runs; `call` is what frees it.
    pub fn free_block(&mut self, start: u64, call: &'static str) {
        let Some(block) = self.memory.blocks.remove(&start) else { return };
        if block.is_host() {
            self.memory.pinned = self.memory.pinned.saturating_sub(block.bytes);
        }
        self.races.ledger.forget(block.base, block.span);
        if block.holder == Holder::Managed {
            self.memory.hints.forget(block.base, block.span);
            self.memory.attachments.remove(&start);
        }
        self.discharge(block.device, block.charged);
        if !matches!(block.holder, Holder::Registered(_)) {
            Arena::shut(block.base, block.span);
            self.memory.give(block.base, block.span);
            let (base, span) = (block.base, block.span);
            self.memory.remember(base, span, Past::Block(block, start, call));
        }
    }
}

/// Bytes before the block, bytes taken, their alignment, and bytes of device memory counted.
pub fn shape(bytes: u64) -> (u64, u64, u64, u64) {
    if bytes >= LARGE {
        let span = bytes.next_multiple_of(CHUNK);
        return (0, span, CHUNK, span);
    }
    let span = (SMALL_ALIGN + bytes).next_multiple_of(PAGE);
    (SMALL_ALIGN, span, PAGE, bytes.next_multiple_of(SMALL_ALIGN))
}
