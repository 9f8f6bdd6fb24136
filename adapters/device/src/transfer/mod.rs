//! Transfers: bytes between host and device, many at once, without the caller's waiting.
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
//! Promises upward: a transfer moves all its bytes or ends with one error; buffers belong to the engine meanwhile, so a
//! future may be dropped or forgotten at any time, and nothing is freed early; a caller that gets a target back that may hold a part
//! of the bytes gets it as [`Incomplete`]. Bytes are copied after what was put on the buffers' streams before the call.
//! Asks from below: a [`Backend`](crate::Backend): streams in order, events, pinned memory where it has any.
//!
//! | file | what it is |
//! | --- | --- |
//! | `engine`, `future`, `host`, `options`, `stats` | what users hold and see |
//! | `job` | one transfer: what is left, what is in flight, how it ended |
//! | `queue`, `pace` | what goes next, and in pieces of what size |
//! | `shared` | queue and jobs under one lock; what becomes of refused pieces |
//! | `lane` | pieces on their way |

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
