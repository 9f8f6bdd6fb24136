//! The backend over the simulated driver: every capability, every refusal, and every way a process may end.
//!
//! No GPU is needed, and none is used: the simulated library is loaded by path before any other libcuda could be. It checks
//! its caller; each test ends with "no violations, nothing left over".
#![cfg(target_os = "linux")]

mod child;
mod contexts;
mod ends;
mod handles;
mod interop;
mod once;
mod profiles;
mod reasons;
mod symbols;
mod workout;
