//! A simulated disk: one thread, no clock, everything decided by a seed.
//!
//! | file | what it is |
//! | --- | --- |
//! | `dice` | where choices come from: a seed, or every combination in turn |
//! | `image` | what one file holds: read now, durable, and between |
//! | `names` | which files there are, and will be after a power cut |
//! | `fault` | what goes wrong, and when |
//! | `effect` | what an order does, right or wrong |
//! | `cut` | what a power cut leaves |
//! | `holes` | files of any size and in any number, all zeros |
//! | `kill` | what the end of a process leaves |
//! | `log` | what was asked and answered, for people |
//! | `world` | a disk, tasks and frames, driven in a random order |
//! | `hands` | what a test does to files behind a store's back |
//! | `excuse` | which errors of a store are just |
//! | `seeds` | many seeds, and what to say when one fails |
//!
//! Promises upward: [`SimDisk`] answers the orders it was given in an order of the dice; it does to them what a disk may do, and
//! at given places what a disk should not. Whatever a reader is told that is not what was written, the disk knows of, so that a
//! test can say of each error whether it was just. Linux only, as `terrace-file` is.

mod cut;
mod dice;
mod effect;
mod excuse;
mod fault;
pub mod hands;
mod holes;
mod image;
mod kill;
mod log;
mod names;
mod seeds;
mod tally;
mod world;

pub use cut::{Cuts, every_cut};
pub use dice::{Dice, Odometer};
pub use excuse::{Just, Window, is_full};
pub use fault::{Fault, Fired, Planned, Target, some_faults};
pub use holes::Holes;
pub use image::SECTOR;
pub use log::{Kind, Line};
pub use seeds::{Counts, Trace, Verdict, judge, number, run_seeds};
pub use tally::{RunCounts, add};
pub use world::{Stuck, World, ready};

use effect::missing;
use image::Image;
use log::Log;
use names::Names;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_file::{Disk, DiskRequest, FileFault, ResponseSender, StoreFile};

/// Sectors of a block of a log.
const PER_BLOCK: usize = terrace_file::ALIGN / SECTOR;

/// A disk that is not there.
#[derive(Debug)]
pub struct SimDisk {
    state: Mutex<State>,
}

/// What the disk itself knows of errors that were to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Faults that fired.
    pub fired: usize,
    /// Files refused since the disk is full.
    pub full: u64,
    /// Reads of slabs, and of logs, that touched sectors which do not hold what was written.
    pub damaged_slab_reads: u64,
    /// The same of logs.
    pub damaged_log_reads: u64,
    /// Names that came back or went though a sync had said otherwise.
    pub names_lost: u64,
}

#[derive(Debug)]
struct State {
    /// Bytes that it has.
    capacity: u64,
    names: Names,
    images: Vec<Image>,
    queue: Vec<Queued>,
    /// Orders completed: the index of the next one.
    index: u64,
    /// Of those, how many an earlier process had asked for.
    begun: u64,
    plan: Vec<Planned>,
    fired: Vec<Fired>,
    /// Every order before this one fails.
    gone_until: u64,
    /// Nothing is taken any more.
    off: bool,
    marks: Marks,
    /// The most bytes there were, and may be.
    peak: u64,
    bound: u64,
    /// What no store may do.
    broken: Vec<String>,
    log: Log,
}

/// An order that is under way.
#[derive(Debug)]
struct Queued {
    order: DiskRequest,
    reply: ResponseSender,
    /// Orders completed when it came.
    submitted: u64,
    /// It waits while others complete, until so many have.
    not_before: u64,
    slowed: bool,
}

impl SimDisk {
    /// An empty disk of so many bytes.
    pub fn new(capacity: u64) -> Self {
        Self::with(capacity, Names::default(), Vec::new(), Marks::default())
    }

    /// A disk that holds these files, durably.
    pub fn holding(capacity: u64, contents: Contents) -> Self {
        let (mut names, mut images) = (BTreeMap::new(), Vec::new());
        for (file, bytes) in contents {
            names.insert(file, images.len());
            images.push(Image::settled(bytes, BTreeSet::new()));
        }
        let names = Names { now: names.clone(), durable: names, pending: Vec::new() };
        Self::with(capacity, names, images, Marks::default())
    }

    fn with(capacity: u64, names: Names, images: Vec<Image>, marks: Marks) -> Self {
        let (queue, plan, fired, broken) = Default::default();
        let (index, begun, gone_until, peak) = (0, 0, 0, 0);
        let (off, bound, log) = (false, u64::MAX, Log::default());
        let state = State {
            capacity,
            names,
            images,
            queue,
            index,
            begun,
            plan,
            fired,
            gone_until,
            off,
            marks,
            peak,
            bound,
            broken,
            log,
        };
        Self { state: Mutex::new(state) }
    }

    /// Sets what goes wrong.
    pub fn plan(&self, plan: Vec<Planned>) {
        self.state().plan = plan;
    }

    /// Somebody frees so many bytes.
    pub fn grow(&self, bytes: u64) {
        self.state().capacity += bytes;
    }

    /// Says how many bytes of files there may ever be.
    pub fn bound(&self, bytes: u64) {
        self.state().bound = bytes;
    }

    /// Keeps every line of the log, not only the last.
    pub fn keep_log(&self) {
        self.state().log.whole = true;
    }

