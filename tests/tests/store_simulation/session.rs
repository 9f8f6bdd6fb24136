//! A store under test: operations are begun, driven, and their outcomes judged.
//!
//! Promises upward: every outcome is the model's, or an error that some fault explains ([`Window`]); after each
//! operation the store's invariants hold and its files keep to the cap.

use crate::content;
use crate::model::{Content, Edit, Meta, Model, Outcome};
use crate::tally::Tally;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use terrace_file::{Change, Frame, JoinHandle, Piece, PutResult, Store, StoreError, StoreOptions};
use terrace_tests::disk::{Trace, Verdict, Window, World, ready};

/// Steps after which operations are held for endless: those under way together take some hundred, a slow order 40 more.
const ENDLESS: u64 = 100_000;

/// A piece that the test holds.
#[derive(Clone)]
pub struct Held {
    pub piece: Arc<Piece>,
    pub content: Content,
    /// Faults that had fired when it was put.
    pub put: usize,
    /// It was given to a commit.
    pub committed: bool,
}

/// An operation under way.
pub struct Flight {
    job: Job,
    pub window: Window,
}

enum Job {
    Put(JoinHandle<PutResult>, Content),
    Get(JoinHandle<Result<Frame, StoreError>>, Content, Weak<Piece>),
    Commit(JoinHandle<Result<(), StoreError>>, usize, usize),
    Tidy(JoinHandle<Result<(), StoreError>>),
}

pub struct Session<'a> {
    pub world: World,
    /// `None` only while it is opened.
    pub store: Option<Store>,
    pub options: StoreOptions,
    pub model: Model,
    pub held: Vec<Held>,
    pub flights: Vec<Flight>,
    pub next: u64,
    /// The log is lost, and the store said so.
    pub over: bool,
    /// A log may have been lost by who opened it a while.
    pub lost: bool,
    /// A commit has failed since the last start.
    pub shaken: bool,
    /// Of what was found at the start, a piece cannot be read.
    pub unreadable: bool,
    /// Pieces that were named by a log that told of what was no more: they stay unreadable.
    pub aged: Vec<Weak<Piece>>,
    /// Nothing more is driven after so many orders.
    pub stop: u64,
    pub tally: &'a mut Tally,
    pub trace: &'a Trace,
}

