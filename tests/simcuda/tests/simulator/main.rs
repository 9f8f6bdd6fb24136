//! The simulated driver's promises: what it does as the real one does, and that it sees each kind of wrong use.
//!
//! Tests call the C functions by name, as programs do. One at a time has the machine.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod attach;
mod calls;
mod capture;
mod contexts;
mod crowd;
mod cubin;
mod cudarc;
mod driver;
mod exports;
mod faults;
mod forms;
mod green;
mod host;
mod ipc;
mod library;
mod link;
mod lost;
mod machine;
mod memory;
mod missing;
mod occupied;
mod order;
mod peers;
mod plane;
mod pools;
mod process;
mod ptx;
mod streams;
mod variables;
mod vmm;
