//! The adversary: looks for the program whose last call takes most instructions.
//!
//! Promises upward: for each kind of call the largest count that was seen, and the program. It is no proof: what it
//! reports was reached; that nothing is above it, it cannot say. The same seed gives the same search.
//! Asks from below: someone who counts.
//!
//! First random states, made from few sizes, so that lists have heads, middles and ends, neighbours are free on both
//! sides, and a request's own list holds blocks that are just too small; then each of the best is changed a little, again
//! and again, and kept when it got no better than equal (hill climbing, with steps along a ridge).

use super::program::{Call, Outcome, Program, SLOTS};
use crate::Random;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request that is served, at the natural alignment of 8.
    Allocate,
    /// One that is served at more.
    Aligned,
    /// One that is refused.
    Failing,
    /// A block given back.
    Free,
    /// A block that is to become larger or smaller where it is, whether it can or not.
    Resize,
}

/// The worst that was found of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Instructions.
    pub count: u64,
    /// What reaches them.
    pub program: Program,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Allocate, Self::Aligned, Self::Failing, Self::Free, Self::Resize];

    /// The kind of a program, once it ran. `None`: its last call was passed over, or is none of these.
    pub fn of(program: &Program, outcome: Outcome) -> Option<Self> {
        match (program.calls.last()?, outcome) {
            (_, Outcome::Skipped | Outcome::Broken) => None,
            (Call::Allocate { .. }, Outcome::Refused) => Some(Self::Failing),
            (Call::Allocate { align: ..=3, .. }, _) => Some(Self::Allocate),
            (Call::Allocate { .. }, _) => Some(Self::Aligned),
            (Call::Free { .. }, _) => Some(Self::Free),
            (Call::Resize { .. }, _) => Some(Self::Resize),
            _ => None,
        }
    }
}

/// Counts the last call of a program, and says what it did.
pub type Count<'a> = dyn FnMut(&Program) -> Result<(u64, Outcome), String> + 'a;

/// Programs that are kept for each kind, to be changed.
const KEPT: usize = 12;
/// A program is cut off here.
const LONGEST: usize = 120;
/// Granules that end lists or cross the borders between kinds of lists, on 64 bits: exact lists end at 63, lists above
/// are an eighth of a power of two wide, and a mask for both ends of a block fits 57 granules.
const GRANULES: [u32; 16] = [1, 2, 3, 4, 8, 15, 31, 56, 57, 58, 63, 64, 70, 71, 72, 130];

/// What the search knows.
struct Search {
    random: Random,
    /// Bytes of the largest memory.
    largest: u32,
    /// Best first, for each kind.
    best: [Vec<Found>; Kind::ALL.len()],
}

/// Searches with `budget` programs, and those `known` to be bad. Returns the worst of each kind, in the order of [`Kind::ALL`].
///
/// # Errors
/// What `count` said; and [`Outcome::Broken`], with the program.
pub fn search(
    seed: u64,
    budget: usize,
    known: &[Program],
    count: &mut Count<'_>,
) -> Result<Vec<Option<Found>>, String> {
    search_within(Program::LARGEST, seed, budget, known, count)
}

/// The same, with no more memory than `largest`, at least 1 KiB.
///
/// # Errors
/// As [`search`].
pub fn search_within(
    largest: u32,
    seed: u64,
    budget: usize,
    known: &[Program],
    count: &mut Count<'_>,
) -> Result<Vec<Option<Found>>, String> {
    let mut search = Search { random: Random::new(seed), largest: largest.max(1 << 10), best: Default::default() };
    for i in 0..known.len() + budget {
        let kind = Kind::ALL[i % Kind::ALL.len()];
        let program = match i.checked_sub(known.len()) {
            None => known[i].clone(),
            Some(i) if i < budget / 4 => search.state(kind),
            Some(_) => search.change(kind),
        };
        let (steps, outcome) = count(&program).map_err(|error| format!("{error}: {program}"))?;
        if outcome == Outcome::Broken {
            return Err(format!("the heap's own check failed: {program}"));
        }
        if let Some(kind) = Kind::of(&program, outcome) {
            search.keep(kind, Found { count: steps, program });
        }
    }
    let best = search.best.into_iter().map(|best| best.into_iter().next());
    best.zip(Kind::ALL).map(|(found, kind)| found.map(|found| shorten(found, kind, count)).transpose()).collect()
}

