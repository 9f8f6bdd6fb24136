//! One test's time with the simulator.
//!
//! Upward: [`Session`].
//! From below: [`Simulator`].

use super::Simulator;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whoever holds it has the machine.
static TURN: Mutex<()> = Mutex::new(());

/// The simulator, for one test. Dropping it, unless the test is failing already, fails the test where callers did wrong
/// or left something, and says what.
pub struct Session {
    simulator: &'static Simulator,
    leaks: bool,
    violations: bool,
    /// Last: the next test begins when all else is done.
    _turn: MutexGuard<'static, ()>,
}

impl Session {
    pub(super) fn begin(json: &str) -> Session {
        // A test that failed leaves nothing behind: the reset takes it away.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let simulator = Simulator::get();
        simulator.reset(json);
        Session { simulator, leaks: false, violations: false, _turn: turn }
    }

    /// This test leaves something on purpose.
    pub fn allow_leaks(&mut self) -> &mut Session {
        self.leaks = true;
        self
    }

    /// This test does wrong on purpose.
    pub fn allow_violations(&mut self) -> &mut Session {
        self.violations = true;
        self
    }
}

impl Deref for Session {
    type Target = Simulator;

    fn deref(&self) -> &Simulator {
        self.simulator
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whatever is still queued runs, so that its mistakes are found now.
        self.simulator.release();
        if std::thread::panicking() {
            return;
        }
        let violations = if self.violations { Vec::new() } else { self.simulator.violations() };
        let leaks = if self.leaks { Vec::new() } else { self.simulator.leaks() };
        assert!(violations.is_empty(), "used wrongly:\n{}", violations.join("\n"));
        assert!(leaks.is_empty(), "left behind:\n{}", leaks.join("\n"));
    }
}
