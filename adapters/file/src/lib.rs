#![doc = include_str!("../README.md")]
//!
//! # The parts, lowest first
//!
//! | file | what it is |
//! | --- | --- |
//! | `fault` | the error of a call on a file: [`FileFault`] |
//! | `notify` | a condition variable for futures; stores and runs their wakers |
//! | `park` | blocks a thread on a future |
//! | `thread` | a thread that is joined when its owner is dropped |
//! | `frame` | a pool of aligned I/O memory |
//! | `join` | the handle of a spawned task |
//! | `mapped` | a read-only file mapped into memory |
//! | `slab_file` | a file of fixed size with all its space allocated |
//! | `disk` | the interface between the store and its storage: requests and responses |
//! | `executor` | spawned tasks and the threads that poll them |
//! | `request` | the interface of an I/O engine: requests and completions |
//! | `engine` | I/O engines: io_uring, and a pool of threads |
//! | [`store`] | checksummed pieces in slab files, and a log that says which of them are durable |
//! | `directory` | a disk over the files of one directory |

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
