//! Variables of modules, and names of functions.

use crate::cubin::{CONSTANT, INITIAL, ZEROS, cubin};
use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

const TEXT: &str = ".version 7.0\n.target sm_50\n.address_size 64\n\
    .extern .global .align 4 .u32 elsewhere;\n\
    .global .align 4 .u32 num = 7; // not visible, and found all the same\n\
    .visible .global .align 8 .f64 pair[2] = {0d4000000000000000, -1};\n\
    .const .align 2 .b8 table[2][3] = {{1, 0x2}, {3}};\n\
    .weak .global .align 16 .v4 .f32 vector;\n\
    .global .u64 address = generic(num);\n\
    .visible .entry fill_u32(.param .u64 .ptr a, .param .u32 b, .param .u64 c) { .global .u32 inner; ret; }\n\
    .visible .entry strange() { ret; }\n\
    .global .align 1 .b8 last[300];\n";

fn load(image: &[u8]) -> Done<u64> {
    make!(cuModuleLoadData -> u64; image.as_ptr() => *const u8)
}

fn text() -> CString {
    CString::new(TEXT).expect("no zero inside")
}

fn variable(module: u64, name: &CStr) -> Done<(u64, usize)> {
    let (mut pointer, mut bytes) = (0, 0);
    call!(cuModuleGetGlobal_v2(
        &mut pointer => *mut u64, &mut bytes => *mut usize, module => u64, name.as_ptr() => *const c_char
    ))
    .map(|()| (pointer, bytes))
}

fn value(module: u64, name: &CStr) -> Vec<u8> {
    let (pointer, bytes) = variable(module, name).expect("a variable");
    download(pointer, bytes).expect("memory of the module's")
}

#[test]
fn a_text_s_variables_begin_as_it_says() {
    let _machine = Machine::discrete();
    let module = load(text().as_bytes_with_nul()).expect("a text");
    assert_eq!(value(module, c"num"), 7_u32.to_ne_bytes());
    assert_eq!(value(module, c"pair"), [2_f64.to_ne_bytes(), (-1_i64).to_ne_bytes()].concat());
    assert_eq!(value(module, c"table"), [1, 2, 3, 0, 0, 0]);
    assert_eq!((value(module, c"vector"), value(module, c"address")), (vec![0; 16], vec![0; 8]));
    assert_eq!(value(module, c"last"), vec![0; 300]);
    for name in [c"elsewhere", c"inner", c"a", c"fill_u32"] {
        assert_eq!(variable(module, name), Err(NOT_FOUND), "{name:?}");
    }
    unload(module).expect("live");
}

#[test]
fn machine_code_s_variables_begin_as_it_says() {
    let _machine = Machine::discrete();
    let image = cubin(
        &["fill_u32"],
        &[("number", INITIAL, 8, 4), ("zeros", ZEROS, 0, 40), ("c", CONSTANT, 1, 2), ("empty", INITIAL, 0, 0)],
    );
    let module = load(&image).expect("machine code");
    assert_eq!((value(module, c"number"), value(module, c"c")), (vec![8, 9, 10, 11], vec![1, 2]));
    assert_eq!(value(module, c"zeros"), vec![0; 40]);
    assert_eq!(variable(module, c"fill_u32"), Err(NOT_FOUND));
    unload(module).expect("live");
    assert_eq!(load(&cubin(&[], &[("past", INITIAL, 61, 4)])), Err(INVALID_IMAGE), "past its section's end");
    let code = load(&cubin(&["k"], &[("in_code", 7, 0, 4)])).expect("an object that is no variable");
    assert_eq!(variable(code, c"in_code"), Err(NOT_FOUND));
    unload(code).expect("live");
}

