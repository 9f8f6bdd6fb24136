//! Links: one image of several texts.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{CStr, c_char, c_int, c_uint};

const HEAD: &str = ".version 7.0\n.target sm_50\n.address_size 64\n";

fn begin() -> Done<u64> {
    let mut link = 0;
    call!(cuLinkCreate_v2(0 => c_uint, 0 => usize, 0 => usize, &mut link => *mut u64)).map(|()| link)
}

fn add(link: u64, kind: c_int, text: &str) -> Done {
    call!(cuLinkAddData_v2(
        link => u64, kind => c_int, text.as_ptr() => *const u8, text.len() => usize, 0 => usize, 0 => c_uint,
        0 => usize, 0 => usize,
    ))
}

fn entry(name: &str) -> String {
    format!("{HEAD}.visible .entry {name}() {{ ret; }} // the end\0")
}

/// Where the image is, and its length.
fn complete(link: u64) -> Done<(u64, usize)> {
    let (mut image, mut bytes) = (0, 0);
    call!(cuLinkComplete(link => u64, &mut image => *mut u64, &mut bytes => *mut usize)).map(|()| (image, bytes))
}

fn destroy(link: u64) -> Done {
    call!(cuLinkDestroy(link => u64))
}

#[test]
fn an_image_has_the_kernels_of_all_inputs() {
    let _machine = Machine::discrete();
    let link = begin().expect("a context");
    let spin = format!("{HEAD}.visible .entry spin(.param .u64 a) {{ ret; }} // the end\0");
    add(link, 1, &entry("fault")).and(add(link, 1, &spin)).expect("texts");
    let image = complete(link).expect("inputs");
    assert_eq!((complete(link), add(link, 1, &entry("other"))), (Ok(image), Err(INVALID_VALUE)), "it is made");
    assert!(image.1 > 2 * HEAD.len(), "both texts");
    let module = make!(cuModuleLoadData -> u64; image.0 => u64).expect("an image");
    let library = make!(cuLibraryLoadData -> u64;
        image.0 => u64, 0 => usize, 0 => usize, 0 => c_uint, 0 => usize, 0 => usize, 0 => c_uint);
    destroy(link).expect("a link");
    let function = |name: &CStr| make!(cuModuleGetFunction -> u64; module => u64, name.as_ptr() => *const c_char);
    function(c"fault").and(function(c"spin")).expect("of either input");
    assert_eq!(function(c"sum_u32"), Err(NOT_FOUND), "of none");
    unload(module).and(call!(cuLibraryUnload(library.expect("an image") => u64))).expect("a module");
}

#[test]
fn inputs_that_cannot_be_linked_are_refused() {
    let machine = Machine::discrete();
    let link = begin().expect("a context");
    assert_eq!(complete(link), Err(INVALID_VALUE), "of nothing");
    assert_eq!((add(link, 1, "text"), add(link, 1, "")), (Err(INVALID_PTX), Err(INVALID_VALUE)));
    assert_eq!((add(link, 0, "text"), add(link, 6, "text")), (Err(NOT_SUPPORTED), Err(INVALID_VALUE)));
    add(link, 1, &entry("fault")).expect("a text");
    assert_eq!(add(link, 1, &entry("fault")), Err(200), "twice");
    assert!(machine.leaks().iter().any(|line| line.starts_with("link ")), "{:?}", machine.leaks());
    destroy(link).expect("a link");
    assert_eq!((destroy(link), add(link, 1, "x"), complete(link)), {
        (Err(INVALID_HANDLE), Err(INVALID_HANDLE), Err(INVALID_HANDLE))
    });
    machine.caught("bad-handle");
}

#[test]
fn a_link_ends_with_its_context() {
    let mut machine = Machine::discrete();
    machine.allow_leaks();
    let own = make!(cuCtxCreate_v2 -> u64; 0 => c_uint, 0 => c_int).expect("a device");
    let link = begin().expect("a context");
    call!(cuCtxDestroy_v2(own => u64)).expect("a context");
    assert_eq!(destroy(link), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    assert!(machine.leaks().iter().any(|line| line.starts_with("link ") && line.ends_with("context ended")));
}
