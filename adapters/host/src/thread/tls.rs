//! The allocator's one thread-local variable: a pointer to the running thread's cache; and a second word, which names the cache also
//! while the pointer does not.
//!
//! Promises upward: [`get`] is two instructions on x86-64 and four on AArch64, never allocates, and never returns null:
//! for a thread without a cache it returns [`EMPTY`], with which every call takes the slow path. The variable has no
//! destructor.
//! Asks from below: the linker's initial-exec model. The variable takes 16 bytes of the thread-local space that the C
//! library reserves for libraries loaded later (glibc: 1664 bytes). Feature `dynamic-tls`, and systems without this
//! model, read a pthread key instead.

use super::cache::{Cache, EMPTY};
use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;

#[cfg(all(target_os = "linux", not(feature = "dynamic-tls"), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod imp {
    use super::{AtomicPtr, Cache, EMPTY, c_void};

    // Defines the variable in assembly, since Rust's `-Z tls-model` is unstable. It holds `EMPTY` when a thread starts.
    core::arch::global_asm!(
        ".pushsection .tdata.terrace,\"awT\",@progbits",
        ".p2align 3",
        ".globl {word}",
        ".hidden {word}",
        ".type {word},@object",
        ".size {word},16",
        "{word}:",
        ".quad {empty}",
        ".quad 0",
        ".popsection",
        word = sym TERRACE_CACHE,
        empty = sym EMPTY,
    );

    unsafe extern "C" {
        #[link_name = "terrace_cache_0_1"]
        static TERRACE_CACHE: u8;
    }

    /// The running thread's pointer to its cache.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn get() -> *mut Cache {
        let cache: *mut Cache;
        let offset: usize;
        // SAFETY: reads a constant that the linker wrote: the variable's offset.
        unsafe {
            core::arch::asm!("mov {0}, qword ptr [rip + terrace_cache_0_1@GOTTPOFF]", out(reg) offset, options(pure, nomem, nostack, preserves_flags));
        }
        // SAFETY: reads this thread's variable, which the C library initialised before the thread's first instruction.
        unsafe {
            core::arch::asm!("mov {0}, qword ptr fs:[{1}]", out(reg) cache, in(reg) offset, options(pure, readonly, nostack, preserves_flags));
        }
        cache
    }

    /// Sets the running thread's pointer to its cache.
    #[cfg(target_arch = "x86_64")]
    pub fn set(cache: *const Cache) {
        // SAFETY: writes only this thread's variable.
        unsafe {
            core::arch::asm!("mov {1}, qword ptr [rip + terrace_cache_0_1@GOTTPOFF]", "mov qword ptr fs:[{1}], {0}", in(reg) cache, out(reg) _, options(nostack, preserves_flags));
        }
    }

    /// The value that [`set_own`] stored in the running thread; null before.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn own() -> Option<*mut c_void> {
        let own: *mut c_void;
        // SAFETY: reads a constant that the linker wrote, and the second word of this thread's variable.
        unsafe {
            core::arch::asm!("mov {0}, qword ptr [rip + terrace_cache_0_1@GOTTPOFF]", "mov {0}, qword ptr fs:[{0} + 8]", out(reg) own, options(pure, readonly, nostack, preserves_flags));
        }
        Some(own)
    }

    /// Stores a value that stays, whichever cache the pointer names.
    #[cfg(target_arch = "x86_64")]
    pub fn set_own(own: *mut c_void) {
        // SAFETY: writes only the second word of this thread's variable.
        unsafe {
            core::arch::asm!("mov {1}, qword ptr [rip + terrace_cache_0_1@GOTTPOFF]", "mov qword ptr fs:[{1} + 8], {0}", in(reg) own, out(reg) _, options(nostack, preserves_flags));
        }
    }

    /// Where the running thread's variable lies: another thread may write to it while this thread lives.
    #[cfg(target_arch = "x86_64")]
    pub fn word() -> *const AtomicPtr<Cache> {
        let place: *const AtomicPtr<Cache>;
        // SAFETY: adds two constants of this thread: the beginning of its variables, which lies at offset 0, and the offset.
        unsafe {
            core::arch::asm!("mov {0}, qword ptr fs:[0]", "add {0}, qword ptr [rip + terrace_cache_0_1@GOTTPOFF]", out(reg) place, options(pure, readonly, nostack));
        }
        place
    }

    /// The value that [`set_own`] stored in the running thread; null before.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub fn own() -> Option<*mut c_void> {
        let own: *mut c_void;
        // SAFETY: reads a constant that the linker wrote, and the second word of this thread's variable.
        unsafe {
            core::arch::asm!("adrp {1}, :gottprel:terrace_cache_0_1", "ldr {1}, [{1}, :gottprel_lo12:terrace_cache_0_1]", "mrs {0}, tpidr_el0", "add {0}, {0}, {1}", "ldr {0}, [{0}, #8]", out(reg) own, out(reg) _, options(pure, readonly, nostack, preserves_flags));
        }
        Some(own)
    }

    /// Stores a value that stays, whichever cache the pointer names.
    #[cfg(target_arch = "aarch64")]
    pub fn set_own(own: *mut c_void) {
        // SAFETY: writes only the second word of this thread's variable.
        unsafe {
            core::arch::asm!("adrp {1}, :gottprel:terrace_cache_0_1", "ldr {1}, [{1}, :gottprel_lo12:terrace_cache_0_1]", "mrs {2}, tpidr_el0", "add {1}, {1}, {2}", "str {0}, [{1}, #8]", in(reg) own, out(reg) _, out(reg) _, options(nostack, preserves_flags));
        }
    }

    /// Where the running thread's variable lies: another thread may write to it while this thread lives.
    #[cfg(target_arch = "aarch64")]
    pub fn word() -> *const AtomicPtr<Cache> {
        let place: *const AtomicPtr<Cache>;
        // SAFETY: adds two constants of this thread: the beginning of its variables, and the offset.
        unsafe {
            core::arch::asm!("adrp {1}, :gottprel:terrace_cache_0_1", "ldr {1}, [{1}, :gottprel_lo12:terrace_cache_0_1]", "mrs {0}, tpidr_el0", "add {0}, {0}, {1}", out(reg) place, out(reg) _, options(pure, readonly, nostack, preserves_flags));
        }
        place
    }

    /// The running thread's pointer to its cache.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub fn get() -> *mut Cache {
        let cache: *mut Cache;
        let offset: usize;
        // SAFETY: reads a constant that the linker wrote: the variable's offset.
        unsafe {
            core::arch::asm!("adrp {0}, :gottprel:terrace_cache_0_1", "ldr {0}, [{0}, :gottprel_lo12:terrace_cache_0_1]", out(reg) offset, options(pure, nomem, nostack, preserves_flags));
        }
        // SAFETY: reads this thread's variable, which the C library initialised before the thread's first instruction.
        unsafe {
            core::arch::asm!("mrs {0}, tpidr_el0", "ldr {0}, [{0}, {1}]", out(reg) cache, in(reg) offset, options(pure, readonly, nostack, preserves_flags));
        }
        cache
    }

    /// Sets the running thread's pointer to its cache.
    #[cfg(target_arch = "aarch64")]
    pub fn set(cache: *const Cache) {
        // SAFETY: writes only this thread's variable.
        unsafe {
            core::arch::asm!("adrp {1}, :gottprel:terrace_cache_0_1", "ldr {1}, [{1}, :gottprel_lo12:terrace_cache_0_1]", "mrs {2}, tpidr_el0", "str {0}, [{2}, {1}]", in(reg) cache, out(reg) _, out(reg) _, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(all(
    target_os = "linux",
    not(feature = "dynamic-tls"),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod imp {
    use super::{AtomicPtr, Cache, EMPTY, c_void};
    use crate::os::Key;
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// Number of the pthread key, plus one; 0: not made yet.
    static KEY: AtomicU32 = AtomicU32::new(0);

    extern "C" fn nothing(_: *mut c_void) {}

    /// `None`: the value under the key of [`thread`](crate::thread) is the thread's own.
    #[inline(always)]
    pub fn own() -> Option<*mut c_void> {
        None
    }

    /// Does nothing: see [`own`].
    pub fn set_own(_: *mut c_void) {}

    /// Null: the value of a key lies where only the C library finds it.
    pub fn word() -> *const AtomicPtr<Cache> {
        core::ptr::null()
    }

    /// The running thread's pointer to its cache.
    #[inline(always)]
    pub fn get() -> *mut Cache {
        let key = KEY.load(Relaxed);
        let cache = if key == 0 { core::ptr::null_mut() } else { Key::from_number(key - 1).get() };
        if cache.is_null() { (&raw const EMPTY).cast_mut().cast() } else { cache.cast() }
    }

    /// Sets the running thread's pointer to its cache.
    ///
    /// If the system has no key left, nothing is set and every call takes the slow path: correct, but slow.
    pub fn set(cache: *const Cache) {
        if KEY.load(Relaxed) == 0 {
            let Some(key) = Key::new(nothing) else { return };
            if KEY.compare_exchange(0, key.number() + 1, Relaxed, Relaxed).is_err() {
                key.delete();
            }
        }
        Key::from_number(KEY.load(Relaxed) - 1).set(cache.cast_mut().cast());
    }
}

pub use imp::{get, own, set, set_own, word};
