//! Modules and launches. A module in PTX, which is text, has the kernels that its text names; any other image has all.

use super::{ptx, valid};
use crate::abi::codes::{INVALID_IMAGE, INVALID_VALUE, NOT_FOUND};
use crate::abi::{In, Out, Outcome, Text, c_uint};
use crate::gate::exports;
use crate::machine::{Fault, Module, World};
use crate::streams::KERNELS;
use crate::streams::kernels::Arguments;

exports! {
    /// PTX is looked at; any other image will do, and has all known kernels.
    Context fn cuModuleLoadData(world, here, module: Out<u64>, image: In<u8>) {
        load(world, here.context, module, image)
    }

    /// As above; options are ignored.
    Context fn cuModuleLoadDataEx(
        world, here, module: Out<u64>, image: In<u8>, count: c_uint, options: In<u8>, values: In<u8>,
    ) {
        load(world, here.context, module, image)
    }

    /// Ends a module and its functions.
    Context fn cuModuleUnload(world, here, module: u64) {
        find(world, module, "cuModuleUnload")?;
        world.modules.remove(module);
        world.functions.retain(|(_, of)| *of != module);
        Ok(())
    }

    /// A kernel by name.
    Context fn cuModuleGetFunction(world, here, function: Out<u64>, module: u64, name: Text) {
        find(world, module, "cuModuleGetFunction")?;
        let name = name.get().ok_or(INVALID_VALUE)?;
        let has = world.modules.get(module).is_some_and(|module| module.has(&name));
        let kernel = KERNELS.iter().position(|(known, ..)| *known == name).filter(|_| has).ok_or(NOT_FOUND)?;
        function.check()?;
        function.put(world.functions.insert((kernel, module)))
    }

    /// Runs a kernel. Sizes must be sizes; they change nothing.
    Context fn cuLaunchKernel(
        world, here, function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: u64, arguments: In<In<u8>>, extra: In<u8>,
    ) {
        let Some((kernel, _)) = world.functions.get(function).copied() else {
            let text = format!("cuLaunchKernel of {}", world.functions.fate(function));
            world.report.add(Fault::BadHandle, text);
            return Err(crate::abi::codes::INVALID_HANDLE);
        };
        valid([grid_x, grid_y, grid_z, block_x, block_y, block_z].iter().all(|size| *size > 0))?;
        let threads = [block_x, block_y, block_z].iter().map(|size| u64::from(*size)).product::<u64>();
        valid(threads <= 1024 && extra.is_null())?;
        let lane = world.lane_here(here, stream, "cuLaunchKernel")?;
        let (name, _, read) = KERNELS[kernel];
        let node = read(name, Arguments(arguments))?;
        world.submit(lane, node).map(drop)
    }
}

fn load(world: &mut World, context: u64, module: Out<u64>, image: In<u8>) -> Outcome {
    module.check()?;
    if image.is_null() {
        return Err(INVALID_IMAGE);
    }
    let kernels = ptx::kernels(image)?;
    module.put(world.modules.insert(Module { context, kernels }))
}

fn find(world: &mut World, module: u64, call: &str) -> Outcome {
    if world.modules.get(module).is_some() {
        return Ok(());
    }
    let text = format!("{call} of {}", world.modules.fate(module));
    world.report.add(Fault::BadHandle, text);
    Err(crate::abi::codes::INVALID_HANDLE)
}
