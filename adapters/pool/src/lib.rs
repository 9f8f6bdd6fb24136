#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | module | what it is |
//! | --- | --- |
//! | [`shared`] | a lock around any allocator |
//! | [`waiting`] | a queue of waiters in front of any allocator |
//! | `barrier`, `thread_number` | a barrier that one side pays for; small numbers for threads |
//! | `front` | the slots that one thread keeps to itself |
//! | `pool_ref` | a pool, borrowed or shared |
//! | `places` | which slots are idle, vacant, out |
//! | `objects` | [`ObjectPool`] |
//! | `arrays` | [`ArrayPool`] |
#![cfg_attr(not(feature = "objects"), allow(rustdoc::broken_intra_doc_links, dead_code))]

#[cfg(feature = "objects")]
mod arrays;
#[cfg(feature = "objects")]
mod barrier;
#[cfg(feature = "objects")]
mod front;
#[cfg(feature = "objects")]
mod objects;
#[cfg(feature = "objects")]
mod places;
#[cfg(feature = "objects")]
mod pool_ref;
pub mod shared;
#[cfg(feature = "objects")]
mod sync;
#[cfg(feature = "objects")]
mod thread_number;
pub mod waiting;

#[cfg(feature = "objects")]
pub use arrays::{
    ArrayElement, ArrayError, ArrayPool, ArrayPoolBuilder, ArraySizeStats, ArrayStats, Outstanding, RentedArray,
    ReturnError, ReturnRefusal,
};
#[cfg(feature = "objects")]
pub use objects::{
    FactoryError, Maintenance, ObjectError, ObjectFuture, ObjectPool, ObjectPoolBuilder, ObjectStats, PooledObject,
};
