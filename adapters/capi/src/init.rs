//! Functions that run when the library is loaded and when the process ends.

use terrace_host::read_environment;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use terrace_host::{check_at_exit, check_or_abort, report, stats, stats_at_exit};

/// Reads the settings again: an early call of malloc may have read them before the C library had the environment.
extern "C" fn on_load() {
    read_environment();
    #[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
    crate::dlopen::allow_deepbind(terrace_host::deepbind());
}

/// Prints statistics and checks the heap if the environment requests it. On Linux and Android terrace-host does this
/// itself.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
extern "C" fn on_exit() {
    if stats_at_exit() {
        report::line(format_args!("{}", stats()));
    }
    if check_at_exit() {
        check_or_abort();
    }
}

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static ON_LOAD: extern "C" fn() = on_load;

#[used]
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_term_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".fini_array"))]
static ON_EXIT: extern "C" fn() = on_exit;
