//! The tests of the tiers that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process or allocator, or that measures either, is a file beside this folder.

mod damage;
mod detect;
mod devices;
mod extremes;
mod ledger;
mod ledger_moves;
mod ledger_rules;
mod ledgers;
mod locals;
mod manager;
mod mapped;
mod patterns;
mod policies;
mod policy;
mod restart;
mod runtimes;
mod turns;
mod wakers;