/// Leaves out the calls that the count does not need.
fn shorten(mut found: Found, kind: Kind, count: &mut Count<'_>) -> Result<Found, String> {
    let mut many = found.program.calls.len() / 2;
    while many > 0 {
        let mut at = 0;
        while at + many < found.program.calls.len() {
            let mut shorter = found.program.clone();
            shorter.calls.drain(at..at + many);
            let (steps, outcome) = count(&shorter)?;
            if steps >= found.count && Kind::of(&shorter, outcome) == Some(kind) {
                found = Found { count: steps, program: shorter };
            } else {
                at += many;
            }
        }
        many /= 2;
    }
    Ok(found)
}

impl Search {
    fn keep(&mut self, kind: Kind, found: Found) {
        let best = &mut self.best[kind as usize];
        if best.len() == KEPT && best.last().is_some_and(|last| last.count > found.count) || best.contains(&found) {
            return;
        }
        // Before its equals: the newest of a ridge goes on.
        let at = best.partition_point(|kept| kept.count > found.count);
        best.insert(at, found);
        best.truncate(KEPT);
    }

    /// A random state, and a last call of the kind.
    fn state(&mut self, kind: Kind) -> Program {
        let arena = self.arena();
        let palette = [self.size(arena), self.size(arena), self.size(arena)];
        let mut calls = Vec::new();
        if self.random.once_in(3) {
            calls.extend([Call::Fill { bytes: palette[0] }, Call::Thin { every: 1 + self.below(4) }]);
        }
        let blocks = 4 + self.below(SLOTS as u32 - 5);
        for slot in 0..blocks as u8 {
            let bytes = palette[self.random.below(3) as usize].saturating_add(self.below(3) * 8);
            let align = if self.random.once_in(12) { self.align() } else { 3 };
            calls.push(Call::Allocate { slot, align, bytes });
        }
        if self.random.once_in(2) {
            calls.push(Call::Fill { bytes: self.size(arena) });
        }
        // Half the blocks go, in random order; and then some come back.
        for _ in 0..blocks / 2 {
            calls.push(Call::Free { slot: self.below(blocks) as u8 });
        }
        for _ in 0..self.below(4) {
            let call = self.call(arena);
            calls.push(call);
        }
        let last = self.last(kind, arena);
        calls.push(last);
        Program { arena, calls }
    }

    /// One of the best, a little changed.
    fn change(&mut self, kind: Kind) -> Program {
        let kept = &self.best[kind as usize];
        if kept.is_empty() || self.random.once_in(20) {
            return self.state(kind);
        }
        let mut program = kept[self.random.below(kept.len() as u64) as usize].program.clone();
        for _ in 0..=self.below(3) {
            self.mutate(&mut program, kind);
        }
        program
    }

    fn mutate(&mut self, program: &mut Program, kind: Kind) {
        let Program { arena, calls } = program;
        let at = self.below(calls.len() as u32) as usize;
        let last = calls.len() - 1;
        match self.random.below(10) {
            0 if at < last => drop(calls.remove(at)),
            1 if at < last => calls[at] = self.call(*arena),
            2 => calls.swap(at.min(last.saturating_sub(1)), self.random.below(last.max(1) as u64) as usize),
            3 => calls[last] = self.last(kind, *arena),
            4 if self.random.once_in(4) => *arena = self.arena(),
            5 | 6 => self.nudge(&mut calls[at], *arena),
            7 => self.nudge(&mut calls[last], *arena),
            _ if calls.len() < LONGEST => calls.insert(at, self.call(*arena)),
            _ => {}
        }
    }

    /// A call with another size, slot or alignment.
    fn nudge(&mut self, call: &mut Call, arena: u32) {
        let by = 8 * (1 + self.below(3));
        let up = self.random.once_in(2);
        let new = if self.random.once_in(4) { Some(self.size(arena)) } else { None };
        let size = |bytes: &mut u32| {
            let near = if up { bytes.saturating_add(by) } else { bytes.saturating_sub(by).max(1) };
            *bytes = new.unwrap_or(near);
        };
        match call {
            Call::Allocate { align, .. } if *align > 3 && self.random.once_in(2) => *align = self.align(),
            Call::Allocate { bytes, .. } | Call::Resize { bytes, .. } | Call::Fill { bytes } => size(bytes),
            Call::Free { slot } => *slot = self.slot(),
            Call::Thin { every } => *every = 1 + self.below(5),
        }
    }