    /// Puts a remark into the log, if it is kept.
    pub fn remark(&self, text: impl FnOnce() -> String) {
        self.state().log.remark(text);
    }

    /// Orders under way.
    pub fn waiting(&self) -> usize {
        self.state().queue.len()
    }

    /// Orders of this process completed.
    pub fn completed(&self) -> u64 {
        let state = self.state();
        state.index - state.begun
    }

    /// Faults that fired, from number `from` on.
    pub fn fired(&self, from: usize) -> Vec<Fired> {
        self.state().fired.get(from..).unwrap_or_default().to_vec()
    }

    /// What the disk knows of errors.
    pub fn marks(&self) -> Marks {
        self.state().marks.clone()
    }

    /// What no store may do, and this one did.
    pub fn broken(&self) -> Vec<String> {
        self.state().broken.clone()
    }

    /// The most bytes there were.
    pub fn peak(&self) -> u64 {
        self.state().peak
    }

    /// Bytes of files now.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// The last orders, one a line.
    pub fn log(&self) -> String {
        self.state().log.to_string()
    }

    /// Whether the sectors of that place hold what was written.
    pub fn is_sound(&self, file: StoreFile, offset: u64, bytes: usize) -> bool {
        let state = self.state();
        state.names.now.get(&file).is_some_and(|&inode| {
            let from = offset as usize / SECTOR;
            state.images[inode].damaged.range(from..from + bytes.div_ceil(SECTOR)).next().is_none()
        })
    }

    /// Whether some log has a block of which both copies, at the same place in each half of the file, are not as written, or no
    /// floor of the superblock is.
    pub fn log_is_lost(&self) -> bool {
        let state = self.state();
        let superblock = state.names.now.get(&StoreFile::Superblock).map(|&inode| pages(&state.images[inode]));
        if superblock.is_some_and(|bad| hands::FLOORS.iter().all(|floor| bad.contains(&(*floor as usize)))) {
            return true;
        }
        let logs = state.names.now.iter().filter(|(file, _)| matches!(file, StoreFile::Log(_)));
        logs.into_iter().any(|(_, &inode)| {
            let image = &state.images[inode];
            let half = image.sectors() / PER_BLOCK / 2;
            let blocks = pages(image);
            blocks.iter().any(|block| blocks.contains(&(block + half)))
        })
    }

    /// Whether some log, or the superblock, has a sector that is not as written.
    pub fn log_is_damaged(&self) -> bool {
        let state = self.state();
        let mut logs = state.names.now.iter().filter(|(file, _)| !matches!(file, StoreFile::Slab(_)));
        logs.any(|(_, &inode)| !state.images[inode].damaged.is_empty())
    }

    /// Completes one of the orders under way. False when there is none.
    pub fn step(&self, dice: &mut dyn Dice) -> bool {
        let mut state = self.state();
        let Some(queued) = state.pick(dice) else { return false };
        let Some((reply, answer)) = state.complete(queued, dice) else { return true };
        drop(state);
        // Nobody waits any more: the memory goes back.
        let _ = reply.send(answer);
        true
    }

    /// Takes nothing any more: who waits learns that the disk is gone.
    pub fn off(&self) {
        let mut state = self.state();
        state.off = true;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        // Whose tasks may submit at once.
        drop(queue);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimDisk {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        let mut state = self.state();
        if state.off || state.index < state.gone_until {
            state.fail_list();
            return Err(missing("list", "the disk".into()));
        }
        Ok(state.names.now.iter().map(|(&file, &inode)| (file, state.images[inode].now.len() as u64)).collect())
    }

    fn submit(&self, order: DiskRequest, reply: ResponseSender) {
        let mut state = self.state();
        if !state.off {
            let submitted = state.index;
            state.queue.push(Queued { order, reply, submitted, not_before: 0, slowed: false });
        }
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names.now.values().map(|&inode| self.images[inode].now.len() as u64).sum()
    }

    /// One of the orders that may complete; when all are slow, the one that is slow for the shortest time.
    fn pick(&mut self, dice: &mut dyn Dice) -> Option<Queued> {
        let ready = self.queue.iter().filter(|queued| queued.not_before <= self.index).count();
        let which = match ready {
            0 => (0..self.queue.len()).min_by_key(|&at| self.queue[at].not_before)?,
            _ => {
                let chosen = dice.below(ready as u64) as usize;
                let mut eligible = (0..self.queue.len()).filter(|&at| self.queue[at].not_before <= self.index);
                eligible.nth(chosen)?
            }
        };
        Some(self.queue.swap_remove(which))
    }

    /// Notes what no store may do.
    fn blame(&mut self, what: impl fmt::Display) {
        if self.broken.len() < 8 {
            self.broken.push(what.to_string());
        }
    }
}

/// The pages of a file that have a sector which is not as written.
fn pages(image: &Image) -> BTreeSet<usize> {
    image.damaged.iter().map(|sector| sector / PER_BLOCK).collect()
}

/// The files of a disk, for tests that compare.
pub type Contents = BTreeMap<StoreFile, Vec<u8>>;

impl SimDisk {
    /// What is read of every file.
    pub fn contents(&self) -> Contents {
        let state = self.state();
        state.names.now.iter().map(|(&file, &inode)| (file, state.images[inode].now.clone())).collect()
    }

    /// The same disk, for a store.
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}
