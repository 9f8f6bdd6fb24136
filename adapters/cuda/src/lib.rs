//! CUDA devices as a backend of `terrace-device`. The driver is loaded at run time: nothing of NVIDIA's is needed to build,
//! and a machine without it gets an error that says what to install.
//!
//! ```text
//!          terrace_device::Backend
//!                    │
//!   ┌────────────────v───────────────────────────────┐
//!   │ backend          one call, one function        │      probe: tries each thing once, when a device is opened
//!   │  regions   memory by kind: device, pool, ..    │ <────── and turns what failed into a note for people
//!   │  pages     address space, pages, access        │
//!   │  batches   many copies    hints  about managed │
//!   ├────────────────────────────────────────────────┤
//!   │ cuda             Cuda: what a device holds     │      streams: made, named, ended
//!   ├────────────────────────────────────────────────┤
//!   │ primary          the context, current on       │      codes: what a number means, with no driver asked
//!   │                  the calling thread; forks     │
//!   ├────────────────────────────────────────────────┤
//!   │ functions        pointers by name, in groups   │      layouts: structures and constants of the interface
//!   │ library          libcuda, shared with cudarc   │
//!   └────────────────────────────────────────────────┘
//! ```
//! Beside it stands `interop`: [`SharedStream`], by which terrace's memory enters `cudarc`'s copies and launches.
//!
//! # What holds
//! * **No panic and no undefined value.** cudarc's functions panic when a symbol is missing, and its result type is an enum
//!   that a newer driver's code would make undefined. So the backend uses only its library and its handle types; functions are
//!   resolved once by name, and a code is a plain number.
//! * **What a device can do is tried, not believed.** A capability is set when the attribute says so *and* a first use
//!   worked. What failed is told in [`Description::notes`](terrace_device::Description::notes), with call and code.
//! * **A refused call changes nothing**, also when the refusal comes in the middle of several calls.
//! * **Threads stay as they are.** The device's context is current during a call; the thread has what it had again
//!   afterwards, another one or none. Threads that work with one device save two calls by making its context current.
//! * **A capture elsewhere is not disturbed.** Calls that a graph capture in "global" mode would forbid to every thread
//!   (allocate, free, query, wait) change the calling thread to "relaxed" for the moment.
//! * **Forks and the end of a process are quiet.** In a child no call reaches the driver; after the driver has shut down, its
//!   refusal is [`Reason::Lost`](terrace_device::Reason::Lost).
//!
//! # Example
//! ```
//! use terrace_cuda::{Cuda, OpenError};
//! use terrace_device::Backend;
//!
//! match Cuda::open(0) {
//!     Ok(cuda) => println!("{} with {} bytes", cuda.description().name, cuda.description().total),
//!     Err(error @ OpenError::NoLibrary { .. }) => println!("{error}"), // says what was looked for, and what to install
//!     Err(error) => println!("{error}"),
//! }
//! ```

mod backend;
mod batches;
mod codes;
mod cuda;
mod error;
mod functions;
mod hints;
mod interop;
mod layouts;
mod library;
mod open;
mod pages;
mod primary;
mod probe;
mod regions;
mod streams;

pub use cuda::Cuda;
pub use error::{OpenError, Version};
pub use functions::{Function, functions};
pub use interop::{SharedSlice, SharedSliceMut, SharedStream};
