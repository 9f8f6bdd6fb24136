//! The C program's lock: `terrace_lock` and `terrace_unlock`.
//!
//! Promises upward: a [`Lock`].
//! Asks from below: the program's two functions. The weak ones here stand in for them and do nothing. Rust has no stable
//! attribute for weak symbols, so they are assembly; on systems without ELF the program must define both.

use core::arch::global_asm;

use embedded::Lock;

unsafe extern "C" {
    safe fn terrace_lock() -> usize;
    safe fn terrace_unlock(state: usize);
}

/// The lock that the C program defines.
#[derive(Debug)]
pub struct ProgramLock;

// SAFETY: the header requires the program to define both functions if interrupts or threads use the heap.
unsafe impl Lock for ProgramLock {
    const UNLOCKED: Self = Self;

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let state = terrace_lock();
        let result = run();
        terrace_unlock(state);
        result
    }
}

/// Defines both functions, weak: they return 0, which the second's caller ignores.
macro_rules! weak {
    ($($line:literal),*) => {
        global_asm!(
            ".pushsection .text.terrace_lock,\"ax\"",
            ".balign 4",
            ".weak terrace_lock",
            ".weak terrace_unlock",
            ".type terrace_lock, %function",
            ".type terrace_unlock, %function",
            "terrace_lock:",
            "terrace_unlock:",
            $($line,)*
            ".popsection"
        );
    };
}

#[cfg(all(target_arch = "arm", any(target_os = "none", target_os = "linux")))]
weak!("movs r0, #0", "bx lr");
#[cfg(all(target_arch = "aarch64", any(target_os = "none", target_os = "linux")))]
weak!("mov x0, #0", "ret");
#[cfg(all(any(target_arch = "riscv32", target_arch = "riscv64"), any(target_os = "none", target_os = "linux")))]
weak!("li a0, 0", "ret");
#[cfg(all(target_arch = "x86_64", any(target_os = "none", target_os = "linux")))]
weak!("xor eax, eax", "ret");
