//! What is known of a function or a kernel. Code is not looked at, so that all have the same figures.

use super::library::kernel_at;
use super::valid;
use crate::abi::codes::INVALID_HANDLE;
use crate::abi::{Out, Outcome, Text, c_int};
use crate::gate::exports;
use crate::machine::{Fault, World};

/// `CU_FUNC_ATTRIBUTE_*` that are not 0, and the last there is.
const MAX_THREADS_PER_BLOCK: c_int = 0;
const NUM_REGS: c_int = 4;
const PTX_VERSION: c_int = 5;
const BINARY_VERSION: c_int = 6;
const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
const LAST: c_int = 17;

exports! {
    /// The same for every function: a block has 1024 threads with 32 registers each.
    Context fn cuFuncGetAttribute(world, here, value: Out<c_int>, attribute: c_int, function: u64) {
        function_at(world, function, "cuFuncGetAttribute")?;
        value.put(figure(attribute)?)
    }

    /// As above, of a kernel on a device.
    Driver fn cuKernelGetAttribute(world, here, value: Out<c_int>, attribute: c_int, kernel: u64, device: c_int) {
        kernel_at(world, kernel, "cuKernelGetAttribute")?;
        world.ordinal(device)?;
        value.put(figure(attribute)?)
    }

    /// The module of a function.
    Context fn cuFuncGetModule(world, here, module: Out<u64>, function: u64) {
        module.put(function_at(world, function, "cuFuncGetModule")?.1)
    }

    /// The name of a function, good for as long as its module is there.
    Driver fn cuFuncGetName(world, here, name: Out<Text>, function: u64) {
        valid(function != 0)?;
        let (kernel, module) = function_at(world, function, "cuFuncGetName")?;
        let image = world.modules.get(module).map(|module| &module.image);
        name.put(image.and_then(|image| image.name(kernel)).map_or(Text::NONE, Text::lent))
    }

    /// The name of a kernel, good for as long as its library is there.
    Driver fn cuKernelGetName(world, here, name: Out<Text>, kernel: u64) {
        valid(kernel != 0)?;
        let of = kernel_at(world, kernel, "cuKernelGetName")?;
        let image = world.libraries.get(of.library).map(|library| &library.image);
        name.put(image.and_then(|image| image.name(of.kernel)).map_or(Text::NONE, Text::lent))
    }
}

fn figure(attribute: c_int) -> Outcome<c_int> {
    valid((0..=LAST).contains(&attribute))?;
    Ok(match attribute {
        MAX_THREADS_PER_BLOCK => 1024,
        NUM_REGS => 32,
        PTX_VERSION | BINARY_VERSION => 80,
        MAX_DYNAMIC_SHARED_SIZE_BYTES => 48 << 10,
        _ => 0,
    })
}

/// The number of a function's kernel, and its module.
fn function_at(world: &mut World, function: u64, call: &str) -> Outcome<(usize, u64)> {
    if let Some(found) = world.functions.get(function) {
        return Ok(*found);
    }
    let text = format!("{call} of {}", world.functions.fate(function));
    world.report.add(Fault::BadHandle, text);
    Err(INVALID_HANDLE)
}
