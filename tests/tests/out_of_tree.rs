//! An allocator and a source as somebody else would write them, with nothing but the public traits: the suites take them,
//! and find each of a list of mistakes made in them on purpose.

use terrace::engine::{
    AllocError, Allocator, Block, Cause, FreeError, Owner, Region, Request, Source, SourceError, SourceUsage, Stats,
    Violation,
};
use terrace_tests::{Contract, Failure, contract, source_contract};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    Overlap,
    Misaligned,
    Short,
    DoubleFree,
    ForgedFree,
    TicketAgain,
    RefusalTakes,
    WrongCount,
    Leak,
    FreeLoses,
    Panics,
    NoError,
    ResizeMoves,
    OldNameLives,
    TrimLies,
    FailedUncounted,
    CheckFails,
}

/// A bump allocator with one list of what came back: takes chunks of 64 KiB from a source, and gives all of them back when
/// nothing is live.
struct Bump<S> {
    source: S,
    chunks: Vec<Region>,
    /// Next free address and end of the last chunk.
    next: u64,
    end: u64,
    /// Free pieces: address, bytes.
    free: Vec<(u64, u64)>,
    live: Vec<Block>,
    ticket: u64,
    stats: Stats,
    bug: Bug,
}

/// Bytes asked from the source at once.
const CHUNK: u64 = 64 << 10;

impl<S: Source> Bump<S> {
    fn new(source: S, bug: Bug) -> Self {
        let stats = Stats { capacity: source.usage().capacity, ..Stats::default() };
        let (chunks, free, live) = (Vec::new(), Vec::new(), Vec::new());
        Self { source, chunks, next: 0, end: 0, free, live, ticket: 0, stats, bug }
    }

    fn place(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fits = |&(address, size): &(u64, u64)| size >= bytes && address.is_multiple_of(align);
        if let Some(at) = self.free.iter().position(fits) {
            let (address, size) = self.free.swap_remove(at);
            if size > bytes {
                self.free.push((address + bytes, size - bytes));
            }
            return Some(address);
        }
        let start = self.next.next_multiple_of(align);
        if start + bytes > self.end {
            return None;
        }
        if start > self.next {
            self.free.push((self.next, start - self.next));
        }
        self.next = start + bytes;
        Some(start)
    }

    fn grow(&mut self, bytes: u64) -> Result<(), Cause> {
        self.stats.source_calls += 1;
        let region = self.source.take(bytes.max(CHUNK)).map_err(|error| match error {
            SourceError::OutOfMemory { .. } => Cause::OutOfMemory,
            _ => Cause::SourceFailed,
        })?;
        if self.end > self.next {
            self.free.push((self.next, self.end - self.next));
        }
        (self.next, self.end) = (region.base, region.base + region.bytes);
        self.chunks.push(region);
        self.reserve(region.bytes);
        Ok(())
    }

    fn reserve(&mut self, bytes: u64) {
        self.stats.reserved += bytes;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
    }

    fn find(&mut self, request: Request) -> Result<(u64, bool), Cause> {
        let Request { bytes, align, .. } = request;
        let too_large = bytes > 1 << 40 || align > 1 << 20;
        if self.bug == Bug::Panics && too_large {
            panic!("seeded");
        }
        if too_large {
            return Err(Cause::TooLarge);
        }
        let align = if self.bug == Bug::Misaligned { align.min(2048) } else { align };
        if let Some(address) = self.place(bytes, align) {
            return Ok((address, true));
        }
        self.grow(bytes.next_multiple_of(16) + align)?;
        self.place(bytes, align).map(|address| (address, false)).ok_or(Cause::OutOfMemory)
    }

    fn find_live(&self, block: &Block) -> Option<usize> {
        match self.bug {
            Bug::ForgedFree => self.live.iter().position(|live| live.address == block.address),
            _ => self.live.iter().position(|live| live == block),
        }
    }
}

