//! The library as PyTorch uses it, over the simulated driver: from C++ by PyTorch's own signatures, and from Python as the
//! package that people install.
#![cfg(target_os = "linux")]

mod common;
mod recorded;
mod simulated;
mod wheel;
