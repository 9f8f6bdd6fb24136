//! What buffers must hold, and may hold after a power cut.
//!
//! Promises upward: what a read may find is what the buffer held at some time while the read was under way; what a restart may
//! find is what it held at some time while some sync was under way, and nothing from before the last sync that was done began.
//!
//! Invariant: one write at most is under way for each buffer.

use std::rc::Rc;

/// All bytes of a buffer.
pub type Bytes = Rc<[u8]>;

/// An attempt to make a buffer durable: it may have taken any of the states from `begin` to `end`.
#[derive(Clone, Copy, Debug)]
pub struct Sync {
    pub begin: usize,
    /// `None`: it is under way.
    pub end: Option<usize>,
    pub done: bool,
}

/// Whether a buffer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Live,
    /// It is being removed.
    Leaving,
    /// It was removed, but a restart may find it again.
    Ghost,
    /// It was removed for good.
    Gone,
}

/// A buffer.
#[derive(Clone, Debug)]
pub struct Expected {
    pub name: Option<String>,
    pub bytes: usize,
    /// What it held, after each write.
    pub states: Vec<Bytes>,
    /// What it will hold, if the write under way comes to its end.
    pub writing: Option<Bytes>,
    pub syncs: Vec<Sync>,
    pub fate: Fate,
    /// Which of the states it holds is not known: it cannot be read.
    pub vague: bool,
}

impl Expected {
    pub fn new(name: Option<String>, bytes: usize) -> Self {
        let states = vec![vec![0; bytes].into()];
        Self { name, bytes, states, writing: None, syncs: Vec::new(), fate: Fate::Live, vague: false }
    }

    /// What was found after a start; of several states, it is not known which.
    pub fn found(name: String, states: Vec<Bytes>) -> Self {
        let (bytes, end) = (states[0].len(), states.len() - 1);
        let syncs = vec![Sync { begin: 0, end: Some(end), done: true }];
        let vague = end > 0;
        Self { name: Some(name), bytes, states, writing: None, syncs, fate: Fate::Live, vague }
    }

    pub fn last(&self) -> usize {
        self.states.len() - 1
    }

    /// The state that a write under way leads to counts too.
    pub fn latest(&self) -> usize {
        self.last() + usize::from(self.writing.is_some())
    }

    fn state(&self, at: usize) -> Option<&Bytes> {
        self.states.get(at).or(self.writing.as_ref().filter(|_| at == self.states.len()))
    }

    /// Begins a write of a range; what the buffer will hold.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let mut after = self.states[self.last()].to_vec();
        after[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.writing = Some(after.into());
    }

    /// The write was made, or not at all: then nobody has seen it either.
    pub fn written(&mut self, done: bool) {
        match self.writing.take() {
            Some(after) if done => self.states.push(after),
            _ => {
                let last = self.last();
                self.syncs.iter_mut().for_each(|sync| sync.end = sync.end.map(|end| end.min(last)));
            }
        }
    }

    /// Whether a read that began at a state may find this now.
    pub fn may_read(&self, from: usize, offset: usize, seen: &[u8]) -> bool {
        let from = if self.vague { 0 } else { from };
        (from..=self.latest()).filter_map(|at| self.state(at)).any(|state| state[offset..offset + seen.len()] == *seen)
    }

    pub fn synced(&mut self, attempt: usize, done: bool) {
        let latest = self.latest();
        let sync = &mut self.syncs[attempt];
        (sync.end, sync.done) = (Some(latest), done);
    }

    /// Whether a restart may find nothing of it.
    pub fn may_be_gone(&self) -> bool {
        self.fate != Fate::Live || !self.syncs.iter().any(|sync| sync.done)
    }

    /// What a restart may find.
    pub fn durable(&self) -> Vec<Bytes> {
        if self.fate == Fate::Gone {
            return Vec::new();
        }
        let floor = self.syncs.iter().filter(|sync| sync.done).map(|sync| sync.begin).max().unwrap_or(0);
        let covers =
            |at: usize| self.syncs.iter().any(|sync| sync.begin <= at && at <= sync.end.unwrap_or(self.latest()));
        (floor..=self.latest()).filter(|at| covers(*at)).filter_map(|at| self.state(at)).cloned().collect()
    }
}

/// What a restart may find under a name that these buffers had, one after the other. Of several that may be there, a later one
/// hides the others.
pub fn durable<'a>(buffers: impl DoubleEndedIterator<Item = &'a Expected>) -> (Vec<Bytes>, bool) {
    let mut states = Vec::new();
    for buffer in buffers.rev() {
        states.extend(buffer.durable());
        if !buffer.may_be_gone() {
            return (states, false);
        }
    }
    (states, true)
}
