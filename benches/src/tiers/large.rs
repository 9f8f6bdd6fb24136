//! One call that reads or writes 64 MiB of a buffer that is in files.
//!
//! Promises upward: the buffer is in files before each call, and a written one is there, and durable, before the time ends.
//! What a call has read is compared after its time; raw loops, which would compare while they read on, take checksums only.
//! Asks from below: the manager's blocking calls; the raw loops, with requests of a chunk.

use super::calls::{flush, pages};
use super::home::{Place, Turn};
use super::pieces::raw_loop;
use super::results::Sample;
use super::who::{Engine, Who};
use std::time::Instant;
use terrace::Buffer;
use terrace_raw::{Blocks, Cost, Error, Latencies, Look, Moved, Work, timed};

/// Bytes of a chunk, by which the manager stores buffers, and of a request of the raw loop.
pub const CHUNK: usize = 1 << 20;

/// Chunks in flight: as many as the manager's staging memory holds.
pub const DEPTH: usize = 8;

/// Bytes of a buffer.
pub fn buffer_bytes(place: &Place) -> usize {
    if place.quick { 2 << 20 } else { 64 << 20 }
}

/// Where the caller's memory begins, and what a line of the table says of it.
const MEMORY: [(usize, &str); 2] = [(0, ""), (64, ", memory not at a page")];

/// Runs one contestant: a write and a read of each buffer, one after another, from and into huge pages.
///
/// # Errors
/// Those of the contestant.
pub fn turn(place: &Place, who: Who, round: usize) -> Result<Vec<Sample>, Error> {
    let moved: Vec<[Moved; 2]> = match who {
        // Its memory is always at a page.
        Who::Raw(engine) => vec![raw(&place.turn()?, engine, round)?; MEMORY.len()],
        Who::Manager(engine, _) => {
            let moved = |(begin, _): &(usize, _)| manager(&place.turn()?, engine, round, *begin);
            MEMORY.iter().map(moved).collect::<Result<_, _>>()?
        }
        Who::Foyer(_) => return Err("foyer has no buffers of which parts are written".into()),
    };
    let size = buffer_bytes(place) >> 20;
    let lines = MEMORY.iter().flat_map(|(_, memory)| ["write", "read"].map(|what| (what, memory)));
    let sample =
        |(moved, (what, memory))| Sample::moved(format!("{what} of {size} MiB in files{memory}"), who, round, moved);
    Ok(moved.into_iter().flatten().zip(lines).map(sample).collect())
}

fn raw(turn: &Turn, engine: Engine, round: usize) -> Result<[Moved; 2], Error> {
    let (blocks, order) =
        (Blocks::new(CHUNK, round as u64), (0..turn.place.total() / CHUNK as u64).collect::<Vec<_>>());
    let each = buffer_bytes(&turn.place) / CHUNK;
    // As much memory as the caller has whose buffer is read and written.
    let file = turn.raw(&blocks, each)?;
    let pass = |write| -> Result<Latencies, Error> {
        let mut latencies = Latencies::default();
        for part in order.chunks(each) {
            let begun = Instant::now();
            raw_loop(&file, engine, Work { write, look: Look::Checksum, blocks: &blocks, order: part }, DEPTH)?;
            latencies.end(begun);
        }
        Ok(latencies)
    };
    // As the manager's buffers, the file has bytes already.
    pass(true)?;
    let (written, write_cost) = timed(|| {
        let latencies = pass(true)?;
        file.sync().map(|()| latencies)
    })?;
    let (read, read_cost) = timed(|| pass(false))?;
    Ok([Moved::new(turn.place.total(), write_cost, &written), Moved::new(turn.place.total(), read_cost, &read)])
}

fn manager(turn: &Turn, engine: Engine, round: usize, begin: usize) -> Result<[Moved; 2], Error> {
    let (manager, total) = (turn.manager(engine).build()?, turn.place.total());
    let mut blocks = Blocks::new(buffer_bytes(&turn.place), round as u64 + 1000);
    let count = total / blocks.bytes() as u64;
    let buffers = (0..count).map(|_| manager.allocate(blocks.bytes() as u64)).collect::<Result<Vec<_>, _>>()?;
    let mut memory = pages(blocks.bytes() + begin)?;
    let bytes = &mut memory[begin..];
    bytes.copy_from_slice(&blocks.blank());
    let write = |blocks: &Blocks, bytes: &mut [u8]| -> Result<Latencies, Error> {
        let mut latencies = Latencies::default();
        for (block, buffer) in (0..).zip(&buffers) {
            let begun = Instant::now();
            blocks.stamp(bytes, block);
            buffer.write(0, bytes)?;
            latencies.end(begun);
        }
        flush(&manager, &buffers, DEPTH, &turn.directory()).map(|()| latencies)
    };
    write(&blocks, bytes)?;
    blocks = Blocks::new(blocks.bytes(), round as u64);
    let (written, write_cost) = timed(|| write(&blocks, bytes))?;
    let (read, read_cost) = read_all(&buffers, &blocks, bytes)?;
    Ok([Moved::new(total, write_cost, &written), Moved::new(total, read_cost, &read)])
}

fn read_all(buffers: &[Buffer], blocks: &Blocks, bytes: &mut [u8]) -> Result<(Latencies, Cost), Error> {
    let (mut latencies, mut cost) = (Latencies::default(), Cost::default());
    for (block, buffer) in (0..).zip(buffers) {
        let begun = Instant::now();
        let ((), one) = timed(|| Ok(buffer.read(0, bytes)?))?;
        latencies.end(begun);
        cost.add(one);
        blocks.check(bytes, block)?;
    }
    Ok((latencies, cost))
}
