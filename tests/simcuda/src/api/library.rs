//! Libraries: code that belongs to no context, and the modules and functions that contexts have of it.
//!
//! Options are ignored. A library is loaded lazily: a context has nothing of it before it asks for a module or
//! function.

use super::launch::{end_modules, read_image};
use crate::abi::codes::{CONTEXT_IS_DESTROYED, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND};
use crate::abi::{In, Out, Outcome, Text, c_uint};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Fault, KernelLibrary, LibraryKernel, Module, World};
use std::sync::Arc;

exports! {
    /// Takes what `cuModuleLoadData` takes. No context is needed.
    Driver fn cuLibraryLoadData(
        world, here, library: Out<u64>, image: In<u8>, jit: In<u8>, jit_values: In<u8>, jit_count: c_uint,
        options: In<u8>, values: In<u8>, count: c_uint,
    ) {
        library.check()?;
        let image = Arc::new(read_image(image)?);
        library.put(world.libraries.insert(KernelLibrary { image }))
    }

    /// Ends a library, its kernels, and the modules and functions that contexts have of it.
    Driver fn cuLibraryUnload(world, here, library: u64) {
        find(world, library, "cuLibraryUnload").map_err(|_| INVALID_VALUE)?;
        world.libraries.remove(library);
        world.kernels.retain(|kernel| kernel.library != library);
        end_modules(world, |_, module| module.library == Some(library), "cuLibraryUnload")
    }

    /// A kernel by name: of a name always the same.
    Driver fn cuLibraryGetKernel(world, here, kernel: Out<u64>, library: u64, name: Text) {
        find(world, library, "cuLibraryGetKernel")?;
        kernel.check()?;
        let name = name.get().ok_or(INVALID_VALUE)?;
        let number = world.libraries.get(library).and_then(|library| library.image.find(&name)).ok_or(NOT_FOUND)?;
        kernel.put(kernel_of(world, library, number))
    }

    /// How many kernels it has: those that the simulation can run.
    Driver fn cuLibraryGetKernelCount(world, here, count: Out<c_uint>, library: u64) {
        find(world, library, "cuLibraryGetKernelCount")?;
        count.put(world.libraries.get(library).map_or(0, |library| library.image.all().count() as c_uint))
    }

    /// The first `room` of them.
    Driver fn cuLibraryEnumerateKernels(world, here, kernels: Out<u64>, room: c_uint, library: u64) {
        find(world, library, "cuLibraryEnumerateKernels")?;
        let image = world.libraries.get(library).map(|library| library.image.clone());
        let numbers = image.iter().flat_map(|image| image.all());
        for (at, (number, _)) in numbers.take(room as usize).enumerate() {
            let kernel = kernel_of(world, library, number);
            kernels.check()?;
            kernels.after(at).put(kernel)?;
        }
        Ok(())
    }

    /// The module that the thread's context has of a library.
    Context fn cuLibraryGetModule(world, here, module: Out<u64>, library: u64) {
        module.check()?;
        module.put(library_module(world, here, library, "cuLibraryGetModule")?)
    }

    /// The function that the thread's context has of a kernel.
    Context fn cuKernelGetFunction(world, here, function: Out<u64>, kernel: u64) {
        let of = kernel_at(world, kernel, "cuKernelGetFunction")?;
        function.check()?;
        let module = module_of(world, here, of.library)?;
        let same = world.functions.iter().find(|(_, found)| **found == (of.kernel, module)).map(|(handle, _)| handle);
        function.put(same.unwrap_or_else(|| world.functions.insert((of.kernel, module))))
    }

    /// The library of a kernel.
    Driver fn cuKernelGetLibrary(world, here, library: Out<u64>, kernel: u64) {
        library.put(kernel_at(world, kernel, "cuKernelGetLibrary")?.library)
    }
}

impl World {
    /// Ends functions whose module is gone.
    pub fn forget_functions(&mut self) {
        let World { functions, modules, .. } = self;
        functions.retain(|(_, module)| modules.get(*module).is_some());
    }
}

fn find(world: &mut World, library: u64, call: &str) -> Outcome {
    if world.libraries.get(library).is_some() {
        return Ok(());
    }
    let text = format!("{call} of {}", world.libraries.fate(library));
    world.report.add(Fault::BadHandle, text);
    Err(INVALID_HANDLE)
}

pub(super) fn kernel_at(world: &mut World, kernel: u64, call: &str) -> Outcome<LibraryKernel> {
    if let Some(found) = world.kernels.get(kernel) {
        return Ok(*found);
    }
    let text = format!("{call} of {}", world.kernels.fate(kernel));
    world.report.add(Fault::BadHandle, text);
    Err(INVALID_HANDLE)
}

/// The handle of a library's kernel.
fn kernel_of(world: &mut World, library: u64, kernel: usize) -> u64 {
    let wanted = LibraryKernel { kernel, library };
    let same = world.kernels.iter().find(|(_, found)| **found == wanted).map(|(handle, _)| handle);
    same.unwrap_or_else(|| world.kernels.insert(wanted))
}

/// As below, for a handle from outside.
pub(super) fn library_module(world: &mut World, here: Here, library: u64, call: &str) -> Outcome<u64> {
    find(world, library, call)?;
    module_of(world, here, library)
}

/// The module of a library in a context, which begins with the first that asks.
fn module_of(world: &mut World, here: Here, library: u64) -> Outcome<u64> {
    world.contexts.get(here.context).ok_or(CONTEXT_IS_DESTROYED)?;
    let root = world.root(here.context);
    let same = |module: &Module| module.context == root && module.library == Some(library);
    if let Some((handle, _)) = world.modules.iter().find(|(_, module)| same(module)) {
        return Ok(handle);
    }
    let image = world.libraries.get(library).ok_or(INVALID_HANDLE)?.image.clone();
    world.add_module(here, image, Some(library))
}
