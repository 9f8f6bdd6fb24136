#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | file | what it is |
//! | --- | --- |
//! | `frame` | memory for I/O, used again and again |
//! | `slab` | a file of a fixed size, all of whose space is taken |
//! | `mapped` | a file that is only read, as memory |
//! | `request` | what is asked of an engine, and what comes of it |
//! | `engine` | the system's ring, or threads |
//! | `task` | what goes on by itself |
//! | `notify` | a condition that futures wait for; it keeps and wakes their wakers |
//! | `thread` | threads of ours |
//! | `wait` | threads that wait, and when they are woken |
//! | `disk` | what the store asks of the world: orders and answers |
//! | `directory` | a disk: files of one directory, through an engine |
//! | [`store`] | pieces in slabs, and a log that says which are durable |
//! | `fault` | what a file says when it refuses |

#![cfg(target_os = "linux")]

mod directory;
mod disk;
mod engine;
mod fault;
mod frame;
mod join;
mod mapped;
mod notify;
mod request;
mod slab;
pub mod store;
mod task;
mod thread;
mod wait;

pub use directory::{Directory, EngineKind, Worker};
pub use disk::{Answer, Disk, File, Order, Reply};
pub use engine::{Ring, Threads, perform};
pub use fault::{FileFault, Reason};
pub use frame::{ALIGN, Frame, Frames, LINE};
pub use join::Join;
pub use mapped::{Mapped, Stream, Usage};
pub use notify::{Notified, Notify};
pub use request::{Completion, Engine, Op, Request, Sink};
pub use slab::Slab;
pub use store::{Change, Object, Piece, Put, Store, StoreError, StoreOptions, StoreStats};
pub use task::{Driver, Tasks, is_in_task};
pub use thread::{Thread, is_ours};
