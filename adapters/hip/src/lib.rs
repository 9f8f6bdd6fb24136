#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!          terrace_cuda::Cuda, a Backend: the same code as on CUDA
//!                    │ CUDA's functions, by CUDA's names
//!   ┌────────────────v───────────────────────────┐
//!   │ names      CUDA's name ─► HIP's, and since │     codes: names and reasons of HIP's result codes
//!   │ between    where parameters differ         │
//!   ├────────────────────────────────────────────┤
//!   │ library    libamdhip64, loaded at run time │
//!   └────────────────────────────────────────────┘
//! ```

mod between;
mod codes;
mod library;
mod names;

pub use library::{HIP, Hip, library_names};
pub use names::{Name, names};
