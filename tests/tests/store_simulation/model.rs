//! What a store must hold: a map, and the commits that may or may not have made it there.
//!
//! Promises upward: a state is accepted only when some choice among the commits whose outcome is not known, all others made or
//! not as they said, leads to exactly it.
//!
//! Invariant: commits stand in the order in which they were made; those under way together touch different objects, so that
//! their order among themselves does not matter.

use std::collections::BTreeMap;
use std::fmt;

/// A piece's contents, by number: they follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub id: u64,
    pub bytes: usize,
}

/// Meta data, shown by its length and first bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Meta(pub Vec<u8>);

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{:?}", self.0.len(), &self.0[..self.0.len().min(2)])
    }
}

/// An object as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub meta: Meta,
    pub parts: BTreeMap<u32, Content>,
}

/// All objects.
pub type World = BTreeMap<u64, Expected>;

/// A change, as the store's, with contents in place of pieces.
#[derive(Clone, Debug)]
pub enum Edit {
    Meta(u64, Meta),
    Part(u64, u32, Content),
    Remove(u64),
}

impl Edit {
    pub fn object(&self) -> u64 {
        match self {
            Self::Meta(object, _) | Self::Part(object, ..) | Self::Remove(object) => *object,
        }
    }

    fn apply(&self, world: &mut World) {
        match self {
            Self::Meta(object, meta) => {
                _ = world.insert(*object, Expected { meta: meta.clone(), parts: BTreeMap::new() });
            }
            Self::Part(object, part, content) => {
                _ = world.entry(*object).or_default().parts.insert(*part, *content);
            }
            Self::Remove(object) => _ = world.remove(object),
        }
    }
}

/// What is known of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It never was.
    Void,
    /// It failed: not in the map, but a power cut may bring it to light.
    Failed,
    /// It is under way, or nobody asked.
    Open,
}

/// A commit.
#[derive(Clone, Debug)]
pub struct Commit {
    pub edits: Vec<Edit>,
    pub outcome: Outcome,
}

/// Everything that was ever committed.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub commits: Vec<Commit>,
}

/// An object as it was read: parts of which the contents could not be read have no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub meta: Meta,
    pub parts: BTreeMap<u32, (Option<u64>, usize)>,
}

/// Commits of unknown outcome that a model can hold: 2^6 combinations are tried.
pub const UNKNOWN: usize = 6;

/// Commits that are under way together.
const TOGETHER: usize = 4;

impl Model {
    pub fn begin(&mut self, edits: Vec<Edit>) -> usize {
        self.commits.push(Commit { edits, outcome: Outcome::Open });
        self.commits.len() - 1
    }

    fn unknown(&self) -> Vec<usize> {
        let open = |at: &usize| matches!(self.commits[*at].outcome, Outcome::Open | Outcome::Failed);
        (0..self.commits.len()).filter(open).collect()
    }

    /// Whether no more commits of unknown outcome should be made.
    pub fn is_full(&self) -> bool {
        self.unknown().len() >= UNKNOWN
    }

    /// The map as the running store shows it; `None` for objects of which that is not known.
    pub fn live(&self, object: u64) -> Option<Option<Expected>> {
        let touches = |commit: &Commit| commit.edits.iter().any(|edit| edit.object() == object);
        if self.commits.iter().any(|commit| commit.outcome == Outcome::Open && touches(commit)) {
            return None;
        }
        let mut world = World::new();
        let done = self.commits.iter().filter(|commit| commit.outcome == Outcome::Done);
        done.flat_map(|commit| &commit.edits)
            .filter(|edit| edit.object() == object)
            .for_each(|edit| edit.apply(&mut world));
        Some(world.remove(&object))
    }

    /// The state after the first `until` commits, of which the unknown ones count that `chosen` says.
    fn state(&self, until: usize, unknown: &[usize], chosen: u64) -> World {
        let mut world = World::new();
        for (at, commit) in self.commits[..until].iter().enumerate() {
            let counts = match commit.outcome {
                Outcome::Void => false,
                Outcome::Done if !unknown.contains(&at) => true,
                _ => unknown.iter().position(|&other| other == at).is_some_and(|bit| chosen >> bit & 1 == 1),
            };
            if counts {
                commit.edits.iter().for_each(|edit| edit.apply(&mut world));
            }
        }
        world
    }

    /// Finds how what was read came about, and takes that for what happened; how many commits that decided. `None` when there
    /// is no way.
    pub fn resolve(&mut self, seen: &BTreeMap<u64, Seen>) -> Option<u64> {
        let (unknown, all) = (self.unknown(), self.commits.len());
        let found = (0..1u64 << unknown.len()).find(|chosen| matches(&self.state(all, &unknown, *chosen), seen));
        self.decide(&unknown, found?);
        Some(unknown.len() as u64)
    }

    /// The same for a store that was betrayed: what it holds must be what it held at some time. Commits that were under way
    /// together reach the log in any order: of the last [`TOGETHER`] before that time some may be missing.
    pub fn resolve_old(&mut self, seen: &BTreeMap<u64, Seen>) -> bool {
        let unknown = self.unknown();
        for until in (0..=self.commits.len()).rev() {
            let last = (until.saturating_sub(TOGETHER)..until).filter(|&at| self.commits[at].outcome == Outcome::Done);
            let open: Vec<usize> = unknown.iter().copied().filter(|&at| at < until).chain(last).collect();
            let found = (0..1u64 << open.len()).find(|chosen| matches(&self.state(until, &open, *chosen), seen));
            if let Some(chosen) = found {
                self.decide(&open, chosen);
                self.commits.truncate(until);
                return true;
            }
        }
        false
    }

    fn decide(&mut self, unknown: &[usize], chosen: u64) {
        for (bit, &at) in unknown.iter().enumerate() {
            self.commits[at].outcome = if chosen >> bit & 1 == 1 { Outcome::Done } else { Outcome::Void };
        }
    }

    /// What should be there, when every commit of unknown outcome was made; for people.
    pub fn describe(&self) -> String {
        let unknown = self.unknown();
        let all = self.state(self.commits.len(), &unknown, u64::MAX);
        let none = self.state(self.commits.len(), &unknown, 0);
        let open = unknown.iter().map(|&at| format!("  {:?}\n", self.commits[at])).collect::<String>();
        format!("for sure {none:?}\nat most {all:?}\nnot known {} commits:\n{open}", unknown.len())
    }
}

fn matches(world: &World, seen: &BTreeMap<u64, Seen>) -> bool {
    world.len() == seen.len()
        && world.iter().zip(seen).all(|((id, expected), (other, seen))| id == other && expected.is(seen))
}

impl Expected {
    pub fn is(&self, seen: &Seen) -> bool {
        let is = |(part, content): (&u32, &Content)| {
            let same =
                |(id, bytes): &(Option<u64>, usize)| content.bytes == *bytes && id.is_none_or(|id| id == content.id);
            seen.parts.get(part).is_some_and(same)
        };
        self.meta == seen.meta && self.parts.len() == seen.parts.len() && self.parts.iter().all(is)
    }
}
