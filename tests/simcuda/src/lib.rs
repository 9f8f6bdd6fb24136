//! A CUDA driver without a GPU.
//!
//! The library exports names of the CUDA driver API, with the types and the rules of the real one. Device memory is
//! memory of the process, streams run on threads, and a launch runs one of a few known kernels. It is stricter than the
//! real driver: what a program does that is only lucky, this one reports.
//!
//! ```text
//! api        the driver's functions, one file per family       control    simcuda_*: what tests steer
//! gate       what every call passes first                      functions  the table of all functions
//! streams    queues, threads, events, captures, waiting
//! memory     addresses, blocks, mappings, pools, checks        order      clocks and the ledger of accesses
//! machine    the world behind one lock, profiles, reports      abi        what crosses the C boundary
//! ```
//!
//! Upward: whatever loads `libcuda.so` after this library was loaded by its path gets this one.
//! From below: the system's memory and threads.
//!
//! A panic in here is a mistake of the simulation: it cannot cross into C, and aborts the process with its message.
//!
//! What is not simulated: graphs with memory of their own, arrays and textures, sharing between processes, the time
//! that work takes in a part of a device, linking of anything but PTX, kernels but the seven of `streams::kernels`,
//! whose code is ours and not the module's. Where `cuda.h` leaves room the strict reading holds: a wait of `cuMemFree`
//! orders nothing, blocks are aligned to 512 bytes and no more, addresses come back late, and a stream is not done
//! before the host was told so. Only on 64-bit Linux; elsewhere the library is empty.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod abi;
mod api;
mod control;
mod functions;
mod gate;
mod latency;
mod machine;
mod memory;
mod order;
mod process;
mod streams;
