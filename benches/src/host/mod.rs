//! Host allocators: terrace beside those that programs have, loaded before them.
//!
//! ```text
//! options    what was asked          libraries, recipes   peers as shared libraries, from crates and Debian
//! programs   the list                stage, redis         what they read, and a server's client
//! launch     one process, and what it used                measure   programs under libraries, in turn
//! counts     instructions through C and in Rust          behaviour          what stays resident, forks, small processes
//! results, table, plot, command      as for the core
//! ```
//!
//! Promises upward: one interleaved run; the same work for all, its output compared; what cannot be had or fails is said
//! where its number would stand.
//! Asks from below: Linux, cargo, a C and C++ compiler, Debian's packages as far as they are there.

pub mod behaviour;
pub mod command;
pub mod counts;
pub mod launch;
pub mod libraries;
pub mod measure;
pub mod options;
pub mod plot;
pub mod programs;
pub mod recipes;
pub mod redis;
pub mod results;
pub mod stage;
pub mod table;
