//! Buffers by handle that live in the best tier, move down under pressure and up on use, and can be made durable.
#![forbid(unsafe_code)]

pub mod ledger;
pub mod policy;
