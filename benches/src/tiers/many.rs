//! Many small buffers: what one costs, and how long a directory with many named ones takes to open.
//!
//! Promises upward: every buffer is written and read once, and compared; of those that a new manager finds, their number, and the
//! bytes of some.
//! Asks from below: the manager's blocking calls; for the named ones many futures in flight, since each alone waits for the disk.

use super::calls::FILES;
use super::home::{Place, Turn};
use super::results::Timed;
use super::who::Engine;
use futures_lite::future::block_on;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use std::ops::Range;
use terrace::Manager;
use terrace::tiers::ledger::PlacementHint;
use terrace::tiers::{BufferOptions, ManagerBuilder};
use terrace_raw::{Error, timed};

/// Bytes of a buffer.
const BYTES: usize = 100;

/// Named buffers that are written before any of them becomes durable: between commits the disk writes few.
const GROUP: usize = 16_384;

/// Writes in flight.
const IN_FLIGHT: usize = 256;

/// Buffers without names.
fn tiny(place: &Place) -> usize {
    if place.quick { 1000 } else { 100_000 }
}

/// Named buffers.
fn named(place: &Place) -> usize {
    if place.quick { 1000 } else { 1_000_000 }
}

fn contents(number: usize) -> [u8; BYTES] {
    std::array::from_fn(|at| (number.wrapping_mul(31) >> (at % 8)) as u8 ^ at as u8)
}

fn same(number: usize, bytes: &[u8]) -> Result<(), Error> {
    match bytes == contents(number) {
        true => Ok(()),
        false => Err(format!("buffer {number} has bytes that were not written into it").into()),
    }
}

/// Allocates, writes, reads and frees buffers of 100 B, with memory for twice as many.
///
/// # Errors
/// The manager's; wrong bytes.
pub fn tiny_turn(place: &Place, round: usize) -> Result<Vec<Timed>, Error> {
    let (turn, count) = (place.turn()?, tiny(place));
    let manager = turn.manager(Engine::Ring).memory(128 << 20).build()?;
    let allocate = |_| -> Result<_, Error> { Ok(manager.allocate(BYTES as u64)?) };
    let (buffers, allocated) = timed(|| (0..count).map(allocate).collect::<Result<Vec<_>, Error>>())?;
    let ((), written) = timed(|| {
        let mut all = buffers.iter().enumerate();
        Ok(all.try_for_each(|(number, buffer)| buffer.write(0, &contents(number)))?)
    })?;
    let ((), read) = timed(|| {
        let (mut all, mut bytes) = (buffers.iter().enumerate(), [0; BYTES]);
        all.try_for_each(|(number, buffer)| -> Result<(), Error> {
            buffer.read(0, &mut bytes)?;
            same(number, &bytes)
        })
    })?;
    let ((), freed) = timed(|| {
        drop(buffers);
        Ok(())
    })?;
    let phase = |(what, cost)| Timed { what: format!("100 B, {what}"), round, count, cost };
    Ok([("allocate", allocated), ("write", written), ("read", read), ("free", freed)].map(phase).into())
}

/// A directory with many named buffers.
#[derive(Debug)]
pub struct Named {
    turn: Turn,
    count: usize,
}

impl Named {
    /// Makes it; also how long that took.
    ///
    /// # Errors
    /// The manager's.
    pub fn new(place: &Place) -> Result<(Self, Timed), Error> {
        let made = Self { turn: place.turn()?, count: named(place) };
        let manager = made.builder().build()?;
        let ((), cost) = timed(|| {
            for first in (0..made.count).step_by(GROUP) {
                block_on(durable(&manager, first..(first + GROUP).min(made.count)))?;
            }
            Ok(())
        })?;
        drop(manager);
        let timed = Timed { what: "named 100 B, made durable".into(), round: 0, count: made.count, cost };
        Ok((made, timed))
    }

    /// Memory for what describes all, and room for a page of each, and for their log.
    fn builder(&self) -> ManagerBuilder {
        let count = self.count as u64;
        let builder = Manager::builder().memory((64 << 20) + count * 2048).engine(Engine::Ring.kind());
        builder.directory_of(self.turn.directory(), (256 << 20) + count * 12_288)
    }

    /// Builds a manager on it.
    ///
    /// # Errors
    /// The manager's; buffers are missing, or have wrong bytes.
    pub fn reopen(&self, round: usize) -> Result<Timed, Error> {
        let (manager, cost) = timed(|| Ok(self.builder().build()?))?;
        let found = manager.list().len();
        if found != self.count {
            return Err(format!("{found} of {} named buffers were found", self.count).into());
        }
        let mut bytes = [0; BYTES];
        for number in (0..self.count).step_by(self.count / 100) {
            manager.open(&number.to_string())?.read(0, &mut bytes)?;
            same(number, &bytes)?;
        }
        Ok(Timed { what: "named 100 B, build()".into(), round, count: self.count, cost })
    }
}

/// Makes named buffers durable together. They are allocated in files: from memory each would be copied there first.
async fn durable(manager: &Manager, numbers: Range<usize>) -> Result<(), Error> {
    let write = |number: usize| async move {
        let hint = PlacementHint { tier: Some(FILES), ..PlacementHint::default() };
        let options = BufferOptions { name: Some(number.to_string()), hint, ..BufferOptions::default() };
        let buffer = manager.allocate_async(BYTES as u64, options).await?;
        buffer.write_async(0, contents(number)).await?;
        Ok::<_, Error>(buffer)
    };
    let written: Vec<_> = iter(numbers).map(write).buffer_unordered(IN_FLIGHT).try_collect().await?;
    let synced: Vec<_> = written.iter().map(|buffer| manager.sync_async(buffer)).collect();
    for sync in synced {
        sync.await?;
    }
    Ok(())
}
