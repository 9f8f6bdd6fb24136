//! Which errors of a manager are just.

use crate::model::Fate;
use crate::session::{Flight, Job, LEAST, Session};
use terrace_file::StoreError;
use terrace_tests::disk::{Kind, is_full};
use terrace_tiers::Error;
use terrace_tiers::ledger::RefusalReason;

/// What an error is explained by, or that it is not.
type Reason = Result<&'static str, &'static str>;

fn just(explained: bool, reason: &'static str, why: &'static str) -> Reason {
    if explained { Ok(reason) } else { Err(why) }
}

impl Session<'_> {
    /// What explains an error of operation number `at`, or why nothing does.
    pub fn why(&self, at: usize, error: &Error) -> Reason {
        let Flight { key, job, disturbed, .. } = &self.flights[at];
        let buffer = self.model.get(key);
        match error {
            Error::Refused(refusal) => match (refusal.reason, job) {
                (RefusalReason::NoRoom, Job::Allocate { wait: false, .. }) => Ok("no room"),
                (RefusalReason::TooLarge, Job::Allocate { .. }) => Ok("too large"),
                (RefusalReason::OverCap, Job::Allocate { .. }) => {
                    just(self.setup.tenants.len() > 1, "over cap", "there is no cap")
                }
                _ => Err("that cannot be"),
            },
            Error::Leased => {
                let others = self.flights.iter().filter(|other| other.key == *key).count() > 1;
                just(*disturbed || others, "leased", "nobody else used the buffer")
            }
            Error::PinnedCap { asked, .. } => {
                let leases = |flight: &&Flight| match flight.job {
                    Job::Lease { .. } | Job::LeaseMut { .. } => true,
                    // A copy that began beside a lease has one too, until it ends.
                    Job::Sync(..) => flight.disturbed,
                    _ => false,
                };
                let leased: u64 = self.flights.iter().filter(leases).map(|flight| flight.bytes).sum();
                just(leased.max(*asked) > self.setup.pinned, "pinned cap", "so much is not leased")
            }
            Error::Freed => {
                just(buffer.is_none_or(|buffer| buffer.fate != Fate::Live), "freed", "the buffer was not freed")
            }
            Error::NoRoom { .. } | Error::Suspended { .. } => Ok("no room in the tier"),
            Error::NameTaken(taken) => {
                // It may have been removed since.
                let named = self.model.values().any(|buffer| buffer.name.as_ref() == Some(taken));
                just(*disturbed || named, "name taken", "nobody has or had the name")
            }
            Error::NoTier(_) => {
                let bytes = buffer.map_or(u64::MAX, |buffer| buffer.bytes as u64);
                just(bytes > self.setup.memory / LEAST, "larger than memory", "there are all tiers")
            }
            Error::Store(error) => self.why_store(at, error),
            _ => Err("that cannot be"),
        }
    }

    fn why_store(&self, at: usize, error: &StoreError) -> Reason {
        let (disk, window) = (&self.world.disk, &self.flights[at].window);
        let earlier = disk.fired(0);
        let stats = self.manager().tiers().into_iter().find_map(|tier| tier.files);
        if let StoreError::Full { .. } = error {
            // What a fault hit is not used again.
            let full = is_full(stats, &self.setup.options) || !earlier.is_empty() || disk.marks().full > 0;
            return just(full, "the store is full", "there is room, or room for another slab");
        }
        // A sync that failed may have dropped what is missed only now.
        let dropped = earlier.iter().any(|fired| matches!(fired.line.kind, Kind::Sync | Kind::SyncDirectory));
        let told = window.many_steps(disk);
        told.map(|()| "a fault").or_else(|why| just(dropped || self.aged, "an earlier sync, or an older log", why))
    }
}
