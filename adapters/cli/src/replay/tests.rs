//! Replays on pools whose every result is known.

use super::*;
use std::fmt::Write;
use terrace::engine::{AllocError, Allocator, Block, Cause, FreeError, Owner, Request, Stats};
use terrace::recording::Reader;
use terrace_replay::pools::{NewPool, PoolFactory, SourceKind};

/// An allocator that allocates at rising addresses and reuses none: the cheapest pool possible. Refuses sizes above
/// `limit`, resizes in place if `in_place`, and counts calls.
#[derive(Debug, Default)]
struct Bump {
    next: u64,
    limit: u64,
    in_place: bool,
    stats: Stats,
}

impl Allocator for Bump {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        if request.bytes > self.limit {
            return Err(AllocError::new(Cause::OutOfMemory, request.bytes));
        }
        let address = self.next.next_multiple_of(request.align);
        self.next = address + request.bytes;
        self.stats.allocations += 1;
        self.stats.reserved = self.next;
        self.stats.peak_reserved = self.next;
        Ok(Block { address, bytes: request.bytes, slot: 0, region: 0, ticket: 0 })
    }

    fn free(&mut self, _: Block, _: Owner) -> Result<(), FreeError> {
        self.stats.frees += 1;
        Ok(())
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        if self.in_place && bytes <= self.limit {
            return Ok(Block { bytes, ..block });
        }
        Err(AllocError::new(Cause::NoRoom, bytes))
    }

    fn trim(&mut self) -> u64 {
        // Returns all memory if all blocks were freed, otherwise none.
        if self.stats.frees == self.stats.allocations { std::mem::take(&mut self.stats.reserved) } else { 0 }
    }

    fn stats(&self) -> Stats {
        self.stats
    }
}

fn moving(_: &PoolSetup) -> NewPool {
    Ok(Box::new(Bump { limit: 1000, ..Bump::default() }))
}

fn in_place(_: &PoolSetup) -> NewPool {
    Ok(Box::new(Bump { limit: 1000, in_place: true, ..Bump::default() }))
}

fn endless(_: &PoolSetup) -> NewPool {
    Ok(Box::new(Bump { limit: u64::MAX, ..Bump::default() }))
}

/// Replays lines of a trace; returns the row.
fn replay(make: fn(&PoolSetup) -> NewPool, lines: &str, min_size: u64) -> PoolRow {
    let csv = format!("t,op,id,size,align,stream,tag\n{lines}");
    let clock = Clock::new();
    let mut reader = OperationReader::new(Reader::new("test", csv.as_bytes()).unwrap(), min_size, false);
    let factory = PoolFactory { name: "bump", source: None, make };
    let mut run = PoolReplay::new(&factory, &PoolSetup::new(SourceKind::Growing, None, 0)).unwrap();
    let (mut chunk, mut timeline, mut events) = (Chunk::default(), Timeline::default(), 0);
    loop {
        reader.fill(&mut chunk, &timeline).unwrap();
        if chunk.operations.is_empty() {
            break;
        }
        run.replay(&chunk, events, &clock).unwrap();
        events += chunk.operations.len() as u64;
        timeline.extend(&chunk.points, [run.reserved_mut()].into_iter());
        assert_eq!(run.reserved_mut().len(), timeline.points().len());
    }
    run.finish("test", events, &clock).unwrap()
}

#[test]
fn what_failed_on_a_pool_is_skipped_on_it_later() {
    let lines = "0,a,0,1001,16,0,\n0,r,0,10,16,0,\n0,f,0,,,0,\n0,a,1,500,16,0,\n";
    let row = replay(moving, lines, 0);
    assert_eq!((row.failed, row.events, row.peak_live_bytes, row.peak_reserved_bytes), (1, 4, 500, 500));
    assert_eq!(row.reserved_after_trim, 0);
}

#[test]
fn a_reallocation_moves_where_it_cannot_stay() {
    let lines = "0,a,0,100,16,0,\n0,r,0,200,16,0,\n";
    assert_eq!(replay(moving, lines, 0).peak_reserved_bytes, 112 + 200);
    assert_eq!(replay(in_place, lines, 0).peak_reserved_bytes, 100);
    // The second block is at 112, which is no multiple of 64: it must move to 128 although the pool could resize.
    let aligned = "0,a,0,100,16,0,\n0,a,1,8,16,0,\n0,r,1,8,64,0,\n";
    assert_eq!(replay(in_place, aligned, 0).peak_reserved_bytes, 128 + 8);
}

#[test]
fn a_failed_reallocation_keeps_the_old_block() {
    for make in [moving, in_place] {
        let row = replay(make, "0,a,0,100,16,0,\n0,r,0,2000,16,0,\n0,f,0,,,0,\n", 0);
        assert_eq!((row.failed, row.peak_live_bytes, row.reserved_after_trim), (1, 100, 0));
    }
}

#[test]
fn small_blocks_are_left_out_whole() {
    let lines = "0,a,0,16,16,0,\n0,a,1,17,16,0,\n0,r,0,900,16,0,\n0,f,0,,,0,\n0,a,2,17,16,0,\n0,f,1,,,0,\n";
    let row = replay(moving, lines, 17);
    assert_eq!((row.events, row.peak_live_bytes), (3, 34));
}

/// Prints the cost of the replay itself: `cargo test --release -p terrace-cli bump -- --nocapture`.
#[test]
fn many_chunks_on_the_bump_pool() {
    let mut lines = String::new();
    for id in 0..400_000u64 {
        writeln!(lines, "{id},a,{id},{},16,0,x", 64 + id % 64).unwrap();
        if id >= 100 {
            writeln!(lines, "{id},f,{},,,0,", id - 100).unwrap();
        }
    }
    let row = replay(endless, &lines, 0);
    assert_eq!((row.events, row.failed, row.reserved_after_trim), (799_900, 0, 0));
    // Each block is freed after the 100 allocations that follow it, so 101 blocks are live at once: the peak is the
    // largest sum of 101 consecutive sizes.
    let sizes = |last: u64| (last - 100..=last).map(|id| 64 + id % 64).sum::<u64>();
    assert_eq!(row.peak_live_bytes, (100..400_000).map(sizes).max().unwrap());
    println!("the loop costs {} ns an event (p50 {}, p99 {})", row.ns_mean, row.ns_p50, row.ns_p99);
}
