//! A manager under test: operations are begun, driven, and their outcomes judged.
//!
//! Promises upward: every outcome is the model's, or an error that something explains; after each operation the manager's
//! invariants hold; what was begun ends.

use crate::model::{Expected, Fate, Sync};
use crate::tally::Tally;
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet};
use terrace_file::{JoinHandle, StoreOptions};
use terrace_tests::disk::{Trace, Verdict, Window, World, ready};
use terrace_tiers::ledger::TenantQuota;
use terrace_tiers::{Buffer, Error, Manager};

/// Steps after which operations are held for endless.
const ENDLESS: u64 = 200_000;

/// Ticks of a second that a wish may take: a tier that failed again and again rests 64 seconds.
pub const TICKS: u64 = 200;

/// Memory in which all that waits for room finds it.
pub const PLENTY: u64 = 1 << 30;

/// The memory is sometimes this much smaller.
pub const LEAST: u64 = 3;

/// How a manager is built.
#[derive(Clone, Debug)]
pub struct Setup {
    pub memory: u64,
    pub options: StoreOptions,
    pub pinned: u64,
    pub tenants: Vec<TenantQuota>,
}

/// An operation under way.
pub struct Flight {
    /// Which buffer; for an allocation, the number that it will have.
    pub key: u64,
    pub job: Job,
    pub window: Window,
    /// Others used the buffer meanwhile, or asked for the name.
    pub disturbed: bool,
    /// The buffer's, which may have been freed since.
    pub bytes: u64,
}

/// The bytes when a lease was taken, and when it was given back.
pub type Leased = (Vec<u8>, Vec<u8>);

pub enum Job {
    Allocate { join: JoinHandle<Result<Buffer, Error>>, name: Option<String>, bytes: usize, wait: bool },
    Write(JoinHandle<Result<(), Error>>),
    Read { join: JoinHandle<Result<Vec<u8>, Error>>, offset: usize, from: usize },
    Lease { join: JoinHandle<Result<Leased, Error>>, release: Option<oneshot::Sender<()>>, from: usize },
    LeaseMut { join: JoinHandle<Result<(), Error>>, release: Option<oneshot::Sender<()>> },
    Sync(JoinHandle<Result<(), Error>>, usize),
    Wish(JoinHandle<Result<(), Error>>),
    Remove(JoinHandle<Result<(), Error>>),
}

impl Job {
    fn what(&self) -> &'static str {
        match self {
            Self::Allocate { .. } => "allocate",
            Self::Write(_) => "write",
            Self::Read { .. } => "read",
            Self::Lease { .. } => "lease",
            Self::LeaseMut { .. } => "lease_mut",
            Self::Sync(..) => "sync",
            Self::Wish(_) => "wish",
            Self::Remove(_) => "remove",
        }
    }

    /// Whether it has ended, however that was.
    pub fn has_ended(&mut self) -> bool {
        match self {
            Self::Allocate { join, .. } => ready(join).is_some(),
            Self::Read { join, .. } => ready(join).is_some(),
            Self::Lease { join, .. } => ready(join).is_some(),
            Self::Write(join) | Self::Sync(join, _) | Self::Wish(join) | Self::Remove(join) => ready(join).is_some(),
            Self::LeaseMut { join, .. } => ready(join).is_some(),
        }
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Allocate { wait: true, .. })
    }
}

pub struct Session<'a> {
    pub world: World,
    /// `None` only while it is built.
    pub manager: Option<Manager>,
    pub setup: Setup,
    /// Bytes of memory that buffers may take now.
    pub memory: u64,
    /// What each buffer should hold; also of those that were removed since the last start.
    pub model: BTreeMap<u64, Expected>,
    pub handles: BTreeMap<u64, Buffer>,
    pub flights: Vec<Flight>,
    pub next: u64,
    /// Milliseconds.
    pub now: u64,
    /// From when nothing was under way.
    pub calm: Window,
    /// The log is lost, and the store said so.
    pub over: bool,
    /// A log may have been lost by who opened it a while.
    pub lost: bool,
    /// A log that told of what was no more was followed once: what it named stays unreadable.
    pub aged: bool,
    pub tally: &'a mut Tally,
    pub trace: &'a Trace,
}

