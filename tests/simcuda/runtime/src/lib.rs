//! A CUDA runtime over the simulated driver, for programs that others wrote on NVIDIA's: PyTorch.
//!
//! NVIDIA's own runtime asks a driver for tables that no header names, so that it runs on no other. This one has the functions
//! that PyTorch calls to allocate, copy, order and capture, each made of functions of the driver:
//!
//! ```text
//! PyTorch ── cuda* ──▶ this library ── cu* ──▶ libcuda.so.1, the simulated driver ◀── cu* ── terrace
//!        └── nvml* ──▶ management                          ▲
//!        └── cuGetProcAddress ─────────────────────────────┘
//! ```
//!
//! Both are preloaded, the driver first, and a link `libnvidia-ml.so.1` leads here: `xtask/src/steps/clients/` does it.
//!
//! What it cannot do:
//! - **Kernels do nothing.** A launch is a place in the stream (and a node of a captured graph), so that events and waits are
//!   true, but no memory is read or written, and no use too early is found there. Copies and sets move bytes as ever.
//! - **What it lacks is NVIDIA's**, found behind it: functions that need no driver work (registering kernels), others answer
//!   that the driver is not theirs (`cudaErrorCallRequiresNewerDriver`). These are: libraries and their symbols, handles between
//!   processes, user objects and conditional nodes of graphs, copies of planes, pools' attributes.
//! - A kernel's figures (registers, occupancy) are those of no machine. Errors are those of the driver, whose numbers the runtime
//!   shares where both have them.
//! - Management (`nvml*`) says that it supports nothing, but that it is there and of which version the driver is.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod call;
mod device;
mod launch;
mod management;
mod memory;
mod order;
mod properties;
