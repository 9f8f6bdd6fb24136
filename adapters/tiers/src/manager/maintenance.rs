//! The maintenance thread: ticks, compaction of stores, capacities of devices.

use super::ManagerShared;
use crate::ledger::LedgerEvent;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use terrace_file::WorkerThread;

/// Ticks between compactions of stores: ten seconds, at the default interval.
const COMPACTION_TICKS: u64 = 40;

/// A tier on a device shrinks when less than one part in so many of its limit is free for other users.
const SPARE: u64 = 32;

/// The maintenance thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct MaintenanceThread {
    // Dropped first: this ends the thread.
    _stop: Option<mpsc::Sender<()>>,
    _thread: Option<WorkerThread>,
}

impl MaintenanceThread {
    /// Starts to tick. An interval of zero: no thread, and no ticks.
    pub(super) fn begin(shared: &Arc<ManagerShared>, interval: Duration) -> std::io::Result<Self> {
        if interval.is_zero() {
            return Ok(Self { _stop: None, _thread: None });
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let shared = Arc::downgrade(shared);
        let run = move || run(&shared, &stopped, interval);
        Ok(Self { _stop: Some(stop), _thread: Some(WorkerThread::spawn("terrace-upkeep", run)?) })
    }
}

fn run(shared: &Weak<ManagerShared>, stopped: &mpsc::Receiver<()>, interval: Duration) {
    let begun = Instant::now();
    while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
        let Some(shared) = shared.upgrade() else { return };
        shared.tick(begun.elapsed().as_millis() as u64);
    }
}

impl ManagerShared {
    /// Runs the ledger's maintenance, and at times that of stores.
    pub(super) fn tick(self: &Arc<Self>, now: u64) {
        self.retry_suspended();
        let mut state = self.state();
        state.now = state.now.max(now);
        let _ = state.handle(self, LedgerEvent::Tick { now });
        state.ticks += 1;
        let compacts = state.ticks.is_multiple_of(COMPACTION_TICKS);
        self.unlock(state);
        self.reclaim_unused_memory();
        if compacts {
            self.follow_device_memory();
            // A store that fails is compacted next time.
            self.tiers().filter_map(|tier| self.store(tier).ok()).for_each(|store| drop(store.compact()));
        }
    }
}

impl ManagerShared {
    /// Adjusts capacities of device tiers to what the driver, or the system, has left: other users share the memory.
    fn follow_device_memory(self: &Arc<Self>) {
        for tier in self.tiers() {
            let Some(gpu) = self.device_tier(tier) else { continue };
            // A device that does not answer reports so to its users.
            let Ok(room) = gpu.room(self.medium(tier)) else { continue };
            let mut state = self.state();
            let Some(view) = state.ledger.tier(tier) else { continue };
            let most = state.limits[usize::from(tier)];
            let capacity = room.capacity(view.used, most / SPARE).min(state.allowed(self, tier, most));
            // Small changes are ignored.
            if capacity.abs_diff(view.capacity) > most / 64 {
                let _ = state.handle(self, LedgerEvent::Resize { tier, capacity });
            }
            self.unlock(state);
            // The memory of copies that left since the last time.
            if room.is_short(most / SPARE) {
                gpu.trim();
            }
        }
    }
}
