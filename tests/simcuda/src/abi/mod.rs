//! What crosses the C boundary: pointers, structures, numbers.
//!
//! Upward: [`Out`], [`In`] and [`Text`] hold the pointers of callers, and safe code reads and writes through them;
//! structures as `cuda.h` lays them out; every enum of C is a plain [`c_int`], so that a number nobody knows is a
//! value like any other.
//! From below: the caller's promise that a pointer is null or good for its type.

pub mod attributes;
pub mod codes;
mod pointers;
mod structs;
#[cfg(test)]
mod tests;

pub use codes::{Code, Outcome};
pub use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
pub use pointers::{In, Out, Text, put_text};
pub use structs::{
    Access, ContextParameters, CopyAttributes, DeviceResource, IpcHandle, LaunchConfig, Location, PlaneCopy, PlaneEnd,
    PoolProperties, Properties, Uuid,
};
