//! A machine for a test: initialised, the context of device 0 current.
//!
//! Upward: [`Machine`]. A test ends as it should when it gave everything back: the session looks.

use crate::driver::{current, enter, init, leave};
use std::ops::{Deref, DerefMut};
use terrace_tests::simcuda::{Session, Simulator};

/// A session in which device 0 is in use.
pub struct Machine {
    session: Session,
}

impl Machine {
    /// A machine of this profile.
    pub fn new(json: &str) -> Machine {
        let session = Simulator::exclusive(json);
        init().expect("a device");
        enter(0).expect("a context");
        Machine { session }
    }

    /// A workstation's GPU.
    pub fn discrete() -> Machine {
        Machine::new("")
    }

    /// The findings, which must all be of this kind; they are forgotten.
    #[track_caller]
    pub fn caught(&self, kind: &str) -> String {
        let found = self.violations();
        assert!(!found.is_empty(), "nothing was found, expected {kind}");
        assert!(found.iter().all(|line| line.starts_with(&format!("{kind}: "))), "expected {kind}: {found:#?}");
        self.forget();
        found.join("\n")
    }
}

impl Deref for Machine {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Machine {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.session.release();
        if !std::thread::panicking() {
            current(0).expect("no context");
            leave(0).expect("the context was retained");
        }
    }
}
