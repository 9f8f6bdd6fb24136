//! The tests of the tiers that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process, allocator or panic hook, or that measures its process, is a file beside this folder.

mod budgets;
mod cancelled;
mod clock;
mod crowd;
mod detect;
mod devices;
mod disks;
mod dormant;
mod errors;
mod extremes;
mod ledger;
mod ledger_ahead;
mod ledger_moves;
mod ledger_rules;
mod ledgers;
mod lent;
mod locals;
mod manager;
mod mapped;
mod patterns;
mod policies;
mod policy;
mod readers;
mod restart;
mod runtimes;
mod sequence;
mod stats;
mod threads;
mod turns;
mod two_devices;
mod wakers;
