//! The dumb model of any allocator: a list of live blocks and a list of dead names.
//!
//! Promises upward: after each step, every rule of the contract that a list can tell. Each rule is a sentence.
//! Asks from below: the public face of an allocator.

use crate::failure::{Broken, rule};
use crate::program::{Forgery, Step};
use std::collections::HashSet;
use terrace_core::{AllocError, Allocator, Block, Owner, Request, Stats};

/// A live block, and what was asked.
pub type Live = (Block, Request);

/// Trims after which work in flight counts as never ending: more than the ticks of any fence in our tests.
const PATIENCE: u32 = 16;

/// What an allocator must hold: the blocks that are live, and the names that no longer are.
#[derive(Debug)]
pub struct Model {
    live: Vec<Live>,
    /// Names that are no longer live: freed, or resized.
    dead: Vec<Block>,
    tickets: HashSet<u64>,
    peak_in_use: u64,
    peak_live: usize,
    /// Bytes reserved when nothing was asked yet: what it was made with, and may keep.
    kept: u64,
}

impl Model {
    /// The model of an allocator that nothing was asked of yet.
    pub fn new(allocator: &dyn Allocator) -> Self {
        let kept = allocator.stats().reserved;
        Self { live: Vec::new(), dead: Vec::new(), tickets: HashSet::new(), peak_in_use: 0, peak_live: 0, kept }
    }

    /// Live blocks, with what was asked; the last is the newest.
    pub fn live(&self) -> &[Live] {
        &self.live
    }

    /// Names that are no longer live.
    pub fn dead(&self) -> &[Block] {
        &self.dead
    }

