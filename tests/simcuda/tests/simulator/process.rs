//! Forks, and the end of the process.

use crate::driver::{call, *};
use crate::machine::Machine;
use std::ffi::c_int;

#[test]
fn a_child_of_a_fork_has_no_driver() {
    let machine = Machine::discrete();
    let block = alloc(64).expect("memory");
    // All lookups before the fork: a child of a process with threads may do little else than call.
    let free: extern "C" fn(u64) -> i32 = symbol("cuMemFree_v2");
    let init: extern "C" fn(u32) -> i32 = symbol("cuInit");
    let reset: extern "C" fn(*const i8) -> i32 = symbol("simcuda_reset");
    // SAFETY: the child only makes these calls and ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let (freed, begun, reset) = (free(block), init(0), reset(std::ptr::null()));
        let good = (freed, begun, reset) == (NOT_INITIALIZED, NOT_INITIALIZED, -1);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if good { 0 } else { 1 + freed }) };
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status: c_int = -1;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    call!(cuMemFree_v2(block => u64)).expect("the parent goes on");
    drop(machine);
}
