//! The manager of tiers beside raw loops and foyer on the same disk.
//!
//! ```text
//! options    what was asked              home       where files lie; how a manager is built
//! who        contestants                 calls      puts and gets through the manager, by futures and by threads
//! pieces     64 KiB and 4 MiB            large      one call for 64 MiB
//! layers     passes over more than fits into memory
//! resident   memory of a process         many       many small buffers, and named ones reopened
//! peer       foyer, from `benches/foyer`, which is built apart
//! results, table, command      as for the core
//! ```
//!
//! Promises upward: what a user of the crate `terrace` gets, in one interleaved run with the raw loops; every byte is compared when
//! it is read; the raw loops do the same with the same blocks, and take the checksums that the store takes.
//!
//! What is fair is decided here, once for all parts:
//!
//! - *New space*: each turn has a new manager on a new directory, and a new raw file, whose space the file system has allocated and
//!   nobody wrote before.
//! - *The end of puts*: buffers without names need not become durable, and the manager has no call for that. A raw loop ends with
//!   `fdatasync`. So the turn of the manager demotes what is still in memory, and then calls `fdatasync` on each file of the
//!   directory, many at a time: afterwards both have all bytes on the disk. That is within the time.
//! - *Memory of the caller*: begins at a page, and is used again for later calls, as that of raw loops is. `read_async`, which
//!   returns new memory, is slower: the system clears each page of it.
//! - *Latency*: from the call until its bytes are there, before the caller compares them.
//!
//! Asks from below: Linux; a file system with direct I/O.

pub mod calls;
pub mod command;
pub mod home;
pub mod large;
pub mod layers;
pub mod many;
pub mod options;
pub mod peer;
pub mod pieces;
pub mod resident;
pub mod results;
pub mod table;
pub mod who;
