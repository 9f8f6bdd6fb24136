//! Transfers: copies between host and device, many at once, while the caller goes on.
//!
//! ```text
//!   upload, download, copy ──► queue: three classes ──► piece: a part of a large transfer, or many small ones
//!   write, read (waiting)                                 │
//!                                         lane: a thread, a stream, two slots of pinned memory
//!                                           fill a slot ─ copy ─ event ─ the other slot meanwhile
//!                                                         │
//!   Transfer: a future, or wait() ◄── all pieces there ◄──┘── refused: again later, alone, or one error
//! ```
//!
//! Promises upward: a transfer moves all of its bytes or ends with one error; the engine owns the buffers until then,
//! so a future may be dropped or forgotten at any time, and no memory is freed early; a target that may be partly
//! written comes back as [`Incomplete`]. Bytes are copied after all work put on the buffers' streams before the call.
//! Asks from below: a [`Backend`](crate::Backend): streams that work in order, events, pinned memory where it has any.
//!
//! | file | what it is |
//! | --- | --- |
//! | `engine`, `future`, `host`, `options`, `stats` | the types that users hold and see |
//! | `job` | one transfer: the ranges left to issue, the parts in flight, how it ended |
//! | `queue`, `pace` | which job's bytes are copied next, and in pieces of which size |
//! | `shared` | queue and jobs under one lock; retries of refused pieces |
//! | `lane` | the threads that copy pieces |

mod engine;
mod future;
mod host;
mod job;
mod lane;
mod options;
mod pace;
mod queue;
mod shared;
mod stats;

pub use engine::TransferEngine;
pub use future::{Done, Incomplete, Transfer, TransferError};
pub use host::{HostBuffer, HostSource};
pub use options::{Priority, TransferOptions};
pub use stats::{DirectionStats, TransferStats};
