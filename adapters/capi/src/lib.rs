#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | file | names |
//! | --- | --- |
//! | `malloc` | malloc, free, calloc, realloc, reallocarray, free_sized, free_aligned_sized |
//! | `aligned` | aligned_alloc, memalign, posix_memalign, valloc, pvalloc |
//! | `info` | malloc_usable_size, malloc_trim, mallinfo, mallinfo2, malloc_info, malloc_stats, mallopt |
//! | `cxx` | operator new and delete, in all sized, aligned and array forms; the C++ library's nothrow forms call them |
//! | `dlopen` | dlopen without `RTLD_DEEPBIND`: with that flag a library would call another malloc |
//! | `signals` | sigaction, signal: mark the program's signal handlers, so that they may allocate |
//! | `init` | functions that run when the library is loaded and when the process ends |

mod aligned;
mod cxx;
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod dlopen;
mod info;
mod init;
mod malloc;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod signals;
