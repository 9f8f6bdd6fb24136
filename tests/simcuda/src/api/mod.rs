//! The driver's functions, one file per family.
//!
//! Upward: C functions, by name. Each says what it refuses; what it does is in `machine`, `memory` and `streams`.
//! From below: [`crate::gate::exports`] makes C functions of safe bodies.

mod capture;
mod context;
mod copy;
mod cubin;
mod declarations;
mod device;
mod event;
mod function;
mod green;
mod host;
mod ipc;
mod launch;
mod library;
mod link;
mod managed;
mod memory;
mod own;
mod peer;
mod plane;
mod pointer;
mod pool;
mod ptx;
mod set;
mod start;
mod stream;
mod variable;
mod vmm;

pub use capture::*;
pub use context::*;
use context::{offered, valid};
pub use copy::*;
pub use device::*;
pub use event::*;
pub use function::*;
pub use green::*;
pub use host::*;
pub use ipc::*;
pub use launch::*;
pub use library::*;
pub use link::*;
pub use managed::*;
pub use memory::*;
pub use own::*;
pub use peer::*;
pub use plane::*;
pub use pointer::*;
pub use pool::*;
pub use set::*;
pub use start::*;
pub use stream::*;
pub use variable::*;
pub use vmm::*;
