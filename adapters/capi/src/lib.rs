//! libterrace_malloc: the C and C++ faces of terrace, under the names that programs call.
//!
//! ```sh
//! LD_PRELOAD=./libterrace_malloc.so PROGRAM
//! ```
//!
//! | file | names |
//! | --- | --- |
//! | `c` | malloc, free, calloc, realloc, reallocarray, free_sized, free_aligned_sized |
//! | `aligned` | aligned_alloc, memalign, posix_memalign, valloc, pvalloc |
//! | `info` | malloc_usable_size, malloc_trim, mallinfo, mallinfo2, malloc_info, malloc_stats, mallopt |
//! | `cxx` | operator new and delete, in all sized, aligned and array forms; the nothrow ones call them |
//! | `dlopen` | dlopen: without `RTLD_DEEPBIND`, which would give a library another malloc |
//! | `signals` | sigaction, signal: the program's signal handlers may allocate |
//! | `begin` | what runs when the library is loaded and when the process ends |
//!
//! What each does beyond the standard: a size of 0 gives a block of its own; `errno` is kept by `free`; a free of what is no
//! block ends the process with a line on standard error.

mod aligned;
mod begin;
mod c;
mod cxx;
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod dlopen;
mod info;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod signals;
