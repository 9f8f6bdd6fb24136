//! The store's end and its next start: power cuts, kills, restarts, and what is found then.
//!
//! Promises upward: after each start everything is read, and is a state that the model allows.

use crate::content;
use crate::model::{Content, Meta, Seen};
use crate::session::{Held, Session};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_file::{Disk, JoinHandle, Store, StoreError, StoreOptions};
use terrace_tests::disk::{SimDisk, Verdict, Window, ready};

/// Starts that may fail one after the other, as each needs a fault of its own: more than a seed has.
const STARTS: usize = 200;

/// Steps after which somebody who opens has ended too, at most: most openings are done by then.
const WHILE: u64 = 80;

/// Whether the seed goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Open,
    /// The disk lied about both copies of the log, and the store said so.
    Lost,
}

impl Session<'_> {
    /// The power goes, whatever is under way, and comes back.
    pub fn cut(&mut self, options: StoreOptions) -> Verdict<After> {
        let next = self.end_of_power()?;
        self.start(next, options)
    }

    /// The process ends, whatever is under way, and others are at it: each opens, or is on its way to, when its end comes too.
    pub fn kill(&mut self, options: StoreOptions) -> Verdict<After> {
        let mut next = self.end_of_process()?;
        while self.world.random.once_in(2) {
            next = self.open_a_while(next, options)?;
        }
        self.start(next, options)
    }

    fn end_of_power(&mut self) -> Verdict<SimDisk> {
        let next = self.world.cut(&mut self.tally.runs);
        self.leave().map(|()| next)
    }

    fn end_of_process(&mut self) -> Verdict<SimDisk> {
        let next = self.world.kill(&mut self.tally.runs);
        self.leave().map(|()| next)
    }

    /// Begins to open a store, and may or may not come to an end with it before the power goes, or the process ends.
    fn open_a_while(&mut self, disk: SimDisk, options: StoreOptions) -> Verdict<SimDisk> {
        self.place(disk);
        let window = self.latched();
        let shared = Arc::clone(&self.world.disk) as Arc<dyn Disk>;
        let opening = Store::open(shared, &self.world.tasks, &self.world.frames, options);
        for _ in 0..self.world.random.below(WHILE) {
            self.world.step();
        }
        drop(opening);
        self.lost = window.log_may_be_lost(&self.world.disk);
        if self.world.random.once_in(2) { self.end_of_process() } else { self.end_of_power() }
    }

    /// The program ends, when nothing is under way, and begins again.
    pub fn restart(&mut self, options: StoreOptions) -> Verdict<After> {
        self.tally.runs.restarts += 1;
        self.finish()?;
        self.world.settle().map_err(|stuck| stuck.to_string())?;
        self.forget();
        self.world.settle().map_err(|stuck| stuck.to_string())?;
        self.no_frames()?;
        self.open(options)
    }

    fn forget(&mut self) {
        self.flights.clear();
        self.held.clear();
        self.store = None;
    }

    /// Turns this disk off; all that was begun must end, and give its memory back.
    pub fn leave(&mut self) -> Verdict {
        self.world.leave(&mut self.tally.runs, self.trace)?;
        self.forget();
        self.world.off().map_err(|stuck| format!("after the store was dropped: {stuck}"))?;
        self.no_frames()
    }

    fn no_frames(&self) -> Verdict {
        match self.world.frames.usage().0 {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes of frames are still held after the store is gone")),
        }
    }

    /// Opens a store on a disk that was left.
    pub fn start(&mut self, disk: SimDisk, options: StoreOptions) -> Verdict<After> {
        self.place(disk);
        self.open(options)
    }

    fn place(&mut self, disk: SimDisk) {
        self.world.place(disk, self.trace);
    }

    /// A window from before the store is open: it may remove, or mend, what is damaged.
    fn latched(&self) -> Window {
        let mut window = Window::open(&self.world.disk, None);
        window.latch(&self.world.disk, self.lost);
        window
    }

    /// Opens; a start that a fault makes fail is tried again.
    pub fn open(&mut self, mut options: StoreOptions) -> Verdict<After> {
        let disk = Arc::clone(&self.world.disk);
        let whole = self.latched();
        self.lost = false;
        self.unreadable = false;
        for _ in 0..STARTS {
            let window = Window::open(&disk, None);
            // What a power cut brought back may be above the cap until it is open.
            disk.bound(disk.used().max(options.cap) + options.slab_bytes);
            disk.remark(|| format!("open {options:?}"));
            let shared = Arc::clone(&disk) as Arc<dyn Disk>;
            let join = Store::open(shared, &self.world.tasks, &self.world.frames, options);
            match self.drive(join)? {
                Ok(store) => {
                    (self.store, self.options) = (Some(store), options);
                    disk.bound(options.cap.max(disk.used()) + options.slab_bytes);
                    return self.opened(&whole);
                }
                Err(StoreError::CapTooSmall { needs, cap }) if cap < self.options.cap => {
                    let _ = needs;
                    self.tally.excuse("smaller cap");
                    options = self.options;
                }
                Err(StoreError::Damaged { .. } | StoreError::Foreign { .. } | StoreError::Newer { .. })
                    if whole.log_may_be_lost(&disk) =>
                {
                    self.tally.excuse("log lost");
                    self.over = true;
                    return Ok(After::Lost);
                }
                Err(error) => {
                    window.many_steps(&disk).map_err(|why| format!("open: {error}: {why}"))?;
                    self.tally.excuse("open");
                    // A damaged piece cannot be moved: then what is kept takes the room it has.
                    options = self.options;
                    if window.disk_was_full(&disk) {
                        // Whoever has the machine frees some space.
                        disk.grow(options.slab_bytes);
                    }
                }
            }
            self.world.settle().map_err(|stuck| stuck.to_string())?;
            self.no_frames()?;
        }
        Err("it does not open, however often it is tried".into())
    }

    /// Drives until it is there, or until `stop`.
    fn drive<T>(&mut self, mut join: JoinHandle<T>) -> Verdict<T> {
        loop {
            if let Some(value) = ready(&mut join) {
                return Ok(value);
            }
            if self.world.disk.completed() >= self.stop {
                return Err(Self::STOPPED.into());
            }
            if !self.world.step() {
                return ready(&mut join)
                    .ok_or("a hang: no task is ready, no order under way, and it is not done".into());
            }
        }
    }

    /// Reads everything, and holds it against the model.
    fn opened(&mut self, window: &Window) -> Verdict<After> {
        self.tally.runs.reopened += 1;
        self.check()?;
        let used = self.world.disk.used();
        if used > self.options.cap && self.world.disk.fired(window.fired).is_empty() {
            return Err(format!("{used} bytes of files after opening with a cap of {}", self.options.cap));
        }
        let seen = self.read_all(window)?;
        let before = self.model.commits.len();
        if let Some(unknown) = self.model.resolve(&seen) {
            self.tally.resolved += unknown;
            return Ok(After::Open);
        }
        if window.log_may_be_lost(&self.world.disk) && self.model.resolve_old(&seen) {
            self.tally.betrayed += u64::from(self.model.commits.len() < before);
            return Ok(After::Open);
        }
        Err(format!("what was found is no state that it may be in:\nfound {seen:?}\n{}", self.model.describe()))
    }

    fn read_all(&mut self, window: &Window) -> Verdict<BTreeMap<u64, Seen>> {
        let mut seen = BTreeMap::new();
        for id in self.store().objects() {
            let object = self.store().object(id).ok_or("an object is listed and is not there")?;
            let mut parts = BTreeMap::new();
            for (part, piece) in object.parts.iter() {
                parts.insert(part, (self.read(piece, window)?, piece.bytes()));
            }
            seen.insert(id, Seen { meta: Meta(object.meta.to_vec()), parts });
        }
        Ok(seen)
    }

    /// The number of a piece; `None` when it cannot be read, justly.
    fn read(&mut self, piece: &Arc<terrace_file::Piece>, opened: &Window) -> Verdict<Option<u64>> {
        let window = Window::open(&self.world.disk, None);
        let join = self.store().get(piece);
        let got = self.drive(join)?;
        match got {
            Ok(frame) => {
                let bytes = piece.bytes();
                let id = content::identify(&frame[..bytes]).ok_or("wrong bytes after the start")?;
                let (piece, content) = (Arc::clone(piece), Content { id, bytes });
                self.held.push(Held { piece, content, put: window.fired, committed: true });
                self.tally.read += 1;
                Ok(Some(id))
            }
            Err(error) => {
                let just = window.get(&self.world.disk);
                // Also one of an older log that was followed at an earlier start.
                let aged = just.is_err() && (!self.aged.is_empty() || opened.log_may_be_lost(&self.world.disk));
                self.aged.extend(aged.then(|| Arc::downgrade(piece)));
                just.or_else(|why| if aged { Ok(()) } else { Err(why) })
                    .map_err(|why| format!("get after the start: {error}: {why}"))?;
                self.tally.excuse("get after the start");
                self.unreadable = true;
                Ok(None)
            }
        }
    }
}
