#![doc = include_str!("../README.md")]

pub mod shared;
pub mod waiting;
