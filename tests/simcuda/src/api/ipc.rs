//! Memory and events for other processes.
//!
//! Handles are given; opening one of another process is not supported, and a process cannot open its own.

use super::valid;
use crate::abi::codes::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::abi::{Code, IpcHandle, Out, c_uint};
use crate::gate::exports;
use crate::memory::Holder;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which must be set.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: c_uint = 4;

/// How handles begin: for memory, and for events.
const MEMORY: [u8; 8] = *b"simcudaM";
const EVENT: [u8; 8] = *b"simcudaE";

exports! {
    /// A handle of a block of `cuMemAlloc`, by its first byte.
    ///
    /// Each block has another; no other memory has one.
    Context fn cuIpcGetMemHandle(world, here, handle: Out<IpcHandle>, pointer: u64) {
        let block = world.memory.blocks.get(&pointer).filter(|block| block.holder == Holder::Device);
        handle.put(made(MEMORY, block.ok_or(INVALID_VALUE)?.id))
    }

    /// Memory of another process.
    Context fn cuIpcOpenMemHandle_v2(world, here, pointer: Out<u64>, handle: IpcHandle, flags: c_uint) {
        pointer.check()?;
        valid(flags == LAZY_ENABLE_PEER_ACCESS)?;
        Err(refusal(MEMORY, handle))
    }

    /// Gives such memory back. No memory is of that kind.
    Context fn cuIpcCloseMemHandle(world, here, pointer: u64) {
        Err(INVALID_VALUE)
    }

    /// A handle of an event that was made for other processes.
    Context fn cuIpcGetEventHandle(world, here, handle: Out<IpcHandle>, event: u64) {
        if world.event(event, "cuIpcGetEventHandle")?.flags & INTERPROCESS == 0 {
            return Err(INVALID_HANDLE);
        }
        handle.put(made(EVENT, event))
    }

    /// An event of another process.
    Context fn cuIpcOpenEventHandle(world, here, event: Out<u64>, handle: IpcHandle) {
        event.check()?;
        Err(refusal(EVENT, handle))
    }
}

/// A handle: its kind, this process, and which object it stands for.
fn made(kind: [u8; 8], object: u64) -> IpcHandle {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&kind);
    bytes[8..12].copy_from_slice(&std::process::id().to_ne_bytes());
    bytes[16..24].copy_from_slice(&object.to_ne_bytes());
    IpcHandle(bytes)
}

/// Why a handle cannot be opened.
fn refusal(kind: [u8; 8], handle: IpcHandle) -> Code {
    if handle.0[..8] != kind {
        return INVALID_HANDLE;
    }
    if handle.0[8..12] == std::process::id().to_ne_bytes() { INVALID_CONTEXT } else { NOT_SUPPORTED }
}
