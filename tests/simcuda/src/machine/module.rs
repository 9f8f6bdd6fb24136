//! Modules, and libraries that contexts get modules of. Kernels that are not known here have names and do nothing.

use crate::streams::KERNELS;
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// The code that a program loads.
pub struct ModuleImage {
    /// Names of its kernels.
    kernels: Vec<CString>,
    /// Its variables.
    pub variables: Vec<ModuleVariable>,
}

/// A variable in a device's global or constant memory.
pub struct ModuleVariable {
    /// Its name.
    pub name: String,
    /// Its length, at least 1.
    pub bytes: u64,
    /// What its first bytes are when a module begins; the others are zeros.
    pub initial: Vec<u8>,
}

impl ModuleImage {
    /// Code that has these kernels and variables.
    pub fn new(kernels: Vec<String>, variables: Vec<ModuleVariable>) -> ModuleImage {
        let kernels = kernels.into_iter().filter_map(|name| CString::new(name).ok()).collect();
        ModuleImage { kernels, variables }
    }

    /// Code of another kind, which is not looked at: it has all kernels that are known here.
    pub fn unknown() -> ModuleImage {
        ModuleImage::new(KERNELS.iter().map(|(name, ..)| (*name).into()).collect(), Vec::new())
    }

    /// The number of a kernel, where the image has it.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.all().find(|(_, named)| named.to_bytes() == name.as_bytes()).map(|(number, _)| number)
    }

    /// The name of a kernel.
    pub fn name(&self, kernel: usize) -> Option<&CStr> {
        self.all().find(|(number, _)| *number == kernel).map(|(_, name)| name)
    }

    /// Numbers and names of all its kernels.
    ///
    /// The number of a known one is its place in [`KERNELS`]; others count on from its length, by their place in the
    /// image.
    pub fn all(&self) -> impl Iterator<Item = (usize, &CStr)> {
        self.kernels.iter().enumerate().map(|(at, name)| {
            let known = KERNELS.iter().position(|(known, ..)| known.as_bytes() == name.to_bytes());
            (known.unwrap_or(KERNELS.len() + at), name.as_c_str())
        })
    }
}

/// A module.
pub struct Module {
    /// Its context.
    pub context: u64,
    /// Its code.
    pub image: Arc<ModuleImage>,
    /// The library it came from; `None` where `cuModuleLoadData` made it.
    pub library: Option<u64>,
    /// First bytes of its variables, in the image's order.
    pub variables: Vec<u64>,
}

/// A library: code of no context. A context gets a module of it with the first function or variable it needs.
pub struct KernelLibrary {
    /// Its code.
    pub image: Arc<ModuleImage>,
}

/// A kernel of a library: a function of each context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LibraryKernel {
    /// Number of the kernel.
    pub kernel: usize,
    /// The library's handle.
    pub library: u64,
}

/// Texts that become one image.
pub struct PendingLink {
    /// Its context.
    pub context: u64,
    /// Texts, and the kernels that each names.
    pub inputs: Vec<(String, Vec<String>)>,
    /// The image, which ends with a zero, once it was asked for: nothing is added any more.
    pub image: Option<String>,
}
