//! The maintenance thread: ticks, budgets of memory, compaction of stores.

use super::ManagerShared;
use crate::ledger::LedgerEvent;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use terrace_file::WorkerThread;

/// Number of ticks between compactions of stores: ten seconds at the default interval.
const COMPACTION_TICKS: u64 = 40;

/// Number of ticks between looks at the machine's memory: a second at the default interval.
const MEMORY_TICKS: u64 = 4;

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
    /// Runs the ledger's maintenance; now and then also that of memory, devices and stores.
    pub(super) fn tick(self: &Arc<Self>, now: u64) {
        self.retry_suspended();
        let mut state = self.state();
        state.now = state.now.max(now);
        let _ = state.handle(self, LedgerEvent::Tick { now });
        state.ticks += 1;
        let [compacts, looks] = [COMPACTION_TICKS, MEMORY_TICKS].map(|ticks| state.ticks.is_multiple_of(ticks));
        self.unlock(state);
        if looks {
            self.follow_machine_memory();
            self.check_if_asked();
        }
        self.reclaim_unused_memory();
        if compacts {
            self.follow_device_memory();
            // A store whose compaction fails is compacted again at a later tick.
            self.tiers().filter_map(|tier| self.store(tier).ok()).for_each(|store| drop(store.compact()));
        }
    }
}
