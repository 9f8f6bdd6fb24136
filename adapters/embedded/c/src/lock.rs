//! The lock is the C program's: `terrace_lock` and `terrace_unlock`.
//!
//! Promises upward: a [`Lock`].
//! Asks from below: the program's two functions; else the weak ones here, which do nothing. Rust has no stable attribute
//! for weak symbols, so they are a few lines of assembly; on systems without ELF the program must define both.

use core::arch::global_asm;

use embedded::Lock;

unsafe extern "C" {
    safe fn terrace_lock() -> usize;
    safe fn terrace_unlock(state: usize);
}

/// What the C program does to be alone.
#[derive(Debug)]
pub struct ProgramLock;

// SAFETY: the header asks the program to define the two functions if anything else runs beside it.
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

/// Two functions that return 0; the second's result is not looked at.
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