    fn last(&mut self, kind: Kind, arena: u32) -> Call {
        let slot = SLOTS as u8 - 1;
        match kind {
            Kind::Allocate => Call::Allocate { slot, align: 3, bytes: self.size(arena) },
            Kind::Aligned => Call::Allocate { slot, align: self.align(), bytes: self.size(arena) },
            Kind::Failing => {
                let align = if self.random.once_in(2) { 3 } else { self.align() };
                Call::Allocate { slot, align, bytes: self.size(arena) }
            }
            Kind::Free => Call::Free { slot: self.slot() },
            Kind::Resize => Call::Resize { slot: self.slot(), bytes: self.size(arena) },
        }
    }

    fn call(&mut self, arena: u32) -> Call {
        let (slot, bytes) = (self.slot(), self.size(arena));
        match self.random.below(12) {
            0..5 => Call::Allocate { slot, align: 3, bytes },
            5 => Call::Allocate { slot, align: self.align(), bytes },
            6..9 => Call::Free { slot },
            9 => Call::Resize { slot, bytes },
            10 => Call::Fill { bytes },
            _ => Call::Thin { every: 1 + self.below(4) },
        }
    }

    /// Small ones are full soon; large ones have all lists.
    fn arena(&mut self) -> u32 {
        let bits = [10, 11, 12, 13, 14, 16, 18, 20, 24][self.random.below(9) as usize];
        self.largest.min(1 << bits) - 8 * self.below(16)
    }

    /// A border of lists for granules of 8 or 16 bytes, any size, or about the whole memory.
    fn size(&mut self, arena: u32) -> u32 {
        match self.random.below(8) {
            0..4 => GRANULES[self.random.below(16) as usize] * (8 << self.random.below(2)),
            4 | 5 => self.random.size(u64::from(arena)) as u32,
            6 => 1 + self.below(600),
            _ => (arena / (1 + self.below(4))).saturating_sub(8 * self.below(64)).max(1),
        }
    }

    fn align(&mut self) -> u8 {
        4 + self.random.below(9) as u8
    }

    fn slot(&mut self) -> u8 {
        self.below(SLOTS as u32) as u8
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.below(bound.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the frees in front of an allocation: a hill that can be climbed.
    fn frees(program: &Program) -> Result<(u64, Outcome), String> {
        let frees = program.calls.iter().filter(|call| matches!(call, Call::Free { slot: 7 })).count();
        Ok((frees as u64, Outcome::Done))
    }

    #[test]
    fn it_climbs_and_repeats_itself() {
        let mut counts = Vec::new();
        let found = search(1, 5000, &[], &mut |program| {
            let counted = frees(program);
            counts.push(counted.clone().map_or(0, |(count, _)| count));
            counted
        });
        let found = found.unwrap();
        let random = counts.iter().take(5000 / 4).max().unwrap();
        let best = found[Kind::Allocate as usize].as_ref().unwrap();
        assert!(best.count >= 2 * random, "{} after {random}", best.count);
        assert_eq!(search(1, 5000, &[], &mut frees).unwrap(), found);
    }

    #[test]
    fn what_is_known_is_where_it_starts_and_what_is_not_needed_is_left_out() {
        let known: Program = "4096 B: free#7 free#7 #1=8 free#7 #2=8".parse().unwrap();
        let found = search(1, 0, &[known], &mut frees).unwrap();
        let best = found[Kind::Allocate as usize].as_ref().unwrap();
        assert_eq!((best.count, best.program.to_string()), (3, "4096 B: free#7 free#7 free#7 #2=8".into()));
    }

    #[test]
    fn a_broken_heap_is_reported_with_its_program() {
        let said = search(1, 10, &[], &mut |_| Ok((1, Outcome::Broken))).unwrap_err();
        assert!(said.contains("check failed") && said.contains(" B:"), "{said}");
    }
}
