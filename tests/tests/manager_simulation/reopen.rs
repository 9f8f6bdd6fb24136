//! The manager's end and its next start: power cuts, kills, restarts, and what is found then.
//!
//! Promises upward: after each start every buffer is read, and is one that the model allows; after each end nothing is left.

use crate::model::{self, Expected};
use crate::session::{PLENTY, Session, Setup, TICKS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use terrace_file::{Disk, JoinHandle, StoreError};
use terrace_tests::disk::{SimDisk, Verdict, Window};
use terrace_tiers::{Buffer, Error, Manager};

/// Starts that may fail one after the other, as each needs a fault of its own: more than a seed has.
const STARTS: usize = 200;

/// Steps after which somebody who opens has ended too, at most: most openings are done by then.
const WHILE: u64 = 80;

/// Bytes of a chunk: most buffers have several.
pub const CHUNK: usize = 4096;

impl Session<'_> {
    /// The power goes, whatever is under way, and comes back.
    pub fn cut(&mut self) -> Verdict {
        let next = self.end_of_power()?;
        self.start(next)
    }

    /// The process ends, whatever is under way, and others are at it: each opens, or is on its way to, when its end comes too.
    pub fn kill(&mut self) -> Verdict {
        let mut next = self.end_of_process()?;
        while self.world.random.once_in(2) {
            next = self.open_a_while(next)?;
        }
        self.start(next)
    }

    /// The program ends when nothing is under way, and begins again.
    pub fn restart(&mut self) -> Verdict {
        self.tally.runs.restarts += 1;
        self.finish()?;
        self.settle("before the end")?;
        self.forget()?;
        self.open()
    }

    fn end_of_power(&mut self) -> Verdict<SimDisk> {
        let next = self.world.cut(&mut self.tally.runs);
        self.leave().map(|()| next)
    }

    fn end_of_process(&mut self) -> Verdict<SimDisk> {
        let next = self.world.kill(&mut self.tally.runs);
        self.leave().map(|()| next)
    }

    fn open_a_while(&mut self, disk: SimDisk) -> Verdict<SimDisk> {
        self.place(disk);
        let window = self.latched();
        let opening = self.build()?;
        for _ in 0..self.world.random.below(WHILE) {
            self.world.step();
        }
        self.lost = window.log_may_be_lost(&self.world.disk);
        let next = match self.world.random.once_in(2) {
            true => self.world.disk.kill(&mut self.world.random),
            false => self.world.disk.cut(&mut self.world.random),
        };
        self.world.disk.off();
        // Dropped on a task, as it may hold a manager, whose end is not waited for there.
        self.bury(opening)?;
        self.leave().map(|()| next)
    }

    fn settle(&mut self, when: &str) -> Verdict {
        self.world.settle().map_err(|stuck| format!("{when}: {stuck}"))
    }

    /// Drops something on a task: who drops the last handle elsewhere waits for what is under way, and this thread drives it.
    fn bury(&mut self, things: impl Send + 'static) -> Verdict {
        drop(self.world.tasks.spawn(async move { drop(things) }));
        self.settle("while handles are dropped")
    }

    /// Turns this disk off; all that was begun must end.
    pub fn leave(&mut self) -> Verdict {
        let disk = Arc::clone(&self.world.disk);
        self.world.leave(&mut self.tally.runs, self.trace)?;
        self.forget()?;
        // This one and the world's.
        match Arc::strong_count(&disk) {
            2 => Ok(()),
            count => Err(format!("the disk is still held {} times after the manager is gone", count - 2)),
        }
    }

    /// Drops all handles, when what was begun has ended.
    fn forget(&mut self) -> Verdict {
        let handles = std::mem::take(&mut self.handles);
        self.bury(handles)?;
        if self.manager.is_some() {
            // Whoever waits for room gets it, so that nobody has the manager any more.
            self.resize(PLENTY)?;
            self.release(|_| true);
            for _ in 0..TICKS {
                self.settle("at the end")?;
                self.flights.retain_mut(|flight| !flight.job.has_ended());
                if self.flights.is_empty() {
                    break;
                }
                self.tick(1000);
            }
        }
        self.flights.clear();
        if let Some(manager) = self.manager.take() {
            self.tally.moves(manager.move_stats());
            self.bury(manager)?;
        }
        self.settle("after the manager was dropped")
    }

    /// Builds a manager on a disk that was left.
    pub fn start(&mut self, disk: SimDisk) -> Verdict {
        self.place(disk);
        self.open()
    }

    fn place(&mut self, disk: SimDisk) {
        self.world.place(disk, self.trace);
        self.calm();
    }

    /// A window from before the store is open: it may remove, or mend, what is damaged.
    fn latched(&self) -> Window {
        let mut window = Window::open(&self.world.disk, None);
        window.latch(&self.world.disk, self.lost);
        window
    }

    fn build(&self) -> Verdict<JoinHandle<Result<Manager, Error>>> {
        let Setup { memory, options, pinned, tenants } = self.setup.clone();
        let shared = Arc::clone(&self.world.disk) as Arc<dyn Disk>;
        let builder = Manager::builder().memory(memory).disk(shared, options).tasks(&self.world.tasks);
        let builder = builder.chunk(CHUNK).pinned_cap(pinned).maintenance_interval(Duration::ZERO);
        let builder = tenants.into_iter().fold(builder, |builder, share| builder.tenant(share));
        builder.build_async().map_err(|error| format!("build: {error}"))
    }

    /// Builds a manager; a start that a fault makes fail is tried again.
    fn open(&mut self) -> Verdict {
        let disk = Arc::clone(&self.world.disk);
        let whole = self.latched();
        self.lost = false;
        let options = self.setup.options;
        for _ in 0..STARTS {
            let window = Window::open(&disk, None);
            disk.bound(disk.used().max(options.cap) + options.slab_bytes);
            disk.remark(|| "build".into());
            let join = self.build()?;
            match self.drive(join)? {
                Ok(manager) => {
                    (self.manager, self.memory) = (Some(manager), self.setup.memory);
                    disk.bound(options.cap.max(disk.used()) + options.slab_bytes);
                    return self.opened(&whole);
                }
                Err(Error::Store(
                    StoreError::Damaged { .. } | StoreError::Foreign { .. } | StoreError::Newer { .. },
                )) if whole.log_may_be_lost(&disk) => {
                    return self.give_up();
                }
                Err(error) => {
                    window.many_steps(&disk).map_err(|why| format!("build: {error}: {why}"))?;
                    self.tally.refused("build", "a fault");
                    if window.disk_was_full(&disk) {
                        // Whoever has the machine frees some space.
                        disk.grow(options.slab_bytes);
                    }
                }
            }
            self.settle("after a start that failed")?;
        }
        Err("it does not start, however often it is tried".into())
    }

    /// The disk lied about both copies of a log.
    fn give_up(&mut self) -> Verdict {
        self.tally.lost += 1;
        self.over = true;
        Ok(())
    }

    /// Drives until it is there.
    fn drive<T>(&mut self, join: JoinHandle<T>) -> Verdict<T> {
        self.world.run(join).map_err(|stuck| stuck.to_string())
    }

    /// Reads everything, and holds it against the model.
    fn opened(&mut self, window: &Window) -> Verdict {
        self.tally.runs.reopened += 1;
        self.tally.done("build");
        self.check()?;
        let listed = self.manager().list();
        let mut names: BTreeSet<String> = listed.iter().filter_map(|one| one.name.clone()).collect();
        if names.len() < listed.len() || listed.iter().any(|one| !one.durable || one.leased) {
            return self
                .betrayed(window, || format!("what is there is not a buffer for each name, durable: {listed:?}"));
        }
        names.extend(self.model.values().filter_map(|buffer| buffer.name.clone()));
        let mut next = BTreeMap::new();
        for name in names {
            let of_name = |buffer: &&Expected| buffer.name.as_ref() == Some(&name);
            let (mut states, gone) = model::durable(self.model.values().filter(of_name));
            self.tally.open += u64::from(gone && !states.is_empty());
            let Ok(buffer) = self.manager().open(&name) else {
                if gone {
                    continue;
                }
                return self.betrayed(window, || format!("buffer {name:?} was made durable, and is not there"));
            };
            match self.read_whole(&buffer, window)? {
                Some(bytes) => states.retain(|state| **state == *bytes),
                None => states.retain(|state| state.len() as u64 == buffer.bytes()),
            }
            if states.is_empty() {
                return self.betrayed(window, || format!("buffer {name:?} has bytes that it should not have"));
            }
            states.dedup();
            self.tally.found += 1;
            self.next += 1;
            self.handles.insert(self.next, buffer);
            next.insert(self.next, Expected::found(name, states));
        }
        self.model = next;
        Ok(())
    }

    /// Something is not as it should be: the disk lied, or the manager is wrong.
    fn betrayed(&mut self, window: &Window, what: impl FnOnce() -> String) -> Verdict {
        match window.log_may_be_lost(&self.world.disk) {
            true => self.give_up(),
            false => Err(what()),
        }
    }

    /// All bytes of a buffer; `None` when they cannot be read, justly.
    fn read_whole(&mut self, buffer: &Buffer, opened: &Window) -> Verdict<Option<Vec<u8>>> {
        self.settle("after a start")?;
        let window = Window::open(&self.world.disk, None);
        let join = buffer.read_async(0, buffer.bytes() as usize);
        match self.drive(join)? {
            Ok(bytes) => {
                self.tally.right += 1;
                Ok(Some(bytes))
            }
            Err(error) => {
                let just = window.many_steps(&self.world.disk);
                self.aged |= just.is_err() && opened.log_may_be_lost(&self.world.disk);
                let just = just.or_else(|why| if self.aged { Ok(()) } else { Err(why) });
                just.map_err(|why| format!("read after the start: {error}: {why}"))?;
                self.tally.refused("read after the start", "a fault");
                Ok(None)
            }
        }
    }
}
