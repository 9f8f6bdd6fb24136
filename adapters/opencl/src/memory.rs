//! Kinds of memory that a device's blocks can lie in.
//!
//! Promises upward: one kind for all blocks of a backend.
//! Asks from below: nothing.

use std::fmt;

/// What a device's memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OpenClMemory {
    /// Buffers (`cl_mem`), which every device has. A kernel gets a sub-buffer, or the buffer and an offset.
    #[default]
    Buffers,
    /// Shared virtual memory, coarse-grained: kernels get addresses; the host maps memory before it reads or writes it.
    ///
    /// A kernel may follow pointers that it finds in memory. Where they lead to another segment than those of its arguments, the program
    /// must name that, by any address in it, to `clSetKernelExecInfo` (`CL_KERNEL_EXEC_INFO_SVM_PTRS`) before the launch.
    CoarseSvm,
    /// Shared virtual memory, fine-grained: as before, and the host reads and writes at the address.
    ///
    /// Pointers to other segments are named too.
    FineSvm,
}

impl fmt::Display for OpenClMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffers => "buffers",
            Self::CoarseSvm => "coarse-grained shared virtual memory",
            Self::FineSvm => "fine-grained shared virtual memory",
        })
    }
}
