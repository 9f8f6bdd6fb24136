#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!   owner: a device, a manager ──► Tracker::allocated ──► Stamp, which the owner keeps with the block
//!                                     │
//!                  a thread's own counters, by tag ──► gauges of live bytes, all threads'
//!                                     │ (records)
//!                        64 tables of records, by key ──► live(), find_older_than()
//!                                     │ (sites)
//!                          call stacks, each kept once
//! ```
//!
//! | file | content |
//! | --- | --- |
//! | `tracker`, `call`, `query` | the tracker; calls that look at the thread; lists |
//! | `mode` | how much is recorded; whether any tracker is on |
//! | `lane`, `counter`, `counters`, `growing` | a thread's counters, and a way to them; plain and shared counters; tables that grow in place |
//! | `records`, `sites` | live blocks by key; call stacks |
//! | `tag`, `origin`, `thread` | names; for what and from where; a thread's number, tag and stack |
//! | `sink`, `recorded` | where events go while a recorder is attached; calls of recorders |
//! | `frames`, `loaded` | return addresses by frame pointers; build ids |
//! | `scope`, `leaks` | statistics of a region of code; the list at the end |
//! | `list`, `groups`, `summary`, `time` | what queries return; the clock |
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
mod call;
mod counter;
mod counters;
#[cfg(feature = "std")]
mod frames;
mod groups;
mod growing;
mod lane;
#[cfg(feature = "std")]
mod leaks;
mod list;
#[cfg(feature = "std")]
mod loaded;
mod mode;
mod origin;
mod query;
#[cfg(feature = "std")]
mod recorded;
mod records;
mod scope;
#[cfg(feature = "std")]
mod sink;
mod sites;
mod summary;
mod tag;
#[cfg(feature = "std")]
mod thread;
mod time;
mod tracker;

pub use counter::{BATCH, BATCH_PART};
#[cfg(feature = "std")]
pub use frames::walk_frames;
pub use groups::{LiveGroup, LiveGroups};
pub use lane::ThreadLane;
#[cfg(feature = "std")]
pub use list::LeakReport;
pub use list::{LiveList, StackFrame, TrackedBlock};
pub use mode::{TrackMode, UnknownTrackMode, any};
pub use origin::Origin;
pub use scope::Scope;
#[cfg(feature = "std")]
pub use sink::EventSink;
pub use sites::{MAX_SITE_DEPTH, MOST_SITES};
pub use summary::{ScopeStats, TagStats, TagTable};
pub use tag::{MAX_TAG_BYTES, Tag};
#[cfg(feature = "std")]
pub use thread::{TagGuard, tag};
pub use time::UserClock;
pub use tracker::{Locator, Stamp, Tracker};
