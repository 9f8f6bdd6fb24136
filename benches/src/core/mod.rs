//! The core's allocators and its peers, on one list of actions.
//!
//! Promises upward: every subject gets the same sizes and the same victims in the same order; the timed loop has
//! nothing in it but calls, one read of the list and the caller's own vector of handles; every answer is checked.
//! Asks from below: public faces only, of terrace as of the peers.

pub mod actions;
pub mod cache_hit;
pub mod command;
pub mod instructions;
pub mod measure;
pub mod metadata;
pub mod options;
pub mod plot;
pub mod results;
pub mod subjects;
pub mod table;
