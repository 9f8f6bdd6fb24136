#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!   a program's own device                           terrace_device::Device
//!            │                                                │
//!   ┌────────v─────────────────────────────┐   ┌──────────────v──────────────────────┐
//!   │ allocator    types in turn           │   │ backend    one method, a few calls  │   open: instance, device, capabilities
//!   │ allocation   where, bytes, flushes   │   │ vulkan     streams, events by number│   library: loaded, functions looked for
//!   ├──────────────────────────────────────┤   │ regions    a buffer and its memory  │
//!   │ pools        an arena for each type  │   │ pages      sparse buffers           │   sparse: what is bound where
//!   │ objects      counts, heaps, budgets  │ <─┤ timeline   streams as semaphores    │
//!   ├──────────────────────────────────────┴───┴─────────────────────────────────────┤
//!   │ driver   memory objects, mapping, binding: the calls of Vulkan                 │   table: types, heaps, limits as data
//!   └────────────────────────────────────────────────────────────────────────────────┘   fault: codes as faults
//! ```

mod allocation;
mod allocator;
mod backend;
mod driver;
mod error;
mod fault;
mod library;
mod objects;
mod open;
mod pages;
mod pools;
mod regions;
mod sparse;
mod table;
mod timeline;
mod vulkan;

pub use allocation::VulkanAllocation;
pub use allocator::{AllocationDesc, Dedicated, HeapShare, VulkanAllocator};
pub use error::{AllocationError, VulkanError};
pub use library::{driver_names, library_names};
pub use pools::AllocatorOptions;
pub use table::{MemoryHeap, MemoryTable, MemoryType, MemoryUse};
pub use vulkan::VulkanBackend;