impl<S: Source> Allocator for Bump<S> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let found = request.validate().map_err(|error| error.cause).and_then(|request| self.find(request));
        let (address, hit) = match found {
            Ok(found) => found,
            Err(cause) => {
                self.stats.failed += u64::from(self.bug != Bug::FailedUncounted);
                if self.bug == Bug::RefusalTakes && cause == Cause::OutOfMemory {
                    self.reserve(4096);
                }
                let asked = if self.bug == Bug::NoError { 0 } else { request.bytes };
                return Err(AllocError::new(cause, asked));
            }
        };
        let again = self.bug == Bug::TicketAgain && self.ticket == 50;
        self.ticket = if again { 1 } else { self.ticket + 1 };
        let bytes = request.bytes - u64::from(self.bug == Bug::Short && request.bytes == 4096);
        let block = Block { address, bytes, slot: self.live.len() as u32, region: 0, ticket: self.ticket };
        self.live.push(block);
        let stats = &mut self.stats;
        (stats.allocations, stats.live_blocks) = (stats.allocations + 1, stats.live_blocks + 1);
        (stats.hits, stats.misses) = (stats.hits + u64::from(hit), stats.misses + u64::from(!hit));
        stats.in_use += bytes + u64::from(self.bug == Bug::WrongCount && bytes == 1024);
        stats.peak_in_use = stats.peak_in_use.max(stats.in_use);
        stats.peak_live_blocks = stats.peak_live_blocks.max(stats.live_blocks);
        stats.requested = stats.in_use;
        Ok(block)
    }

    fn free(&mut self, block: Block, _: Owner) -> Result<(), FreeError> {
        let Some(at) = self.find_live(&block) else {
            // A quiet double free.
            return if self.bug == Bug::DoubleFree { Ok(()) } else { Err(FreeError::Stale { address: block.address }) };
        };
        let block = self.live.swap_remove(at);
        let longer = if self.bug == Bug::Overlap { 16 } else { 0 };
        if self.bug != Bug::FreeLoses {
            self.free.push((block.address, block.bytes + longer));
        }
        self.stats.frees += 1;
        self.stats.live_blocks -= 1;
        self.stats.in_use -= block.bytes;
        self.stats.requested = self.stats.in_use;
        Ok(())
    }

    /// Shrinks only.
    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let error = |cause| AllocError::new(cause, bytes);
        let at = self.find_live(&block).ok_or(error(Cause::NotLive))?;
        if bytes == 0 || bytes > block.bytes {
            return Err(error(Cause::NoRoom));
        }
        self.ticket += u64::from(self.bug != Bug::OldNameLives);
        let moved = if self.bug == Bug::ResizeMoves { block.bytes - bytes } else { 0 };
        let resized = Block { address: block.address + moved, bytes, ticket: self.ticket, ..block };
        self.live[at] = resized;
        if bytes < block.bytes && moved == 0 {
            self.free.push((block.address + bytes, block.bytes - bytes));
        }
        self.stats.in_use -= block.bytes - bytes;
        self.stats.requested = self.stats.in_use;
        Ok(resized)
    }

    fn trim(&mut self) -> u64 {
        if !self.live.is_empty() {
            return u64::from(self.bug == Bug::TrimLies);
        }
        let keep = usize::from(self.bug == Bug::Leak);
        let mut given = 0;
        for chunk in self.chunks.drain(keep.min(self.chunks.len())..) {
            self.stats.source_calls += 1;
            if self.source.give_back(chunk).is_ok() {
                given += chunk.bytes;
            }
        }
        self.free.clear();
        (self.next, self.end) = (0, 0);
        self.stats.reserved -= given;
        self.stats.returns += u64::from(given > 0);
        given
    }

    fn stats(&self) -> Stats {
        self.stats
    }

    fn check(&self) -> Result<(), Violation> {
        let broken = self.bug == Bug::CheckFails && self.live.len() > 9;
        if broken { Err(Violation { clause: "seeded", at: 9 }) } else { Ok(()) }
    }
}

/// A source as small as can be: numbers from 2^30 up.
#[derive(Default)]
struct Counter {
    out: Vec<Region>,
    usage: SourceUsage,
    mistake: u32,
}

impl Counter {
    fn new(mistake: u32) -> Self {
        let usage = SourceUsage { capacity: 1 << 20, ..SourceUsage::default() };
        Self { out: Vec::new(), usage, mistake }
    }
}

