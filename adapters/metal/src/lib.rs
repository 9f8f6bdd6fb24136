#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!            terrace_device::Device
//!                    │ Backend
//!   ┌────────────────v───────────────────────────────────────────────────┐
//!   │ backend       Backend: memory, streams, events, copies             │
//!   │ metal         Metal: opens a device; buffers and queues for users  │
//!   ├────────────────────────────────────────────────────────────────────┤   these need Metal
//!   │ region        memory: a buffer, at the host's address              │
//!   │ stream        a command queue, one command buffer after another    │
//!   ├────────────────────────────────────────────────────────────────────┤   these do not, and are tested everywhere
//!   │ submissions   which command buffers of a stream are done           │
//!   │ rules         numbers and names of Metal's                         │
//!   │ error         why a device could not be opened                     │
//!   └────────────────────────────────────────────────────────────────────┘
//! ```

#[cfg(any(test, target_os = "macos"))]
mod error;
#[cfg(any(test, target_os = "macos"))]
mod rules;
#[cfg(any(test, target_os = "macos"))]
mod submissions;

#[cfg(target_os = "macos")]
mod backend;
#[cfg(target_os = "macos")]
mod metal;
#[cfg(target_os = "macos")]
mod region;
#[cfg(target_os = "macos")]
mod stream;

#[cfg(target_os = "macos")]
pub use error::MetalError;
#[cfg(target_os = "macos")]
pub use metal::Metal;
