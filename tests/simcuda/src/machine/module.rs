//! Modules, and libraries that contexts get modules of.

use crate::streams::KERNELS;

/// The code that a program loads.
#[derive(Clone)]
pub struct ModuleImage(
    /// The kernels that its text names; `None` where the image is no text, and has all.
    pub Option<Vec<String>>,
);

impl ModuleImage {
    /// The number of a known kernel of this name, where the image has it.
    pub fn find(&self, name: &str) -> Option<usize> {
        let has = self.0.as_ref().is_none_or(|kernels| kernels.iter().any(|kernel| kernel == name));
        KERNELS.iter().position(|(known, ..)| *known == name).filter(|_| has)
    }

    /// Numbers of all known kernels that the image has.
    pub fn all(&self) -> Vec<usize> {
        KERNELS.iter().filter_map(|(name, ..)| self.find(name)).collect()
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
