//! Benchmarks: peers and ours on one list of actions.
//!
//! ```text
//! options   what was asked        actions   the list, made beforehand from the seed
//! subjects  every allocator behind one face, with what it is given
//! measure   fill, warm up, interleave: raw samples          numbers   median, spread, flatness
//! instructions  pairs counted by callgrind     cache_hit    a hit's time     metadata  records in a full pool
//! callgrind  instructions of any run               heap          the same for heaps in their own memory
//! results   one JSON file, raw      plot  the picture beside it      table  what is printed
//! ```
//!
//! Promises upward: every subject gets the same sizes and the same victims in the same order; the timed loop has
//! nothing in it but calls, one read of the list and the caller's own vector of handles; every answer is checked;
//! raw samples are kept, losses too.
//! Asks from below: public faces only, of terrace as of the peers.
// Only where heaps are given memory and blocks back.
#![deny(unsafe_code)]

pub mod actions;
pub mod cache_hit;
pub mod callgrind;
pub mod command;
pub mod heap;
pub mod host;
pub mod instructions;
pub mod machine;
pub mod measure;
pub mod metadata;
pub mod numbers;
pub mod options;
pub mod plot;
pub mod results;
pub mod subjects;
pub mod table;

// Linked for its feature alone: see Cargo.toml.
use log as _;