#[test]
fn either_result_may_be_unwanted_and_not_both() {
    let machine = Machine::discrete();
    let module = load(text().as_bytes_with_nul()).expect("a text");
    let (pointer, _) = variable(module, c"num").expect("a variable");
    let (mut only_pointer, mut only_bytes) = (0_u64, 0_usize);
    let name = c"num".as_ptr();
    call!(cuModuleGetGlobal_v2(&mut only_pointer => *mut u64, 0 => usize, module => u64, name => *const c_char))
        .expect("the place");
    call!(cuModuleGetGlobal_v2(0 => usize, &mut only_bytes => *mut usize, module => u64, name => *const c_char))
        .expect("the length");
    assert_eq!((only_pointer, only_bytes), (pointer, 4));
    let neither = call!(cuModuleGetGlobal_v2(0 => usize, 0 => usize, module => u64, name => *const c_char));
    let nameless = call!(cuModuleGetGlobal_v2(&mut only_pointer => *mut u64, 0 => usize, module => u64, 0 => usize));
    assert_eq!((neither, nameless), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    unload(module).expect("live");
    assert_eq!(variable(module, c"num"), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
}

#[test]
fn a_variable_is_memory_of_its_module() {
    let machine = Machine::discrete();
    let (before, _) = info().expect("a context");
    let (first, second) = (load(text().as_bytes_with_nul()), load(text().as_bytes_with_nul()));
    let (first, second) = (first.expect("a text"), second.expect("a text"));
    assert!(info().expect("a context").0 < before, "it counts");
    let (pointer, _) = variable(first, c"num").expect("a variable");
    assert_ne!(variable(second, c"num").expect("a variable").0, pointer, "each module has its own");
    upload(pointer, &[1; 4]).expect("memory");
    assert_eq!((value(first, c"num"), value(second, c"num")), (vec![1; 4], 7_u32.to_ne_bytes().to_vec()));
    let kind = make!(cuPointerGetAttribute -> c_uint; 2 => c_int, pointer => u64);
    assert_eq!((kind, free(pointer)), (Ok(2), Err(INVALID_VALUE)), "of a device, and not the caller's to free");
    machine.caught("bad-handle");
    assert_eq!(set(pointer, 0, 5, 0), Err(INVALID_VALUE), "past its end");
    machine.caught("out-of-bounds");
    assert!(machine.leaks().iter().all(|line| !line.starts_with("block")), "{:?}", machine.leaks());
    let busy = stream(1).expect("a stream");
    run("spin", busy, &[20_000_000]).and(set(pointer, 3, 4, busy)).expect("under way");
    unload(first).and(unload(second)).expect("live");
    assert_eq!(info().expect("a context").0, before);
    stream_sync(busy).and(stream_destroy(busy)).expect("nothing ran on memory that is gone");
    assert_eq!(set(pointer, 0, 4, 0), Err(INVALID_VALUE));
    assert!(machine.caught("use-after-free").contains("cuModuleUnload"));
}

#[test]
fn a_device_without_room_takes_no_module() {
    let machine = Machine::new(r#"{"total": 2097152, "overhead": 0}"#);
    let big = format!("{TEXT}.global .b8 big[4194304];");
    let big = CString::new(big).expect("no zero inside");
    let (before, _) = info().expect("a context");
    assert_eq!(load(big.as_bytes_with_nul()), Err(OUT_OF_MEMORY));
    assert_eq!(info().expect("a context").0, before);
    assert!(machine.leaks().iter().all(|line| line.starts_with("context")), "{:?}", machine.leaks());
}

#[test]
fn variables_end_with_their_context_and_are_no_leak_of_their_own() {
    let mut machine = Machine::discrete();
    machine.allow_leaks();
    let own = make!(cuCtxCreate_v2 -> u64; 0 => c_uint, 0 => c_int).expect("a device");
    let module = load(text().as_bytes_with_nul()).expect("a text");
    let (pointer, _) = variable(module, c"num").expect("a variable");
    call!(cuCtxDestroy_v2(own => u64)).expect("a context");
    let lost = machine.leaks();
    assert_eq!(lost.iter().filter(|line| line.ends_with("when its context ended")).count(), 1, "the module: {lost:?}");
    assert_eq!(set(pointer, 0, 4, 0), Err(INVALID_VALUE));
    machine.caught("use-after-free");
}

fn library() -> u64 {
    let text = text();
    make!(cuLibraryLoadData -> u64; text.as_ptr() => *const c_char, 0 => usize, 0 => usize, 0 => c_uint, 0 => usize,
        0 => usize, 0 => c_uint)
    .expect("a text")
}

#[test]
fn a_context_has_a_library_s_variables() {
    let machine = Machine::discrete();
    let (context, library) = (make!(cuCtxGetCurrent -> u64;).expect("a context"), library());
    let find = |name: &CStr| {
        let (mut pointer, mut bytes) = (0, 0);
        call!(cuLibraryGetGlobal(
            &mut pointer => *mut u64, &mut bytes => *mut usize, library => u64, name.as_ptr() => *const c_char
        ))
        .map(|()| (pointer, bytes))
    };
    let module = make!(cuLibraryGetModule -> u64; library => u64).expect("a context");
    assert_eq!((find(c"num"), find(c"inner")), (variable(module, c"num"), Err(NOT_FOUND)));
    let (pointer, _) = find(c"num").expect("a variable");
    current(0).expect("none");
    assert_eq!(find(c"num"), Err(INVALID_CONTEXT));
    current(context).and(call!(cuLibraryUnload(library => u64))).expect("live");
    assert_eq!(find(c"num"), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    assert_eq!(set(pointer, 0, 4, 0), Err(INVALID_VALUE), "it went with the library");
    machine.caught("use-after-free");
}

#[test]
fn functions_and_kernels_have_their_names() {
    let machine = Machine::discrete();
    let function_name = |function: u64| {
        let mut name: *const c_char = std::ptr::null();
        call!(cuFuncGetName(&mut name => *mut *const c_char, function => u64)).map(|()| text_at(name))
    };
    let kernel_name = |kernel: u64| {
        let mut name: *const c_char = std::ptr::null();
        call!(cuKernelGetName(&mut name => *mut *const c_char, kernel => u64)).map(|()| text_at(name))
    };
    let library = library();
    for wanted in [c"strange", c"fill_u32"] {
        let kernel = make!(cuLibraryGetKernel -> u64; library => u64, wanted.as_ptr() => *const c_char).expect("named");
        let function = make!(cuKernelGetFunction -> u64; kernel => u64).expect("a context");
        let name = Ok(wanted.to_string_lossy().into_owned());
        assert_eq!((kernel_name(kernel), function_name(function)), (name.clone(), name));
    }
    let (module, any) = kernel("sum_u32").expect("any image has it");
    assert_eq!(function_name(any), Ok("sum_u32".into()));
    assert_eq!((function_name(0), kernel_name(0)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    let nowhere = call!(cuFuncGetName(std::ptr::null_mut() => *mut c_void, any => u64));
    assert_eq!(nowhere, Err(INVALID_VALUE));
    unload(module).and(call!(cuLibraryUnload(library => u64))).expect("live");
    assert_eq!(function_name(any), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
}
