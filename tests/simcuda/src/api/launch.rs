//! Modules and launches. PTX, which is text, and machine code have the kernels that they name; any other image has all
//! that are known here.

use super::{cubin, ptx, valid};
use crate::abi::codes::{INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND, NOT_PERMITTED};
use crate::abi::{In, LaunchConfig, Out, Outcome, Text, c_uint};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Fault, Held, Module, ModuleImage, World};
use crate::streams::kernels::{Arguments, foreign};
use crate::streams::{KERNELS, wait_for};
use std::sync::Arc;

exports! {
    /// PTX and machine code are looked at; any other image will do, and has all known kernels.
    Context fn cuModuleLoadData(world, here, module: Out<u64>, image: In<u8>) {
        load(world, here, module, image)
    }

    /// As above; options are ignored.
    Context fn cuModuleLoadDataEx(
        world, here, module: Out<u64>, image: In<u8>, count: c_uint, options: In<u8>, values: In<u8>,
    ) {
        load(world, here, module, image)
    }

    /// Ends a module, its functions, and its variables once nothing runs on them.
    ///
    /// Modules of libraries end with their library.
    Context fn cuModuleUnload(world, here, module: u64) {
        find(world, module, "cuModuleUnload")?;
        let library = |of: &Module| of.library.is_some();
        if world.modules.get(module).is_some_and(library) {
            return Err(NOT_PERMITTED);
        }
        end_modules(world, |handle, _| handle == module, "cuModuleUnload")
    }

    /// A kernel by name.
    Context fn cuModuleGetFunction(world, here, function: Out<u64>, module: u64, name: Text) {
        find(world, module, "cuModuleGetFunction")?;
        let name = name.get().ok_or(INVALID_VALUE)?;
        let kernel = world.modules.get(module).and_then(|module| module.image.find(&name)).ok_or(NOT_FOUND)?;
        function.check()?;
        function.put(world.functions.insert((kernel, module)))
    }

    /// Runs a function, or a kernel of a library. Sizes must be sizes; they change nothing.
    Context fn cuLaunchKernel(
        world, here, function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: u64, arguments: In<In<u8>>, extra: In<u8>,
    ) {
        let size = LaunchConfig {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared,
            stream,
            attributes: 0,
            count: 0,
        };
        launch(world, here, size, function, arguments, extra, "cuLaunchKernel")
    }

    /// As above; attributes change nothing.
    Context fn cuLaunchKernelEx(
        world, here, config: In<LaunchConfig>, function: u64, arguments: In<In<u8>>, extra: In<u8>,
    ) {
        launch(world, here, config.get()?, function, arguments, extra, "cuLaunchKernelEx")
    }
}

fn launch(
    world: &mut World,
    here: Here,
    config: LaunchConfig,
    function: u64,
    arguments: In<In<u8>>,
    extra: In<u8>,
    call: &str,
) -> Outcome {
    let of_library = || world.kernels.get(function).map(|kernel| kernel.kernel);
    let Some(kernel) = world.functions.get(function).map(|(kernel, _)| *kernel).or_else(of_library) else {
        let text = format!("{call} of {}", world.functions.fate(function));
        world.report.add(Fault::BadHandle, text);
        return Err(INVALID_HANDLE);
    };
    valid(config.grid.iter().chain(&config.block).all(|size| *size > 0))?;
    let threads = config.block.iter().map(|size| u64::from(*size)).product::<u64>();
    valid(threads <= 1024 && extra.is_null())?;
    let lane = world.lane_here(here, config.stream, call)?;
    let node = KERNELS.get(kernel).map_or_else(foreign, |(name, _, read)| read(name, Arguments(arguments)))?;
    world.submit(lane, node).map(drop)
}

fn load(world: &mut World, here: Here, module: Out<u64>, image: In<u8>) -> Outcome {
    module.check()?;
    if image.is_null() {
        return Err(INVALID_IMAGE);
    }
    let image = read_image(image)?;
    module.put(world.add_module(here, Arc::new(image), None)?)
}

/// What an image has. PTX that the driver would not take is refused; so is null.
pub(super) fn read_image(image: In<u8>) -> Outcome<ModuleImage> {
    let text = ptx::read(image)?;
    let read = if text.is_some() { text } else { cubin::read(image)? };
    Ok(read.unwrap_or_else(ModuleImage::unknown))
}

/// Ends modules, by handle, once nothing runs on their variables.
pub(super) fn end_modules(held: &mut Held, mine: impl Fn(u64, &Module) -> bool, call: &'static str) -> Outcome {
    let variables = held.variables_of(&mine);
    let targets: Vec<_> = variables.iter().flat_map(|(start, bytes)| held.touching(*start, *bytes)).collect();
    wait_for(held, &targets, call)?;
    // The wait let go of the lock: only what is still there ends.
    held.variables_of(&mine).into_iter().for_each(|(start, _)| held.free_block(start, call));
    let ended: Vec<u64> =
        held.modules.iter().filter(|(handle, of)| mine(*handle, of)).map(|(handle, _)| handle).collect();
    ended.into_iter().for_each(|module| drop(held.modules.remove(module)));
    held.forget_functions();
    Ok(())
}

pub(super) fn find(world: &mut World, module: u64, call: &str) -> Outcome {
    if world.modules.get(module).is_some() {
        return Ok(());
    }
    let text = format!("{call} of {}", world.modules.fate(module));
    world.report.add(Fault::BadHandle, text);
    Err(INVALID_HANDLE)
}
