#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | module | what it is |
//! | --- | --- |
//! | `error` | what goes wrong |
//! | `name` | the rule for names; addresses and paths |
//! | `layout` | the format: header, table of holders |
//! | `pages` | an aligned copy of a range |
//! | `locks` | locks that die with their process |
//! | `offset` | places that mean the same in every process |
//! | `memory` | sealed memory, mapped |
//! | `socket` | the abstract socket: openers and their answers |
//! | `file` | the file in `/dev/shm` |
//! | `server` | the thread that answers openers |
//! | `backing` | words and bytes in either way |
//! | `shared` | a buffer that this process holds: slots, leases |
//! | `lease` | typed views |
//! | `options`, `buffer` | what programs call |
//! | `list` | which names there are |
#![cfg(target_os = "linux")]

mod backing;
mod buffer;
mod error;
mod file;
mod layout;
mod lease;
mod list;
mod locks;
mod memory;
mod name;
mod offset;
mod options;
mod pages;
mod server;
mod shared;
mod socket;

pub use buffer::SharedBuffer;
pub use error::ShmError;
pub use layout::Way;
pub use lease::{ReadLease, WriteLease};
pub use list::{SharedName, list};
pub use name::NAME_BYTES;
pub use offset::Offset;
pub use options::ShmOptions;
pub use shared::{Holder, LeaseKind};
