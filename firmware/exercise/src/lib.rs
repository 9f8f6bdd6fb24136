//! What every board does with its heap.
//!
//! Promises upward: [`run`] prints `PASS` as its last line iff every check held.
//! Asks from below: a global allocator, and somewhere to print.
#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use measure::Random;
use terrace_embedded::HeapStats;

/// Rounds of [`rounds`]: each frees a block and allocates another.
const ROUNDS: usize = 600;
/// Blocks that live at once in them.
const LIVE: usize = 20;
/// The largest of them in bytes: 20 of 8..200 bytes fill a quarter of the smallest board's arena of 8 KiB.
const LARGEST: usize = 200;

/// Uses the global allocator in every way, checks what it holds, and says so. `state`: bytes of the heap's own.
///
/// # Errors
/// Only what printing says.
pub fn run(out: &mut impl Write, state: usize, stats: fn() -> HeapStats) -> fmt::Result {
    let before = stats();
    writeln!(out, "state {state} bytes, arena {} bytes, tables {} bytes", before.total, before.tables)?;
    let checks = collections().and_then(|()| rounds()).and_then(|()| out_of_memory(before.total));
    let after = stats();
    writeln!(out, "{after}")?;
    match checks {
        Err(what) => writeln!(out, "FAIL: {what}"),
        Ok(()) if after.live != before.live => writeln!(out, "FAIL: bytes are still live"),
        Ok(()) if after.counters.failures == 0 => writeln!(out, "FAIL: no request failed"),
        Ok(()) => writeln!(out, "PASS"),
    }
}

fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

/// Box, Vec, String and BTreeMap.
fn collections() -> Result<(), &'static str> {
    let boxed = Box::new([7u64; 4]);
    let vec: Vec<u16> = (0..300).collect();
    let mut text = String::new();
    (0..100).try_for_each(|i| write!(text, "{i} ")).map_err(|_| "a String takes what is written")?;
    let map: BTreeMap<u32, Box<u32>> = (0..40).map(|i| (i * 7 % 40, Box::new(i))).collect();
    ensure(*boxed == [7; 4] && (&raw const *boxed).addr().is_multiple_of(8), "a Box holds what it was given")?;
    ensure(vec.iter().map(|&i| u32::from(i)).sum::<u32>() == 44_850, "a Vec grows and keeps its items")?;
    ensure(text.len() == 290 && text.ends_with("98 99 "), "a String grows and keeps its text")?;
    ensure(map.len() == 40 && map.iter().all(|(key, i)| **i * 7 % 40 == *key), "a BTreeMap finds its entries")
}

/// Random blocks, each filled with a byte of its own and looked at before it is freed.
fn rounds() -> Result<(), &'static str> {
    let mut random = Random(1);
    let mut live: [Option<(u8, Box<[u8]>)>; LIVE] = Default::default();
    let holds = |(fill, block): &(u8, Box<[u8]>)| block.iter().all(|byte| byte == fill);
    for round in 0..ROUNDS {
        let place = &mut live[random.below(LIVE)];
        ensure(place.take().is_none_or(|old| holds(&old)), "a block keeps its bytes")?;
        let (fill, mut new) = (round as u8, Vec::new());
        new.resize(8 + random.below(LARGEST - 8), fill);
        *place = Some((fill, new.into_boxed_slice()));
    }
    ensure(live.iter().flatten().all(holds), "the last blocks too")
}

/// More than there is, at once and bit by bit; then all of it again.
fn out_of_memory(arena: usize) -> Result<(), &'static str> {
    let reserve = |bytes| {
        let mut vec: Vec<u8> = Vec::new();
        vec.try_reserve_exact(bytes).is_ok().then_some(vec)
    };
    ensure(reserve(arena).is_none(), "a request as large as the arena fails")?;
    ensure(reserve(isize::MAX as usize).is_none(), "so does the largest there is")?;
    // At most 40 pieces of a fortieth; fewer, since the heap's tables take some, and the boards' own blocks.
    let pieces: [_; 40] = core::array::from_fn(|_| reserve(arena / 40));
    let had = pieces.iter().flatten().count();
    ensure((30..40).contains(&had), "most of the arena can be had in pieces, and not all of it")?;
    drop(pieces);
    ensure(reserve(arena / 2).is_some(), "what was freed is one block again")
}
