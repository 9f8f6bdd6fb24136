//! Heaps: what terrace gives firmware beside what firmware has, on one list of operations.
//!
//! ```text
//! options   what was asked          works     the lists of operations, made beforehand from the seed
//! subjects  every heap behind one face (ours, peers)
//! run       a list on a heap: timed, or counted by callgrind        count   callgrind, for each
//! fill      how far memory fills, bytes a block costs, growth in place
//! size      text and static bytes on Thumb                           results, plot, table, command: as for the core
//! ```
//!
//! Promises upward: one interleaved run; every heap gets the same operations, memory and warm-up; what does not fit, or
//! refuses requests, is said where its number stands.
//! Asks from below: public faces only, of terrace as of the peers.

pub mod command;
pub mod count;
pub mod fill;
pub mod options;
pub mod plot;
pub mod results;
pub mod run;
pub mod size;
pub mod subjects;
pub mod table;
pub mod works;
