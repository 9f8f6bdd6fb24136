//! Structures as `cuda.h` lays them out. `tests.rs` compares size and place of each field with cudarc's.
//!
//! Upward: plain values, good with any bytes in them.

use super::{In, c_int, c_uint};

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    /// `CUmemLocationType`: 1 is a device.
    pub kind: c_int,
    /// Which one.
    pub id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// `CUmemAllocationType`: 1 is pinned.
    pub kind: c_int,
    /// Ways to share it with other processes, one bit each.
    pub handle_types: c_int,
    /// Where the memory is.
    pub location: Location,
    /// For Windows; a pointer in C.
    pub security: usize,
    /// Compression wanted.
    pub compression: u8,
    /// Reachable by network cards.
    pub rdma: u8,
    /// Bits of `CU_MEM_CREATE_USAGE_*`.
    pub usage: u16,
    /// Zeros.
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Who.
    pub location: Location,
    /// 0 nothing, 1 reads, 3 reads and writes.
    pub flags: c_int,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolProperties {
    /// `CUmemAllocationType`: 1 is pinned.
    pub kind: c_int,
    /// Ways to share it with other processes, one bit each.
    pub handle_types: c_int,
    /// Where the memory is.
    pub location: Location,
    /// For Windows; a pointer in C.
    pub security: usize,
    /// From CUDA 12.2 on: the most bytes the pool may hold, 0 for no limit. Zeros before that.
    pub max_size: usize,
    /// Zeros.
    pub reserved: [u8; 56],
}

/// `CUmemcpyAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyAttributes {
    /// `CUmemcpySrcAccessOrder`: when sources are read. 1 in stream order, 2 during the call, 3 at any time.
    pub order: c_int,
    /// Where managed memory should be.
    pub from: Location,
    /// Likewise.
    pub to: Location,
    /// Bits of `CU_MEMCPY_FLAG_*`.
    pub flags: c_int,
}

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Uuid(pub [u8; 16]);

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

/// `CUdevResource`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceResource {
    /// `CUdevResourceType`: 1 is multiprocessors, 0 nothing.
    pub kind: c_int,
    /// The driver's own.
    pub hidden: [c_uint; 23],
    /// `CUdevSmResource`: how many, the least group, what groups are multiples of, flags, domain.
    pub sm: [c_uint; 5],
    /// What other kinds have more.
    pub rest: [c_uint; 5],
    /// A further resource.
    pub next: usize,
}

impl DeviceResource {
    /// Nothing.
    pub const NONE: DeviceResource = DeviceResource { kind: 0, hidden: [0; 23], sm: [0; 5], rest: [0; 5], next: 0 };
}

/// `CUctxCreateParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ContextParameters {
    /// `CUexecAffinityParam`s: which part of the device's processors the context has.
    pub limits: In<u8>,
    /// How many.
    pub count: c_int,
    /// `CUctxCigParam`: a program for graphics that shares the device.
    pub graphics: In<u8>,
}

/// An end of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlaneEnd {
    /// Bytes before the rectangle in each row.
    pub x: usize,
    /// Rows before it.
    pub y: usize,
    /// `CUmemorytype`: which of the next three counts.
    pub kind: c_uint,
    /// An address of the host.
    pub host: In<u8>,
    /// An address of a device, or of either.
    pub device: In<u8>,
    /// `CUarray`.
    pub array: usize,
    /// Bytes from the beginning of one row to that of the next.
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlaneCopy {
    /// The source.
    pub from: PlaneEnd,
    /// The target.
    pub to: PlaneEnd,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    /// Blocks of the grid, and threads of a block, along x, y and z.
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    /// Bytes of dynamic shared memory.
    pub shared: c_uint,
    /// Where it runs.
    pub stream: u64,
    /// Attributes, which change nothing here.
    pub attributes: u64,
    pub count: c_uint,
}