impl Session<'_> {
    /// What is said when `stop` is reached.
    pub const STOPPED: &'static str = "stopped";

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// Notes a new operation in the log.
    fn note(&mut self, text: impl FnOnce() -> String) -> Window {
        self.tally.runs.operations += 1;
        self.world.disk.remark(text);
        Window::open(&self.world.disk, self.store.as_ref().map(Store::stats))
    }

    pub fn begin_put(&mut self, bytes: usize) {
        // Frames are enough for what a program has under way.
        let Ok(mut frame) = self.world.frames.take(bytes) else { return };
        self.next += 1;
        let content = Content { id: self.next, bytes };
        content::fill(content, &mut frame);
        let window = self.note(|| format!("put {content:?}"));
        let join = self.store().put(frame, bytes);
        self.flights.push(Flight { job: Job::Put(join, content), window });
    }

    pub fn begin_get(&mut self, piece: &Arc<Piece>, content: Content) {
        let window = self.note(|| format!("get {content:?}"));
        let join = self.store().get(piece);
        self.flights.push(Flight { job: Job::Get(join, content, Arc::downgrade(piece)), window });
    }

    pub fn begin_tidy(&mut self) {
        let window = self.note(|| "tidy".into());
        let join = self.store().compact();
        self.flights.push(Flight { job: Job::Tidy(join), window });
    }

    /// Begins a commit; `parts` are pieces by object and part. Dropped, nobody learns what comes of it.
    pub fn begin_commit(&mut self, edits: Vec<Edit>, pieces: Vec<Held>, dropped: bool) {
        let window = self.note(|| format!("commit {edits:?}{}", if dropped { ", not waited for" } else { "" }));
        let oldest = pieces.iter().map(|held| held.put).min().unwrap_or(usize::MAX);
        let mut pieces = pieces.into_iter();
        let changes = edits.iter().map(|edit| match edit {
            Edit::Meta(object, meta) => Change::Meta { object: *object, meta: meta.0.clone() },
            Edit::Remove(object) => Change::Remove { object: *object },
            Edit::Part(object, part, _) => {
                let piece = pieces.next().expect("one for each part").piece;
                Change::Piece { object: *object, part: *part, piece }
            }
        });
        let join = self.store().commit(changes.collect());
        let index = self.model.begin(edits);
        if !dropped {
            self.flights.push(Flight { job: Job::Commit(join, index, oldest), window });
        }
    }

    /// Objects that commits under way touch.
    pub fn is_touched(&self, object: u64) -> bool {
        let open = self.model.commits.iter().filter(|commit| commit.outcome == Outcome::Open);
        open.flat_map(|commit| &commit.edits).any(|edit| edit.object() == object)
    }

    /// Takes the outcomes that are there, and checks what must always hold.
    pub fn harvest(&mut self) -> Verdict {
        self.take_outcomes()?;
        self.check()
    }

    fn take_outcomes(&mut self) -> Verdict {
        let mut at = 0;
        while at < self.flights.len() {
            match self.outcome(at)? {
                true => drop(self.flights.swap_remove(at)),
                false => at += 1,
            }
        }
        Ok(())
    }

    /// Drives until everything that was begun has ended.
    pub fn finish(&mut self) -> Verdict {
        for _ in 0..ENDLESS {
            self.take_outcomes()?;
            if self.flights.is_empty() {
                return self.check();
            }
            if self.world.disk.completed() >= self.stop {
                return Err(Self::STOPPED.into());
            }
            if !self.world.step() {
                self.take_outcomes()?;
                let hang = "a hang: no task is ready, no order under way, and operations have not ended";
                return if self.flights.is_empty() { self.check() } else { Err(hang.into()) };
            }
        }
        Err(format!("no end: operations go on for {ENDLESS} steps"))
    }

    /// Whether operation number `at` has ended, and as it should.
    fn outcome(&mut self, at: usize) -> Verdict<bool> {
        let Flight { job, window } = &mut self.flights[at];
        let (disk, tally) = (&self.world.disk, &mut *self.tally);
        match job {
            Job::Put(join, content) => {
                let Some(put) = ready(join) else { return Ok(false) };
                match put.result {
                    Ok(piece) => self.held.push(Held { piece, content: *content, put: window.fired, committed: false }),
                    Err(error) => {
                        let stats = self.store.as_ref().map(Store::stats);
                        window.put(disk, &error, stats, &self.options).map_err(|why| format!("put: {error}: {why}"))?;
                        tally.excuse("put");
                    }
                }
            }
            Job::Get(join, content, piece) => {
                let Some(got) = ready(join) else { return Ok(false) };
                match got {
                    Ok(frame) if content::identify(&frame[..content.bytes]) == Some(content.id) => tally.read += 1,
                    Ok(_) => return Err(format!("wrong bytes: {content:?}")),
                    Err(error) => {
                        let aged = self.aged.iter().any(|aged| aged.ptr_eq(piece));
                        let just = window.get(disk).or_else(|why| if aged { Ok(()) } else { Err(why) });
                        just.map_err(|why| format!("get {content:?}: {error}: {why}"))?;
                        tally.excuse("get");
                    }
                }
            }
            Job::Commit(join, index, oldest) => {
                let Some(done) = ready(join) else { return Ok(false) };
                self.model.commits[*index].outcome = if done.is_ok() { Outcome::Done } else { Outcome::Failed };
                if let Err(error) = done {
                    window.commit(disk, &error, *oldest).map_err(|why| format!("commit: {error}: {why}"))?;
                    tally.excuse("commit");
                    self.shaken = true;
                }
            }
            Job::Tidy(join) => {
                let Some(done) = ready(join) else { return Ok(false) };
                if let Err(error) = done {
                    let just = window.tidy(disk, &error);
                    just.or_else(|why| if self.unreadable { Ok(()) } else { Err(format!("tidy: {error}: {why}")) })?;
                    tally.excuse("tidy");
                }
            }
        }
        Ok(true)
    }

    /// What must always hold.
    pub fn check(&self) -> Verdict {
        if let Some(store) = &self.store {
            store.check().map_err(|broken| format!("check: {broken}"))?;
            let (used, stats) = (self.world.disk.used(), store.stats());
            if used > stats.disk + stats.reserved {
                return Err(format!("{used} bytes of files, and of these it knows: {stats:?}"));
            }
        }
        match self.world.disk.broken().first() {
            Some(broken) => Err(format!("the disk: {broken}")),
            None => Ok(()),
        }
    }

    /// The object is as the model says, as far as that is known.
    pub fn look(&mut self, object: u64) -> Verdict {
        let Some(expected) = self.model.live(object) else { return Ok(()) };
        let seen = self.store().object(object);
        let is = seen.as_ref().map(|seen| {
            let parts = seen.parts.iter().map(|(part, piece)| (part, piece.bytes()));
            (Meta(seen.meta.to_vec()), parts.collect::<BTreeMap<_, _>>())
        });
        let should = expected.as_ref().map(|expected| {
            let parts = expected.parts.iter().map(|(part, content)| (*part, content.bytes));
            (expected.meta.clone(), parts.collect())
        });
        if is != should {
            return Err(format!("object {object} is {is:?}, should be {should:?}"));
        }
        let (Some(seen), Some(expected)) = (seen, expected) else { return Ok(()) };
        for ((_, piece), content) in seen.parts.iter().zip(expected.parts.values()) {
            self.begin_get(piece, *content);
        }
        Ok(())
    }
}
