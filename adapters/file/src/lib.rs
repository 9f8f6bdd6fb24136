#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | file | what it is |
//! | --- | --- |
//! | `frame` | memory for I/O, used again and again |
//! | `slab_file` | a file of a fixed size, all of whose space is taken |
//! | `mapped` | a file that is only read, as memory |
//! | `request` | what is asked of an engine, and what comes of it |
//! | `engine` | the system's ring, or threads |
//! | `executor` | what goes on by itself |
//! | `notify` | a condition that futures wait for; it keeps and wakes their wakers |
//! | `thread` | threads of ours |
//! | `park` | threads that wait, and when they are woken |
//! | `disk` | what the store asks of the world: orders and answers |
//! | `directory` | a disk: files of one directory, through an engine |
//! | [`store`] | pieces in slabs, and a log that says which are durable |
//! | `fault` | what a file says when it refuses |

#![cfg(target_os = "linux")]

mod directory;
mod disk;
mod engine;
mod executor;
mod fault;
mod frame;
mod join;
mod mapped;
mod notify;
mod park;
mod request;
mod slab_file;
pub mod store;
mod thread;

pub use directory::{Directory, EngineKind, TaskRunner};
pub use disk::{Disk, DiskRequest, DiskResponse, ResponseSender, StoreFile};
pub use engine::{ThreadEngine, UringEngine, perform};
pub use executor::{Driver, Executor, is_in_task};
pub use fault::{FileFault, FileFaultReason};
pub use frame::{ALIGN, CACHE_LINE, Frame, FramePool};
pub use join::JoinHandle;
pub use mapped::{AccessPattern, MappedFile, MappedStream};
pub use notify::{Notified, Notify};
pub use request::{Completion, CompletionHandler, Engine, IoRequest, Op};
pub use slab_file::SlabFile;
pub use store::{Change, Object, Piece, PutResult, Store, StoreError, StoreOptions, StoreStats};
pub use thread::{WorkerThread, is_worker_thread};
