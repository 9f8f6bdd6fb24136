//! Modules and launches. PTX, which is text, and machine code have the kernels that they name; any other image has all that are known
//! here.

use super::{cubin, ptx, valid};
use crate::abi::codes::{INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND, NOT_PERMITTED};
use crate::abi::{In, LaunchConfig, Out, Outcome, Text, c_uint};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Fault, Module, ModuleImage, World};
use crate::streams::KERNELS;
use crate::streams::kernels::{Arguments, foreign};

exports! {
    /// PTX and machine code are looked at; any other image will do, and has all known kernels.
    Context fn cuModuleLoadData(world, here, module: Out<u64>, image: In<u8>) {
        load(world, here.context, module, image)
    }

    /// As above; options are ignored.
    Context fn cuModuleLoadDataEx(
        world, here, module: Out<u64>, image: In<u8>, count: c_uint, options: In<u8>, values: In<u8>,
    ) {
        load(world, here.context, module, image)
    }

    /// Ends a module and its functions. Modules of libraries end with their library.
    Context fn cuModuleUnload(world, here, module: u64) {
        find(world, module, "cuModuleUnload")?;
        if world.modules.get(module).is_some_and(|module| module.library.is_some()) {
            return Err(NOT_PERMITTED);
        }
        world.modules.remove(module);
        world.forget_functions();
        Ok(())
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

fn load(world: &mut World, context: u64, module: Out<u64>, image: In<u8>) -> Outcome {
    module.check()?;
    if image.is_null() {
        return Err(INVALID_IMAGE);
    }
    let image = read_image(image)?;
    module.put(world.modules.insert(Module { context, image, library: None }))
}

/// What an image has. PTX that the driver would not take is refused; so is null.
pub(super) fn read_image(image: In<u8>) -> Outcome<ModuleImage> {
    let named = ptx::kernels(image)?;
    Ok(ModuleImage(if named.is_some() { named } else { cubin::kernels(image)? }))
}

fn find(world: &mut World, module: u64, call: &str) -> Outcome {
    if world.modules.get(module).is_some() {
        return Ok(());
    }
    let text = format!("{call} of {}", world.modules.fate(module));
    world.report.add(Fault::BadHandle, text);
    Err(INVALID_HANDLE)
}
