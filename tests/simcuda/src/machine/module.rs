//! Modules, and libraries that contexts get modules of. Kernels that are not known here have names and do nothing.

use crate::streams::KERNELS;

/// The code that a program loads.
#[derive(Clone)]
pub struct ModuleImage(
    /// The kernels that it names; `None` where it is neither text nor machine code, and has all that are known here.
    pub Option<Vec<String>>,
);

impl ModuleImage {
    /// The number of a kernel, where the image has it: of a known one its place in [`KERNELS`], of others from its length on their
    /// place in the image.
    pub fn find(&self, name: &str) -> Option<usize> {
        let known = KERNELS.iter().position(|(known, ..)| *known == name);
        let Some(names) = &self.0 else { return known };
        let at = names.iter().position(|named| named == name)?;
        Some(known.unwrap_or(KERNELS.len() + at))
    }

    /// Numbers of all kernels that the image has.
    pub fn all(&self) -> Vec<usize> {
        match &self.0 {
            Some(names) => names.iter().filter_map(|name| self.find(name)).collect(),
            None => (0..KERNELS.len()).collect(),
        }
    }
}

/// A module.
pub struct Module {
    /// Its context.
    pub context: u64,
    /// Its code.
    pub image: ModuleImage,
    /// The library it came from; `None` where `cuModuleLoadData` made it.
    pub library: Option<u64>,
}

/// A library: code of no context. A context gets a module of it with the first function it needs.
pub struct KernelLibrary {
    /// Its code.
    pub image: ModuleImage,
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
