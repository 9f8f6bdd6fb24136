//! Libraries: code of no context.

use crate::cubin::cubin;
use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{CString, c_char, c_int, c_uint};

const TEXT: &str = ".version 7.0\n.target sm_50\n.address_size 64\n\
    .visible .entry fill_u32(.param .u64 a, .param .u32 b, .param .u64 c) { ret; }\n\
    .visible .entry fault() { ret; }\n.visible .entry strange() { ret; }\n";

fn load(image: &str) -> Done<u64> {
    let image = CString::new(image).expect("no zero inside");
    make!(cuLibraryLoadData -> u64;
        image.as_ptr() => *const c_char, 0 => usize, 0 => usize, 0 => c_uint, 0 => usize, 0 => usize, 0 => c_uint)
}

fn unload_library(library: u64) -> Done {
    call!(cuLibraryUnload(library => u64))
}

fn kernel_in(library: u64, name: &str) -> Done<u64> {
    let name = CString::new(name).expect("no zero inside");
    make!(cuLibraryGetKernel -> u64; library => u64, name.as_ptr() => *const c_char)
}

fn function(kernel: u64) -> Done<u64> {
    make!(cuKernelGetFunction -> u64; kernel => u64)
}

fn module(library: u64) -> Done<u64> {
    make!(cuLibraryGetModule -> u64; library => u64)
}

#[test]
fn a_kernel_of_a_library_is_a_function_of_the_context() {
    let _machine = Machine::discrete();
    let library = load(TEXT).expect("a text");
    let kernel = kernel_in(library, "fill_u32").expect("the text names it");
    assert_eq!(kernel_in(library, "fill_u32"), Ok(kernel), "the same again");
    assert_eq!(kernel_in(library, "sum_u32"), Err(NOT_FOUND));
    let filling = function(kernel).expect("a context");
    assert_eq!((function(kernel), make!(cuKernelGetLibrary -> u64; kernel => u64)), (Ok(filling), Ok(library)));
    let block = alloc(8).expect("memory");
    launch(filling, 0, &[block, 7, 1]).expect("a function");
    launch(kernel, 0, &[block + 4, 9, 1]).expect("a kernel, of the thread's context");
    assert_eq!(download(block, 8), Ok([7_u32.to_ne_bytes(), 9_u32.to_ne_bytes()].concat()));
    free(block).and(unload_library(library)).expect("all live");
}

#[test]
fn a_library_counts_and_lists_its_kernels() {
    let _machine = Machine::discrete();
    let (text, any) = (load(TEXT).expect("a text"), load("image").expect("anything else"));
    let count = |library: u64| make!(cuLibraryGetKernelCount -> c_uint; library => u64);
    assert_eq!((count(text), count(any)), (Ok(3), Ok(7)));
    let mut kernels = [0_u64; 4];
    let mut list = |room: c_uint| {
        kernels = [0; 4];
        call!(cuLibraryEnumerateKernels(kernels.as_mut_ptr() => *mut u64, room => c_uint, text => u64))
            .map(|()| kernels)
    };
    let [fill, fault, strange] = ["fill_u32", "fault", "strange"].map(|name| kernel_in(text, name).expect("named"));
    assert_eq!((list(4), list(1)), (Ok([fill, fault, strange, 0]), Ok([fill, 0, 0, 0])));
    unload_library(text).and(unload_library(any)).expect("libraries");
}

/// Kernels that the simulator does not know have names and figures, and do nothing; those that it knows do what they
/// do.
#[test]
fn machine_code_has_the_kernels_that_it_names() {
    let _machine = Machine::discrete();
    let load = |image: &[u8]| {
        make!(cuLibraryLoadData -> u64; image.as_ptr() => *const u8, 0 => usize, 0 => usize, 0 => c_uint, 0 => usize,
            0 => usize, 0 => c_uint)
    };
    let image = cubin(&["fill_u32", "_Z7strangef"], &[]);
    let library = load(&image).expect("machine code");
    let [fill, strange] = ["fill_u32", "_Z7strangef"].map(|name| kernel_in(library, name).expect("named"));
    assert_eq!(kernel_in(library, "sum_u32"), Err(NOT_FOUND), "not named");
    assert_eq!(make!(cuLibraryGetKernelCount -> c_uint; library => u64), Ok(2));
    let block = alloc(4).expect("memory");
    launch(fill, 0, &[block, 7, 1]).expect("known");
    launch(strange, 0, &[block, 9]).expect("unknown: it does nothing");
    assert_eq!(download(block, 4), Ok(7_u32.to_ne_bytes().to_vec()));
    let mut broken = image.clone();
    broken[0x3e] = 99;
    assert_eq!(load(&broken), Err(INVALID_IMAGE), "names beyond the last section");
    free(block).and(unload_library(library)).expect("all live");
}