    /// Makes one step and compares.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn step(&mut self, allocator: &mut dyn Allocator, step: &Step) -> Result<(), Broken> {
        let before = allocator.stats();
        match *step {
            Step::Allocate(request) => _ = self.allocate(allocator, request)?,
            Step::Batch(count, request) => self.batch(allocator, count, request)?,
            Step::Free(at, owner) => {
                if let Some(at) = pick(self.live.len(), at) {
                    self.free(allocator, at, owner)?;
                }
            }
            Step::FreeDead(at) => {
                if let Some(at) = pick(self.dead.len(), at) {
                    refused_free(allocator, self.dead[at])?;
                }
            }
            Step::FreeForged(at, how) => {
                if let Some(at) = pick(self.live.len(), at) {
                    refused_free(allocator, forge(self.live[at].0, how))?;
                }
            }
            Step::Resize(at, bytes) => {
                if let Some(at) = pick(self.live.len(), at) {
                    self.resize(allocator, at, bytes)?;
                }
            }
            Step::ResizeDead(at, bytes) => {
                if let Some(at) = pick(self.dead.len(), at) {
                    let resized = allocator.resize(self.dead[at], bytes);
                    rule(resized.is_err(), "resizing a dead name is refused", || format!("{:?}", self.dead[at]))?;
                    unchanged(&before, &allocator.stats())?;
                }
            }
            Step::Bad(request) => {
                let result = allocator.allocate(request);
                rule(result.is_err(), "what cannot be given is refused", || format!("{request:?} gave {result:?}"))?;
                nothing_handed_out(&before, &allocator.stats(), request)?;
            }
            Step::Trim => trim(allocator)?,
        }
        self.compare(allocator)
    }

    /// Asks once. Whether a block was had.
    fn allocate(&mut self, allocator: &mut dyn Allocator, request: Request) -> Result<bool, Broken> {
        let before = allocator.stats();
        let result = allocator.allocate(request);
        let after = allocator.stats();
        match result {
            Ok(block) => {
                self.add(block, request, request.align)?;
                let counted = after.allocations == before.allocations + 1 && after.frees == before.frees;
                rule(counted, "a block handed out is one allocation", || format!("{before:?} became {after:?}"))?;
            }
            Err(AllocError { asked, .. }) => {
                rule(asked == request.bytes, "an error says what was asked", || format!("{asked} for {request:?}"))?;
                nothing_handed_out(&before, &after, request)?;
            }
        }
        Ok(result.is_ok())
    }

    /// All or nothing, with the means every allocator has.
    fn batch(&mut self, allocator: &mut dyn Allocator, count: u32, request: Request) -> Result<(), Broken> {
        let before = self.live.len();
        for _ in 0..count {
            if !self.allocate(allocator, request)? {
                while self.live.len() > before {
                    self.free(allocator, self.live.len() - 1, None)?;
                }
                break;
            }
        }
        Ok(())
    }

    fn free(&mut self, allocator: &mut dyn Allocator, at: usize, owner: Option<Owner>) -> Result<(), Broken> {
        let before = allocator.stats();
        let (block, request) = self.live.swap_remove(at);
        let freed = allocator.free(block, owner.unwrap_or(request.owner));
        rule(freed.is_ok(), "a live block can be freed", || format!("{block:?} gave {freed:?}"))?;
        self.dead.push(block);
        let after = allocator.stats();
        let counted = after.frees == before.frees + 1 && after.allocations == before.allocations;
        rule(counted, "a block taken back is one free", || format!("{before:?} became {after:?}"))
    }

    fn resize(&mut self, allocator: &mut dyn Allocator, at: usize, bytes: u64) -> Result<(), Broken> {
        let before = allocator.stats();
        let (old, request) = self.live[at];
        let result = allocator.resize(old, bytes);
        let after = allocator.stats();
        let Ok(new) = result else { return unchanged(&before, &after) };
        let counted = (after.allocations, after.frees) == (before.allocations, before.frees);
        rule(counted, "a resize is no allocation and no free", || format!("{before:?} became {after:?}"))?;
        rule(new.address == old.address, "a resize moves nothing", || format!("{old:?} became {new:?}"))?;
        self.live.swap_remove(at);
        self.dead.push(old);
        self.add(new, Request { bytes, ..request }, 1)
    }

    /// A block came: is it what was asked, and nobody else's?
    fn add(&mut self, block: Block, request: Request, align: u64) -> Result<(), Broken> {
        rule(block.bytes >= request.bytes, "a block is as large as asked", || format!("{block:?}, {request:?}"))?;
        let aligned = block.address.is_multiple_of(align);
        rule(aligned, "a block is aligned as asked", || format!("{block:?}, {request:?}"))?;
        let end = block.address.checked_add(block.bytes);
        rule(end.is_some(), "a block ends within 64 bits", || format!("{block:?}"))?;
        let apart =
            |other: &Block| end <= Some(other.address) || other.address.checked_add(other.bytes) <= Some(block.address);
        let other = self.live.iter().find(|(other, _)| !apart(other));
        rule(other.is_none(), "live blocks never overlap", || format!("{block:?} and {other:?}"))?;
        rule(self.tickets.insert(block.ticket), "a ticket is never used twice", || format!("{block:?}"))?;
        self.live.push((block, request));
        Ok(())
    }

    /// Everything the statistics must say now, and the allocator's own check.
    fn compare(&mut self, allocator: &dyn Allocator) -> Result<(), Broken> {
        let stats = allocator.stats();
        let in_use: u64 = self.live.iter().map(|(block, _)| block.bytes).sum();
        let asked: u64 = self.live.iter().map(|(_, request)| request.bytes).sum();
        self.peak_in_use = self.peak_in_use.max(in_use);
        self.peak_live = self.peak_live.max(self.live.len());
        let seen = || format!("{stats:?}; in live blocks {in_use}, asked {asked}, blocks {}", self.live.len());
        let live = self.live.len() as u64;
        let requested = stats.requested == asked || stats.requested == stats.in_use;
        // Bytes skipped for an alignment may count as rounding: fewer than the alignment for each block.
        let skipped: u64 = self.live.iter().map(|(_, request)| request.align - 1).sum();
        let counted = (in_use..=in_use + skipped).contains(&stats.in_use);
        rule(counted, "in_use is the sum of the live blocks, and at most what their alignments cost", seen)?;
        rule(requested, "requested is the sum of what was asked, or in_use", seen)?;
        rule(stats.live_blocks == live, "live_blocks counts the live blocks", seen)?;
        rule(stats.peak_in_use >= self.peak_in_use, "peak_in_use is the highest in_use", seen)?;
        rule(stats.peak_live_blocks >= self.peak_live as u64, "peak_live_blocks is the highest live_blocks", seen)?;
        equations(&stats)?;
        let checked = allocator.check();
        rule(checked.is_ok(), "check() finds nothing", || format!("{checked:?}"))
    }

    /// Frees everything, newest and oldest in turn, and trims: nothing is left, but what waits for work `in_flight`.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn finish(&mut self, allocator: &mut dyn Allocator, in_flight: bool) -> Result<(), Broken> {
        while !self.live.is_empty() {
            let at = if self.live.len().is_multiple_of(2) { 0 } else { self.live.len() - 1 };
            self.free(allocator, at, None)?;
        }
        trim(allocator)?;
        // Work in flight may need to be asked about a few times; one pending byte keeps a whole segment.
        for _ in 0..if in_flight { PATIENCE } else { 0 } {
            trim(allocator)?;
        }
        self.compare(allocator)?;
        for &name in &self.dead {
            refused_free(allocator, name)?;
        }
        let stats = allocator.stats();
        let given = stats.reserved <= self.kept || (in_flight && stats.pooled > 0);
        rule(given, "after everything was freed and trimmed, what the source gave has gone back", || {
            format!("{stats:?}")
        })
    }
}

