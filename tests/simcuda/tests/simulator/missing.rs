//! Copies of the library that lack functions. One process loads one library, so children try them.

use crate::driver::symbol;
use std::process::Command;
use terrace_tests::simcuda::{Simulator, VARIABLE, without_symbols};

/// In a child: the names that must not be found.
const ABSENT: &str = "SIMCUDA_TEST_ABSENT";

#[test]
fn a_copy_lacks_what_was_named_and_nothing_else() {
    if let Ok(absent) = std::env::var(ABSENT) {
        return child(&absent.split(',').collect::<Vec<_>>());
    }
    let names = Simulator::get().symbols_of("11.4");
    assert!(names.iter().any(|name| name == "cuStreamGetId") && names.iter().all(|name| name != "cuMemCreate"));
    let mut absent: Vec<&str> = names.iter().map(String::as_str).collect();
    absent.push("cuMemAllocAsync");
    let copy = without_symbols(&absent);
    assert_eq!(copy, without_symbols(&absent), "the same copy");
    let own = std::env::current_exe().expect("this test");
    let mut command = Command::new(own);
    command.args(["missing::a_copy_lacks_what_was_named_and_nothing_else", "--exact"]);
    let output = command.env(VARIABLE, &copy).env(ABSENT, absent.join(",")).output().expect("a child");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::remove_file(copy).expect("the copy");
}

fn child(absent: &[&str]) {
    let session = Simulator::exclusive("");
    for (name, _) in session.names() {
        // SAFETY: looked up and not called.
        let found = unsafe { session.library().get::<extern "C" fn()>(name.as_bytes()) };
        assert_eq!(found.is_err(), absent.contains(&name.as_str()), "{name}");
    }
    // What the loader gives under the driver's name is this copy.
    assert!(is_under_the_drivers_name(), "libcuda.so is not the copy");
    let init: extern "C" fn(u32) -> i32 = symbol("cuInit");
    assert_eq!(init(0), 0);
}

/// Whether a lookup of the driver's name gives the library that lacks functions.
fn is_under_the_drivers_name() -> bool {
    // SAFETY: opens what is loaded; `RTLD_NOLOAD` starts nothing.
    let library = unsafe { libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    // SAFETY: a handle of the loader's, or null for the whole program.
    !library.is_null() && unsafe { libc::dlsym(library, c"cuMemAllocAsync".as_ptr()) }.is_null()
}

#[test]
fn each_driver_has_what_came_before_it() {
    let simulator = Simulator::get();
    let lacks = |version: &str| simulator.symbols_of(version).len();
    assert!(lacks("11.4") > lacks("12.0") && lacks("12.0") > lacks("12.8") && lacks("12.8") > lacks("13.0"));
    assert_eq!((lacks("13.0"), lacks("13.1")), (1, 0), "a newer form of one function");
    assert_eq!(lacks("11.4"), lacks("11.8") + 1, "between them came `cuLaunchKernelEx`");
}