/// Figures of functions and kernels, and a launch by a structure.
#[test]
fn functions_have_figures_and_a_module() {
    let machine = Machine::discrete();
    let library = load(TEXT).expect("a text");
    let kernel = kernel_in(library, "fill_u32").expect("named");
    let filling = function(kernel).expect("a context");
    let of_function = |attribute: c_int| make!(cuFuncGetAttribute -> c_int; attribute => c_int, filling => u64);
    let of_kernel = |attribute: c_int, device: c_int| make!(cuKernelGetAttribute -> c_int; attribute => c_int, kernel => u64, device => c_int);
    assert_eq!((of_function(0), of_kernel(0, 0), of_kernel(4, 0)), (Ok(1024), Ok(1024), Ok(32)));
    assert_eq!((of_function(99), of_kernel(-1, 0)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    assert!(of_kernel(0, 9).is_err(), "no such device");
    assert_eq!(make!(cuFuncGetModule -> u64; filling => u64), module(library));
    let block = alloc(4).expect("memory");
    let (value, count) = (7_u32, 1_u64);
    let arguments: [*const u64; 3] = [&raw const block, (&raw const value).cast(), &raw const count];
    let by_structure = |grid: c_uint| {
        // Three sizes of the grid, three of a block, shared memory and a gap; a stream, attributes and their number.
        let config: [c_uint; 14] = [grid, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        call!(cuLaunchKernelEx(config.as_ptr() => *const c_uint, filling => u64, arguments.as_ptr() => *const *const u64,
            0 => usize))
    };
    assert_eq!((by_structure(0), by_structure(1)), (Err(INVALID_VALUE), Ok(())));
    assert_eq!(download(block, 4), Ok(7_u32.to_ne_bytes().to_vec()));
    unload_library(library).expect("live");
    assert_eq!(of_function(0), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    free(block).expect("live");
}

#[test]
fn a_library_outlives_contexts_and_ends_with_all_that_they_have_of_it() {
    let machine = Machine::discrete();
    let library = load(TEXT).expect("a text");
    let kernel = kernel_in(library, "fault").expect("named");
    let (first, old) = (module(library).expect("a context"), function(kernel).expect("a context"));
    assert_eq!((module(library), unload(first)), (Ok(first), Err(NOT_PERMITTED)), "it is the library's");
    leave(0).and(enter(0)).expect("another context");
    assert!(machine.leaks().iter().all(|line| !line.contains("module")), "{:?}", machine.leaks());
    assert_eq!(launch(old, 0, &[]), Err(INVALID_HANDLE), "its context is gone");
    machine.caught("bad-handle");
    let (second, new) = (module(library).expect("a context"), function(kernel).expect("a context"));
    assert!(second != first && new != old, "of the new context");
    assert!(machine.leaks().iter().any(|line| line.starts_with("library ")), "{:?}", machine.leaks());
    unload_library(library).expect("a library");
    assert_eq!(unload_library(library), Err(INVALID_VALUE));
    assert_eq!((module(library), kernel_in(library, "fault")), (Err(INVALID_HANDLE), Err(INVALID_HANDLE)));
    assert_eq!((function(kernel), launch(new, 0, &[])), (Err(INVALID_HANDLE), Err(INVALID_HANDLE)));
    assert_eq!(launch(kernel, 0, &[]), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
}

#[test]
fn a_library_needs_no_context_and_a_function_does() {
    let _machine = Machine::discrete();
    let context = make!(cuCtxGetCurrent -> u64;).expect("a context");
    current(0).expect("none");
    let library = load(TEXT).expect("a text");
    let kernel = kernel_in(library, "fault").expect("named");
    assert_eq!((function(kernel), module(library)), (Err(INVALID_CONTEXT), Err(INVALID_CONTEXT)));
    assert_eq!(load(".entry"), Err(INVALID_PTX));
    let nothing: Done<u64> = make!(cuLibraryLoadData -> u64;
        0 => usize, 0 => usize, 0 => usize, 0 => c_int, 0 => usize, 0 => usize, 0 => c_int);
    assert_eq!(nothing, Err(INVALID_VALUE));
    unload_library(library).and(current(context)).expect("a library");
}