impl Session<'_> {
    pub fn manager(&self) -> &Manager {
        self.manager.as_ref().expect("it is built")
    }

    pub fn live(&self, key: u64) -> bool {
        self.model.get(&key).is_some_and(|buffer| buffer.fate == Fate::Live)
    }

    pub fn calm(&mut self) {
        if self.world.tasks.ready() == 0 && self.world.disk.waiting() == 0 {
            self.calm = Window::open(&self.world.disk, None);
        }
    }

    /// Time passes, and maintenance is done.
    pub fn tick(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.manager().tick(self.now);
    }

    /// Another budget of memory; whether it is another.
    pub fn resize(&mut self, bytes: u64) -> Verdict<bool> {
        let same = std::mem::replace(&mut self.memory, bytes) == bytes;
        if !same {
            self.world.disk.remark(|| format!("{bytes} bytes of memory"));
            self.manager().resize(0, bytes).map_err(|error| format!("resize: {error}"))?;
        }
        Ok(!same)
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
                true => self.end(at),
                false => at += 1,
            }
        }
        self.calm();
        Ok(())
    }

    fn end(&mut self, at: usize) {
        let ended = self.flights.swap_remove(at);
        self.disturb(ended.key);
    }

    /// Whoever uses the buffer does so while another does.
    pub fn disturb(&mut self, key: u64) {
        self.flights.iter_mut().filter(|flight| flight.key == key).for_each(|flight| flight.disturbed = true);
    }

    /// Drives until everything that was begun has ended, but for allocations that wait for others.
    pub fn finish(&mut self) -> Verdict {
        let mut ticks = 0;
        for _ in 0..ENDLESS {
            self.release(|_| true);
            self.take_outcomes()?;
            if self.flights.iter().all(|flight| flight.job.is_waiting()) {
                self.resize(self.memory.min(self.setup.memory))?;
                self.take_list()?;
                return self.check();
            }
            if self.world.step() {
                continue;
            }
            if ticks == TICKS {
                let left: BTreeSet<_> = self.flights.iter().map(|flight| flight.job.what()).collect();
                return Err(format!("a hang: no task is ready, no order under way, and there are {left:?}"));
            }
            ticks += 1;
            self.tick(1000);
        }
        Err(format!("no end: operations go on for {ENDLESS} steps"))
    }

    /// Gives leases back.
    pub fn release(&mut self, mut which: impl FnMut(u64) -> bool) {
        for flight in &mut self.flights {
            if let Job::Lease { release, .. } | Job::LeaseMut { release, .. } = &mut flight.job
                && which(flight.key)
                && let Some(release) = release.take()
            {
                let _ = release.send(());
            }
        }
    }

    /// Whether operation number `at` has ended, and as it should.
    fn outcome(&mut self, at: usize) -> Verdict<bool> {
        let Some((outcome, what)) = self.taken(at)? else { return Ok(false) };
        let key = self.flights[at].key;
        self.world.disk.remark(|| format!("{what} {key}: {outcome:?}"));
        match outcome {
            Ok(()) => self.tally.done(what),
            Err(error) => {
                let why = self.why(at, &error).map_err(|why| format!("{what} {key}: {error}: {why}"))?;
                self.tally.refused(what, why);
            }
        }
        Ok(true)
    }

    /// What came of operation number `at`, taken into the model.
    fn taken(&mut self, at: usize) -> Verdict<Option<(Result<(), Error>, &'static str)>> {
        let Flight { key, job, .. } = &mut self.flights[at];
        let (key, what) = (*key, job.what());
        let (model, tally) = (&mut self.model, &mut *self.tally);
        let outcome = match job {
            Job::Allocate { join, name, bytes, .. } => {
                let Some(done) = ready(join) else { return Ok(None) };
                done.map(|buffer| {
                    model.insert(key, Expected::new(name.clone(), *bytes));
                    self.handles.insert(key, buffer);
                })
            }
            Job::Write(join) | Job::LeaseMut { join, .. } => {
                let Some(done) = ready(join) else { return Ok(None) };
                if let Some(buffer) = model.get_mut(&key) {
                    buffer.written(done.is_ok());
                }
                done
            }
            Job::Read { join, offset, from } => {
                let Some(done) = ready(join) else { return Ok(None) };
                if let (Ok(seen), Some(buffer)) = (&done, model.get(&key)) {
                    if !buffer.may_read(*from, *offset, seen) {
                        return Err(format!("wrong bytes: buffer {key}, {} from {offset} on", seen.len()));
                    }
                    tally.right += 1;
                }
                done.map(drop)
            }
            Job::Lease { join, from, .. } => {
                let Some(done) = ready(join) else { return Ok(None) };
                if let (Ok((first, last)), Some(buffer)) = (&done, model.get(&key)) {
                    if first != last || !buffer.may_read(*from, 0, first) {
                        return Err(format!("wrong bytes under a lease of buffer {key}"));
                    }
                    tally.right += 1;
                }
                done.map(drop)
            }
            Job::Sync(join, attempt) => {
                let Some(done) = ready(join) else { return Ok(None) };
                if let Some(buffer) = model.get_mut(&key) {
                    buffer.synced(*attempt, done.is_ok());
                }
                done
            }
            Job::Wish(join) => {
                let Some(done) = ready(join) else { return Ok(None) };
                done
            }
            Job::Remove(join) => {
                let Some(done) = ready(join) else { return Ok(None) };
                if let Some(buffer) = model.get_mut(&key) {
                    buffer.fate = match &done {
                        Ok(()) => Fate::Gone,
                        Err(Error::Leased) => Fate::Live,
                        Err(_) => Fate::Ghost,
                    };
                }
                if done.is_ok() {
                    // Also what an earlier buffer of the name may have left.
                    let name = model.get(&key).and_then(|buffer| buffer.name.clone());
                    let ghosts = model.values_mut().filter(|other| other.name == name && other.fate == Fate::Ghost);
                    ghosts.for_each(|ghost| ghost.fate = Fate::Gone);
                }
                if done != Err(Error::Leased) {
                    self.handles.remove(&key);
                }
                done
            }
        };
        Ok(Some((outcome, what)))
    }

    /// What is listed as durable must be found by every later start, as if a sync had said so.
    fn take_list(&mut self) -> Verdict {
        let listed = self.manager().list();
        for buffer in self.model.values_mut().filter(|buffer| buffer.fate == Fate::Live && buffer.name.is_some()) {
            let one = listed.iter().find(|one| one.name == buffer.name).ok_or("a buffer is not listed")?;
            if one.durable && !buffer.vague {
                let last = buffer.last();
                buffer.syncs.push(Sync { begin: last, end: Some(last), done: true });
            }
        }
        Ok(())
    }

    /// What must always hold.
    pub fn check(&self) -> Verdict {
        if let Some(manager) = &self.manager {
            manager.check().map_err(|broken| format!("check: {broken}"))?;
        }
        match self.world.disk.broken().first() {
            Some(broken) => Err(format!("the disk: {broken}")),
            None => Ok(()),
        }
    }
}