impl Source for Counter {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let available = self.usage.capacity - self.usage.reserved;
        if bytes == 0 {
            return Err(SourceError::Misuse("nothing asked"));
        }
        if bytes > available && self.mistake != 1 {
            self.usage.handles += u64::from(self.mistake == 2);
            return Err(SourceError::OutOfMemory { available });
        }
        self.usage.handles += 1;
        self.usage.calls += u64::from(self.mistake != 3);
        let given = if self.mistake == 4 { bytes.next_multiple_of(64) - 64 } else { bytes };
        self.usage.reserved += given;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved);
        let step = if self.mistake == 5 { 1 << 17 } else { 1 << 32 };
        let region = Region { id: self.usage.handles, base: (1 << 30) + self.usage.handles * step, bytes: given };
        self.out.push(region);
        Ok(region)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        let same = |other: &Region| if self.mistake == 6 { other.id == region.id } else { *other == region };
        match self.out.iter().position(same) {
            Some(at) => self.usage.reserved -= self.out.swap_remove(at).bytes,
            None if self.mistake == 7 => {}
            None => return Err(SourceError::Misuse("not out")),
        }
        self.usage.calls += 1;
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}

#[test]
fn an_allocator_from_elsewhere_passes_the_contract() {
    contract(|| Bump::new(Counter::new(0), Bug::None)).unwrap();
}

#[test]
fn a_source_from_elsewhere_passes_the_contract() {
    source_contract(|| Counter::new(0)).unwrap();
}

fn failure(bug: Bug) -> Failure {
    let hook = std::panic::take_hook();
    if bug == Bug::Panics {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let result = Contract::new().check(|| Bump::new(Counter::new(0), bug));
    std::panic::set_hook(hook);
    result.err().unwrap_or_else(|| panic!("{bug:?} was not found"))
}

#[test]
fn every_mistake_is_found_and_named() {
    let rules = [
        (Bug::Overlap, "live blocks never overlap"),
        (Bug::Misaligned, "a block is aligned as asked"),
        (Bug::Short, "a block is as large as asked"),
        (Bug::DoubleFree, "freeing a name that is not live is refused"),
        (Bug::ForgedFree, "freeing a name that is not live is refused"),
        (Bug::TicketAgain, "a ticket is never used twice"),
        (Bug::RefusalTakes, "a refused allocation keeps no new memory"),
        (Bug::WrongCount, "in_use is the sum of the live blocks, and at most what their alignments cost"),
        (Bug::Leak, "after everything was freed and trimmed, what the source gave has gone back"),
        (Bug::Panics, "no call panics"),
        (Bug::NoError, "an error says what was asked"),
        (Bug::ResizeMoves, "a resize moves nothing"),
        (Bug::OldNameLives, "a ticket is never used twice"),
        (Bug::TrimLies, "trim says what it gave back"),
        (Bug::FailedUncounted, "a refused allocation is counted as failed"),
        (Bug::CheckFails, "check() finds nothing"),
    ];
    for (bug, rule) in rules {
        assert_eq!(failure(bug).broken.rule, rule, "{bug:?}");
    }
}

#[test]
fn a_failure_shows_a_short_program() {
    let failure = failure(Bug::CheckFails);
    // Ten live blocks: ten allocations, or fewer steps where some are batches.
    assert!(failure.steps.len() <= 10, "{failure}");
    let text = format!("{failure:?}");
    assert!(text.contains("check() finds nothing") && text.contains("seed 0, after") && text.contains("Request {"));
}

#[test]
fn memory_lost_for_good_is_no_breach_for_a_bump_allocator_that_trims() {
    // It gives whole chunks back when all is free: lost pieces come back with them. The suite does not ask for more.
    Contract::new().check(|| Bump::new(Counter::new(0), Bug::FreeLoses)).unwrap();
}

#[test]
fn every_mistake_of_a_source_is_found() {
    let rules = [
        (1, "a source never gives more than it has"),
        (2, "a refused call changes nothing"),
        (3, "a take is one call and makes handles"),
        (4, "a region is as large as asked"),
        (5, "regions that are out share no byte and no id"),
        (6, "a region is given back under its own name"),
        (7, "a region that is not out cannot be given back"),
    ];
    for (mistake, rule) in rules {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let result = source_contract(|| Counter::new(mistake));
        std::panic::set_hook(hook);
        let failure = result.err().unwrap_or_else(|| panic!("mistake {mistake} was not found"));
        // What is too large for the counter shows as an overflow in it.
        let expected = failure.broken.rule == rule || (mistake == 1 && failure.broken.rule == "no call panics");
        assert!(expected, "{mistake}: {failure}");
    }
}
