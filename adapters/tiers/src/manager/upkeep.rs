//! The clock of maintenance: a thread that says what time it is.

use super::Shared;
use crate::ledger::Event;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use terrace_file::WorkerThread;

/// Ticks from one tidying of stores to the next: ten seconds, where nothing else is said.
const TIDY: u64 = 40;

/// Of what a tier on a device may have, one part in so many stays free for others: from there on it shrinks.
const SPARE: u64 = 32;

/// The thread. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Upkeep {
    // Dropped first: the thread ends then.
    _stop: Option<mpsc::Sender<()>>,
    _thread: Option<WorkerThread>,
}

impl Upkeep {
    /// Begins to tick. An interval of zero: no thread, and no ticks.
    pub(super) fn begin(shared: &Arc<Shared>, interval: Duration) -> std::io::Result<Self> {
        if interval.is_zero() {
            return Ok(Self { _stop: None, _thread: None });
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let shared = Arc::downgrade(shared);
        let run = move || run(&shared, &stopped, interval);
        Ok(Self { _stop: Some(stop), _thread: Some(WorkerThread::spawn("terrace-upkeep", run)?) })
    }
}

fn run(shared: &Weak<Shared>, stopped: &mpsc::Receiver<()>, interval: Duration) {
    let begun = Instant::now();
    while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
        let Some(shared) = shared.upgrade() else { return };
        shared.tick(begun.elapsed().as_millis() as u64);
    }
}

impl Shared {
    /// Lets the ledger do what is due, and now and then stores.
    pub(super) fn tick(self: &Arc<Self>, now: u64) {
        self.try_again();
        let mut state = self.state();
        state.now = state.now.max(now);
        let _ = state.handle(self, Event::Tick { now });
        state.ticks += 1;
        let tidy = state.ticks.is_multiple_of(TIDY);
        self.unlock(state);
        self.settle_memory();
        if tidy {
            self.follow();
            // What could not be done is tried again next time.
            self.tiers().filter_map(|tier| self.store(tier).ok()).for_each(|store| drop(store.compact()));
        }
    }
}

impl Shared {
    /// Lets tiers of devices follow what the driver, or the system, has left for them: others use the same memory.
    fn follow(self: &Arc<Self>) {
        for tier in self.tiers() {
            let Some(gpu) = self.gpu(tier) else { continue };
            // A device that does not answer says so to who uses it.
            let Ok(room) = gpu.room(self.kind(tier)) else { continue };
            let mut state = self.state();
            let Some(view) = state.ledger.tier(tier) else { continue };
            let most = state.most[usize::from(tier)];
            let capacity = room.capacity(view.used, most / SPARE).min(state.allowed(self, tier, most));
            // Not for a few bytes.
            if capacity.abs_diff(view.capacity) > most / 64 {
                let _ = state.handle(self, Event::Resize { tier, capacity });
            }
            self.unlock(state);
            // What left since the last time.
            if room.is_short(most / SPARE) {
                gpu.trim();
            }
        }
    }
}
