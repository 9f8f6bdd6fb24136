//! Detection: layouts of real machines, built as directories; memory and budgets; measuring on the disk that is here.
#![cfg(target_os = "linux")]

mod classes;
mod layouts;
mod measuring;
mod memory;
pub(crate) mod world;
