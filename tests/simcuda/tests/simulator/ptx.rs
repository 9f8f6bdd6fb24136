//! Modules in PTX: the kernels that the text names, with the parameters that it says.

use crate::driver::*;
use crate::machine::Machine;

/// A head and a body; the simulation looks at the head.
fn text(entries: &str) -> String {
    format!("// made by hand\n.version 7.0\n.target sm_50\n.address_size 64\n{entries}")
}

const AXPY: &str =
    ".visible .entry axpy_f32(\n.param .u64 y, // target\n.param .u64 x,\n.param .f32 a, .param .u32 n)\n{ ret; }\n";

#[test]
fn a_module_has_the_kernels_that_its_text_names() {
    let _machine = Machine::discrete();
    let image = text(&format!("{AXPY}.visible .entry fault()\n{{ ret; }}\n"));
    for name in ["axpy_f32", "fault"] {
        let (module, _) = kernel_of(&image, name).expect(name);
        unload(module).expect("loaded");
    }
    assert_eq!(kernel_of(&image, "sum_u32"), Err(NOT_FOUND), "known, but not in this text");
    let strange = text(".visible .entry strange(.param .align 8 .b8 a[16]) { ret; }");
    let (module, function) = kernel_of(&strange, "strange").expect("a kernel that is not known here");
    launch(function, 0, &[]).and(unload(module)).expect("it does nothing");
}

#[test]
fn a_text_that_the_driver_would_not_take_is_refused() {
    let _machine = Machine::discrete();
    let refused = |image: &str| assert_eq!(kernel_of(image, "axpy_f32"), Err(INVALID_PTX), "{image}");
    refused(AXPY);
    refused(&text(".visible .entry axpy_f32"));
    refused(&text(".visible .entry axpy_f32(.param .u64 y"));
    // Too few parameters, and one of another size.
    refused(&text(".visible .entry axpy_f32(.param .u64 y, .param .u64 x, .param .f32 a) { ret; }"));
    refused(&text(&AXPY.replace(".param .u32 n", ".param .u64 n")));
    refused(&text(&AXPY.replace(".f32", ".float")));
}

#[test]
fn axpy_adds_a_multiple() {
    let _machine = Machine::discrete();
    let bytes = |floats: &[f32]| floats.iter().flat_map(|float| float.to_ne_bytes()).collect::<Vec<u8>>();
    let (y, x) = (alloc(16).expect("memory"), alloc(16).expect("memory"));
    upload(y, &bytes(&[1.0, 2.0, 3.0, 4.0])).and(upload(x, &bytes(&[10.0, 20.0, 30.0, 40.0]))).expect("blocks");
    run("axpy_f32", 0, &[y, x, u64::from(0.5_f32.to_bits()), 3]).expect("a launch");
    assert_eq!(download(y, 16), Ok(bytes(&[6.0, 12.0, 18.0, 4.0])));
    free(y).and(free(x)).expect("blocks");
}
