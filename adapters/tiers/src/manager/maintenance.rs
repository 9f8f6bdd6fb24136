//! The maintenance thread: ticks, compaction of stores, capacities of devices.

use super::ManagerShared;
use crate::ledger::LedgerEvent;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use terrace_file::WorkerThread;

/// Number of ticks between compactions of stores: ten seconds at the default interval.
const COMPACTION_TICKS: u64 = 40;

/// A tier on a device shrinks when less than one part in this many of its limit is left free for other users of the
/// device.
const SPARE: u64 = 32;

/// The maintenance thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct MaintenanceThread {
    // Dropped first: this ends the thread.
    _stop: Option<mpsc::Sender<()>>,
    _thread: Option<WorkerThread>,
}

impl MaintenanceThread {
    /// Starts the thread, which ticks at every interval. If the interval is zero there is no thread.
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
    /// Runs the ledger's maintenance; every `COMPACTION_TICKS` calls also that of devices and stores.
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
            // A store whose compaction fails is compacted again at a later tick.
            self.tiers().filter_map(|tier| self.store(tier).ok()).for_each(|store| drop(store.compact()));
        }
    }
}

impl ManagerShared {
    /// Adjusts the capacities of device tiers to the memory that the driver, or the system, has left: other programs
    /// use it too.
    fn follow_device_memory(self: &Arc<Self>) {
        for tier in self.tiers() {
            let Some(gpu) = self.device_tier(tier) else { continue };
            // If a device does not answer, its capacity stays: calls that use the device report the error.
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
            // Returns the memory of copies that left the tier to the driver.
            if room.is_short(most / SPARE) {
                gpu.trim();
            }
        }
    }
}
