//! A disk, tasks and frames, driven in a random order until something is done.
//!
//! Promises upward: [`World::run`] ends: with the result, or saying that nothing is left to do, or that there is no end to it.
//! The same seed drives in the same order.

use super::{RunCounts, SimDisk, Trace, Verdict};
use crate::Random;
use futures_channel::oneshot;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use terrace_file::{Disk, DiskRequest, DiskResponse, Executor, FramePool, JoinHandle};

/// Steps after which something is held for endless: an operation takes tens, a slow order 40.
const ENDLESS: u64 = 200_000;

/// What a store needs, without threads.
#[derive(Debug)]
pub struct World {
    /// What goes on by itself.
    pub tasks: Executor,
    /// The disk.
    pub disk: Arc<SimDisk>,
    /// Memory for I/O.
    pub frames: FramePool,
    /// What decides everything.
    pub random: Random,
}

/// Something does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// No task is ready and no order under way.
    Nothing,
    /// There are always more.
    Endless,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "a hang: no task is ready, no order under way, and it is not done",
            Self::Endless => "no end: always more tasks and orders, and it is not done",
        })
    }
}

impl World {
    /// Over a disk.
    pub fn new(disk: SimDisk, frames: FramePool, random: Random) -> Self {
        Self { tasks: Executor::new(), disk: Arc::new(disk), frames, random }
    }

    /// The same on another disk, which a trace follows.
    pub fn place(&mut self, disk: SimDisk, trace: &Trace) {
        *self = Self::new(disk, self.frames.clone(), self.random.clone());
        trace.begin(&self.disk);
    }

    /// The power goes, whatever is under way. What the disk is afterwards.
    pub fn cut(&mut self, counts: &mut RunCounts) -> SimDisk {
        counts.cuts += 1;
        self.disk.cut(&mut self.random)
    }

    /// The process ends, whatever is under way. What the disk is afterwards.
    pub fn kill(&mut self, counts: &mut RunCounts) -> SimDisk {
        counts.kills += 1;
        self.disk.kill(&mut self.random)
    }

    /// Turns the disk off for good, counts what it did, and lets every task learn of it.
    ///
    /// # Errors
    /// That some go on for ever.
    pub fn leave(&mut self, counts: &mut RunCounts, trace: &Trace) -> Verdict {
        counts.end(&self.disk);
        trace.end();
        self.off().map_err(|stuck| format!("with the disk gone: {stuck}"))
    }

    /// Runs one ready task or completes one order. False when there is neither.
    pub fn step(&mut self) -> bool {
        let ready = self.tasks.ready();
        let orders = self.disk.waiting();
        if ready > 0 && (orders == 0 || self.random.once_in(2)) {
            let which = self.random.below(ready as u64) as usize;
            return self.tasks.run_one(which);
        }
        orders > 0 && self.disk.step(&mut self.random)
    }

    /// Drives until it is done.
    ///
    /// # Errors
    /// That it never is.
    pub fn run<T>(&mut self, mut join: JoinHandle<T>) -> Result<T, Stuck> {
        for _ in 0..ENDLESS {
            if let Some(value) = ready(&mut join) {
                return Ok(value);
            }
            if !self.step() {
                // What the last task did may have been the end.
                return ready(&mut join).ok_or(Stuck::Nothing);
            }
        }
        Err(Stuck::Endless)
    }

    /// Gives an order; the answer comes while the world is driven.
    pub fn submit(&self, order: DiskRequest) -> oneshot::Receiver<DiskResponse> {
        let (reply, answer) = oneshot::channel();
        self.disk.submit(order, reply);
        answer
    }

    /// Gives an order and drives until it is answered, which fails when the disk is off.
    pub fn ask(&mut self, order: DiskRequest) -> Option<DiskResponse> {
        let mut answer = self.submit(order);
        loop {
            match answer.try_recv() {
                Ok(None) if self.step() => {}
                Ok(None) | Err(oneshot::Canceled) => return None,
                Ok(Some(answer)) => return Some(answer),
            }
        }
    }

    /// Drives until nothing is left to do.
    ///
    /// # Errors
    /// That there always is.
    pub fn settle(&mut self) -> Result<(), Stuck> {
        (0..ENDLESS).any(|_| !self.step()).then_some(()).ok_or(Stuck::Endless)
    }

    /// Turns the disk off, and lets every task learn of it.
    ///
    /// # Errors
    /// That some go on for ever.
    pub fn off(&mut self) -> Result<(), Stuck> {
        self.disk.off();
        self.settle()
    }
}

/// The result, if it is there.
pub fn ready<T>(join: &mut JoinHandle<T>) -> Option<T> {
    match Pin::new(join).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