fn pick(count: usize, at: u64) -> Option<usize> {
    (count > 0).then(|| (at % count as u64) as usize)
}

fn forge(block: Block, how: Forgery) -> Block {
    match how {
        Forgery::Ticket => Block { ticket: block.ticket ^ 1 << 41, ..block },
        Forgery::Slot => Block { slot: block.slot ^ 1, ..block },
        Forgery::FarSlot => Block { slot: block.slot ^ 1 << 31, ..block },
    }
}

fn refused_free(allocator: &mut dyn Allocator, name: Block) -> Result<(), Broken> {
    let before = allocator.stats();
    let freed = allocator.free(name, Owner(0));
    rule(freed.is_err(), "freeing a name that is not live is refused", || format!("{name:?}"))?;
    unchanged(&before, &allocator.stats())
}

/// A refused free or resize changed nothing but, perhaps, the count of failures.
fn unchanged(before: &Stats, after: &Stats) -> Result<(), Broken> {
    let same = *before == Stats { failed: before.failed, ..*after };
    rule(same && after.failed >= before.failed, "a refused call changes nothing", || {
        format!("{before:?} became {after:?}")
    })
}

/// A refused allocation may have looked for memory (trimmed, asked the source), but no block came or went; it is counted.
pub(crate) fn nothing_handed_out(before: &Stats, after: &Stats, request: Request) -> Result<(), Broken> {
    let key = |stats: &Stats| (stats.in_use, stats.requested, stats.live_blocks, stats.capacity);
    let seen = || format!("{request:?}: {before:?} became {after:?}");
    rule(key(before) == key(after), "a refused allocation hands nothing out", seen)?;
    rule(after.reserved <= before.reserved, "a refused allocation keeps no new memory", seen)?;
    rule(after.failed > before.failed, "a refused allocation is counted as failed", seen)
}

fn trim(allocator: &mut dyn Allocator) -> Result<(), Broken> {
    let before = allocator.stats();
    let given = allocator.trim();
    let after = allocator.stats();
    let seen = || format!("{given}: {before:?} became {after:?}");
    let key = |stats: &Stats| (stats.in_use, stats.live_blocks, stats.allocations, stats.frees, stats.failed);
    rule(key(&before) == key(&after), "trim touches no live block", seen)?;
    rule(before.reserved.checked_sub(after.reserved) == Some(given), "trim says what it gave back", seen)
}

/// The equations that stand beside `Stats`.
fn equations(stats: &Stats) -> Result<(), Broken> {
    let seen = || format!("{stats:?}");
    rule(stats.in_use <= stats.reserved, "in_use <= reserved", seen)?;
    rule(stats.reserved <= stats.peak_reserved, "reserved <= peak_reserved", seen)?;
    rule(stats.requested <= stats.in_use, "requested <= in_use", seen)?;
    rule(stats.in_use <= stats.peak_in_use, "in_use <= peak_in_use", seen)?;
    rule(stats.live_blocks <= stats.peak_live_blocks, "live_blocks <= peak_live_blocks", seen)?;
    let live = stats.allocations.checked_sub(stats.frees) == Some(stats.live_blocks);
    rule(live, "allocations - frees = live_blocks", seen)?;
    rule(stats.hits + stats.misses == stats.allocations, "hits + misses = allocations", seen)?;
    let counted = (stats.allocated_bytes, stats.freed_bytes) != (0, 0);
    let bytes = !counted || stats.allocated_bytes.checked_sub(stats.freed_bytes) == Some(stats.in_use);
    rule(bytes, "allocated_bytes - freed_bytes = in_use", seen)?;
    rule(stats.in_use + stats.pooled <= stats.reserved, "in_use + pooled <= reserved", seen)?;
    rule(stats.largest_free <= stats.reserved - stats.in_use, "largest_free <= reserved - in_use", seen)
}
