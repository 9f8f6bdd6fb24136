//! Random programs for allocators.
//!
//! Promises upward: every kind of call occurs, good and bad; each program has a mood of its own (how large, how aligned,
//! how much more is allocated than freed), so that some fill the allocator up and some keep it nearly empty.
//! Asks from below: random numbers.

use crate::Random;
use terrace_core::{Owner, Request};

/// How a name is made that was never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A live block's name with a ticket that was never given.
    Ticket,
    /// A live block's name with another slot.
    Slot,
    /// A live block's name with a slot far outside.
    FarSlot,
}

/// One step. Blocks are picked by number, modulo how many there are; a step without anything to pick does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for a block.
    Allocate(Request),
    /// Ask for several equal blocks; give back what was had when one fails.
    Batch(u32, Request),
    /// Give a live block back, by its owner or by another one.
    Free(u64, Option<Owner>),
    /// Give a dead name back: must be refused.
    FreeDead(u64),
    /// Give a name back that was never given: must be refused.
    FreeForged(u64, Forgery),
    /// Resize a live block.
    Resize(u64, u64),
    /// Resize a dead name: must be refused.
    ResizeDead(u64, u64),
    /// Ask for what no allocator may give: must be refused.
    Bad(Request),
    /// Give unused memory back.
    Trim,
}

/// What programs are made of.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Steps of a program.
    pub steps: u64,
    /// Largest request in bytes.
    pub largest: u64,
    /// Largest alignment in bytes.
    pub align: u64,
    /// Owners 0 to this, exclusive.
    pub owners: u64,
    /// Whether blocks are also freed by others than who asked.
    pub remote: bool,
}

/// How one program is.
struct Mood {
    largest: u64,
    /// One request in so many has an alignment.
    aligned: u64,
    /// Of 16 steps, how many allocate.
    eager: u64,
}

/// A program.
pub(crate) fn program(shape: &Shape, random: &mut Random) -> Vec<Step> {
    let mood = Mood {
        largest: random.size(shape.largest).max(64.min(shape.largest)),
        aligned: 1 + random.below(8),
        eager: 5 + random.below(4),
    };
    (0..shape.steps).map(|_| step(shape, &mood, random)).collect()
}

fn step(shape: &Shape, mood: &Mood, random: &mut Random) -> Step {
    let at = random.next();
    match random.below(16) {
        n if n < mood.eager => Step::Allocate(request(shape, mood, random)),
        n if n < 10 => Step::Free(at, other(shape, random)),
        10 => Step::Batch(2 + random.below(6) as u32, request(shape, mood, random)),
        11 => Step::FreeDead(at),
        12 => Step::FreeForged(at, [Forgery::Ticket, Forgery::Slot, Forgery::FarSlot][random.below(3) as usize]),
        13 | 14 => Step::Resize(at, size(mood, random)),
        _ => rare(mood, at, random),
    }
}

fn rare(mood: &Mood, at: u64, random: &mut Random) -> Step {
    let bad = [Request::new(0), Request::new(u64::MAX), Request::new(8).align(3), Request::new(8).align(0)];
    match random.below(4) {
        0 => Step::Bad(bad[random.below(4) as usize]),
        1 => Step::ResizeDead(at, size(mood, random)),
        _ => Step::Trim,
    }
}

/// Who frees, when it is somebody else.
fn other(shape: &Shape, random: &mut Random) -> Option<Owner> {
    (shape.remote && random.once_in(4)).then(|| Owner(random.below(shape.owners) as u32))
}

fn request(shape: &Shape, mood: &Mood, random: &mut Random) -> Request {
    let align = if random.once_in(mood.aligned) { 1 << random.below(u64::from(shape.align.ilog2()) + 1) } else { 1 };
    Request::new(size(mood, random)).align(align).owner(Owner(random.below(shape.owners) as u32))
}

/// Any size; or a power of two, or one byte beside it: where rounding goes wrong first.
fn size(mood: &Mood, random: &mut Random) -> u64 {
    let size = random.size(mood.largest);
    match random.below(6) {
        0 => 1 << size.ilog2(),
        1 => ((1u64 << size.ilog2()) + 1).min(mood.largest),
        2 => (1u64 << size.ilog2()).saturating_sub(1).max(1),
        _ => size,
    }
}
