//! One program for all tests of the crate.

mod configs;
mod files;
mod hostile;
mod published;
mod recorded;
mod terms;
mod trace;
