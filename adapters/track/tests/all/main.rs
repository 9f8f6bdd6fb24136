//! The tests of the tracker that share a process: one program, since each more costs seconds to build and to link.

mod ages;
mod leaks;
mod lists;
mod memory;
mod model;
mod scopes;
#[cfg(all(target_os = "linux", not(miri)))]
mod sites;
mod switched;
mod tags;
mod threads;
