//! Puts and gets of many buffers of one size, many in flight.
//!
//! Promises upward: a put is an allocation and a write of new bytes; gets come in an order drawn by chance, the same for all.
//! Asks from below: `calls`, and the raw loops.

use super::calls::{Spare, flush, get_by_futures, get_by_threads, put_by_futures, put_by_threads};
use super::home::{Place, Turn};
use super::peer;
use super::results::{Resident, Sample};
use super::who::{Calls, Engine, Who};
use std::path::PathBuf;
use terrace_raw::{Blocks, Error, Latencies, Look, Moved, RawFile, Work, shuffled, timed};

/// Buffers of one size.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// In words.
    pub title: &'static str,
    /// Bytes of each.
    pub bytes: usize,
    /// Futures, or requests of the ring, in flight.
    pub depth: usize,
}

/// What is measured.
pub const SIZES: [Size; 2] =
    [Size { title: "64 KiB", bytes: 64 << 10, depth: 64 }, Size { title: "4 MiB", bytes: 4 << 20, depth: 16 }];

/// One round of one contestant.
#[derive(Debug)]
struct Round<'a> {
    size: Size,
    blocks: Blocks,
    /// The blocks in order, and in an order drawn by chance.
    order: Vec<u64>,
    shuffled: Vec<u64>,
    turn: &'a Turn,
}

/// Runs one contestant: a put and a get of all blocks. `foyer`: its executable, or why there is none. Also the memory of a
/// contestant in a process of its own.
///
/// # Errors
/// Those of the contestant.
pub fn turn(
    place: &Place,
    size: Size,
    who: Who,
    foyer: &Result<PathBuf, String>,
    round: usize,
) -> Result<(Vec<Sample>, Option<Resident>), Error> {
    let order: Vec<u64> = (0..place.total() / size.bytes as u64).collect();
    let shuffled = shuffled(order.clone(), round as u64 + 1);
    let turn = place.turn()?;
    let run = Round { size, blocks: Blocks::new(size.bytes, round as u64), order, shuffled, turn: &turn };
    let (moved, resident) = match who {
        Who::Raw(engine) => (run.raw(engine)?, None),
        Who::Manager(engine, calls) => (run.manager(engine, calls)?, None),
        Who::Foyer(engine) => {
            let (moved, resident) = peer::run(foyer.as_ref().map_err(String::as_str)?, &turn, size, engine, round)?;
            (moved, Some(resident))
        }
    };
    let sample = |(moved, what)| Sample::moved(format!("{} {what}", size.title), who, round, moved);
    Ok((moved.into_iter().zip(["put", "get"]).map(sample).collect(), resident))
}

/// Runs a raw loop on an engine.
///
/// # Errors
/// The system's; wrong bytes.
pub fn raw_loop(file: &RawFile, engine: Engine, work: Work<'_>, depth: usize) -> Result<Latencies, Error> {
    match engine {
        Engine::Ring => file.ring(work, depth),
        Engine::Threads => file.threads(work),
    }
}

impl Round<'_> {
    fn bytes(&self) -> u64 {
        (self.order.len() * self.size.bytes) as u64
    }

    fn raw(&self, engine: Engine) -> Result<[Moved; 2], Error> {
        let (place, requests) = (&self.turn.place, engine.requests(self.size.depth));
        let count = if place.raw_spread { place.memory() as usize / self.size.bytes } else { requests };
        let file = self.turn.raw(&self.blocks, count.max(requests))?;
        let work = Work { write: true, look: Look::All, blocks: &self.blocks, order: &self.order };
        let (put, put_cost) = timed(|| {
            let latencies = raw_loop(&file, engine, work, self.size.depth)?;
            file.sync().map(|()| latencies)
        })?;
        let work = Work { write: false, order: &self.shuffled, ..work };
        let (get, get_cost) = timed(|| raw_loop(&file, engine, work, self.size.depth))?;
        Ok([Moved::new(self.bytes(), put_cost, &put), Moved::new(self.bytes(), get_cost, &get)])
    }

    fn manager(&self, engine: Engine, calls: Calls) -> Result<[Moved; 2], Error> {
        let (manager, depth) = (self.turn.manager(engine).build()?, self.size.depth);
        let (count, spare) = (self.order.len() as u64, Spare::warm(&self.blocks, depth)?);
        let ((buffers, put), put_cost) = timed(|| {
            let (buffers, latencies) = match calls {
                Calls::Futures => put_by_futures(&manager, &self.blocks, count, &spare)?,
                Calls::Threads => put_by_threads(&manager, &self.blocks, count)?,
            };
            flush(&manager, &buffers, depth, &self.turn.directory())?;
            Ok((buffers, latencies))
        })?;
        let (get, get_cost) = timed(|| match calls {
            Calls::Futures => get_by_futures(&buffers, &self.blocks, &self.shuffled, &spare),
            Calls::Threads => get_by_threads(&buffers, &self.blocks, &self.shuffled),
        })?;
        Ok([Moved::new(self.bytes(), put_cost, &put), Moved::new(self.bytes(), get_cost, &get)])
    }
}
