//! HIP over the simulated CUDA driver: AMD's names and rules, as far as terrace calls them.
//!
//! ```text
//! terrace-hip ── hip* ──▶ this library ── cu* ──▶ libcuda.so, the simulated driver, which tests steer (simcuda_*)
//! ```
//!
//! Where HIP differs from CUDA, this library does as HIP's own sources do (ROCm 6 and 7):
//! - a thread has a device, the first by default, and no context: `device`;
//! - attributes of a device have other numbers: `device`;
//! - unmapping and opening take one mapping, whole; mapping takes no offset; address space is whole pages, or refused: `memory`;
//! - copies have a direction, copies between devices name devices; physical memory is made on the thread's device: `memory`;
//! - registered memory may have another address on the device (a test says whether): `memory`;
//! - the last error of a thread stays until the program asks for it: `device`.
//!
//! What it cannot do: kernels, graphs' own memory, handles between processes; times are those of no machine.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod call;
mod device;
mod memory;
mod order;
