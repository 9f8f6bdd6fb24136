//! Launches: a kernel that does nothing takes each kernel's place in its stream.
//!
//! Promises upward: functions by name; [`kernel`], which must have been asked for a context once before a capture.
//! Asks from below: the simulated driver, which takes any PTX and has the kernels that it names.

use crate::call::{Code, Handle, SUCCESS, current, driver, exports, in_context, passed_on, result};
use crate::device::put;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};

/// The code, and its kernel.
const CODE: &CStr = c".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";
const NAME: &CStr = c"nothing";

/// Threads of a block at most, and blocks at once, for any kernel.
const THREADS: i32 = 1024;
const BLOCKS: i32 = 8;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    x: u32,
    y: u32,
    z: u32,
}

/// The first fields of `cudaLaunchConfig_t`.
#[repr(C)]
pub struct LaunchConfig {
    grid: Extent,
    block: Extent,
    shared: usize,
    stream: Handle,
}

/// `cudaFuncAttributes`.
#[repr(C)]
pub struct FunctionAttributes {
    sizes: [usize; 3],
    threads: i32,
    others: [i32; 21],
}

driver! {
    fn cuModuleLoadData(module: &mut Handle, code: *const c_char);
    fn cuModuleGetFunction(function: &mut Handle, module: Handle, name: *const c_char);
    fn cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    );
}

passed_on! {
    cudaLaunchHostFunc = cuLaunchHostFunc(stream: Handle, function: *const c_void, argument: *mut c_void);
}

exports! {
    fn cudaLaunchKernel(
        _function: *const c_void,
        grid: Extent,
        block: Extent,
        _arguments: *mut *mut c_void,
        shared: usize,
        stream: Handle,
    ) {
        launch(grid, block, shared, stream)
    }
    fn cudaLaunchKernelExC(
        config: Option<&LaunchConfig>,
        _function: *const c_void,
        _arguments: *mut *mut c_void,
    ) {
        config.map_or(crate::call::INVALID_VALUE, |config| launch(config.grid, config.block, config.shared, config.stream))
    }
    fn cudaFuncGetAttributes(attributes: Option<&mut FunctionAttributes>, _function: *const c_void) {
        put(attributes, FunctionAttributes { sizes: [0; 3], threads: THREADS, others: [0; 21] })
    }
    fn cudaFuncSetAttribute(_function: *const c_void, _attribute: i32, _value: i32) { SUCCESS }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Option<&mut i32>,
        _function: *const c_void,
        _threads: i32,
        _shared: usize,
    ) {
        put(blocks, BLOCKS)
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Option<&mut i32>,
        _function: *const c_void,
        _threads: i32,
        _shared: usize,
        _flags: u32,
    ) {
        put(blocks, BLOCKS)
    }
}

/// The kernel of each context.
static KERNELS: Mutex<BTreeMap<Handle, Handle>> = Mutex::new(BTreeMap::new());

/// The kernel of the current context, loaded at its first use.
pub fn kernel(context: Handle) -> Result<Handle, Code> {
    let mut kernels = KERNELS.lock();
    if let Some(kernel) = kernels.get(&context) {
        return Ok(*kernel);
    }
    let [mut module, mut kernel] = [0; 2];
    result(cuModuleLoadData(&mut module, CODE.as_ptr()))?;
    result(cuModuleGetFunction(&mut kernel, module, NAME.as_ptr()))?;
    kernels.insert(context, kernel);
    Ok(kernel)
}

fn launch(grid: Extent, block: Extent, shared: usize, stream: Handle) -> Code {
    in_context(|| match current().and_then(kernel) {
        Ok(kernel) => cuLaunchKernel(
            kernel,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            shared as u32,
            stream,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        ),
        Err(code) => code,
    })
}
