//! The POSIX calls that Linux and macOS share.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::{NonNull, null_mut};

/// Maps `bytes` bytes of zeros at an address that the system chooses.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    map_with(0, bytes, 0, READ_WRITE)
}

/// Reserves addresses, which the system chooses, without memory.
///
/// Until they are [`commit`]ted, they do not count as committed memory, and `mlockall` does not lock them.
pub fn reserve(bytes: usize) -> Option<NonNull<u8>> {
    map_with(0, bytes, libc::MAP_NORESERVE, libc::PROT_NONE)
}

/// Backs reserved pages with memory; they read as zeros. `false` without memory.
///
/// # Safety
/// [`reserve`] must have returned these addresses; they must be whole pages.
pub unsafe fn commit(at: NonNull<u8>, bytes: usize) -> bool {
    let errno = errno();
    // SAFETY: the caller's promise; what is committed already stays as it is.
    let done = unsafe { libc::mprotect(at.as_ptr().cast(), bytes, READ_WRITE) } == 0;
    set_errno(errno);
    done
}

/// Protection of usable memory.
pub(super) const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Makes an anonymous private mapping; `address` is a hint unless `flags` says more.
pub(super) fn map_with(address: usize, bytes: usize, flags: i32, protection: i32) -> Option<NonNull<u8>> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let hint = core::ptr::without_provenance_mut(address);
    let errno = errno();
    // SAFETY: without MAP_FIXED no mapping that exists is changed; the system checks every argument.
    let address = unsafe { libc::mmap(hint, bytes, protection, flags, -1, 0) };
    set_errno(errno);
    if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
}

/// Unmaps a mapping, or whole pages of one.
///
/// # Safety
/// No thread may use these pages any more, and a function of this file must have mapped them.
pub unsafe fn unmap(at: NonNull<u8>, bytes: usize) {
    let errno = errno();
    // SAFETY: the caller's promise. A failure (too many mappings) leaves them mapped, which wastes and breaks nothing.
    unsafe { libc::munmap(at.as_ptr().cast(), bytes) };
    set_errno(errno);
}

/// Bytes of the system's page.
pub fn page_bytes() -> usize {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Bytes of the machine's memory; 0 if the system does not say.
pub fn physical_bytes() -> usize {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    usize::try_from(pages).unwrap_or(0).saturating_mul(page_bytes())
}

/// The limit on this process's address space in bytes (`ulimit -v`); `usize::MAX`: none.
pub fn address_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is local and writable.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } != 0;
    if failed || limit.rlim_cur == libc::RLIM_INFINITY { usize::MAX } else { limit.rlim_cur as usize }
}

/// Writes bytes to standard error in one call, and ignores a failure.
pub fn write_stderr(text: &[u8]) {
    let errno = errno();
    // SAFETY: `text` is readable for its whole length.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    set_errno(errno);
}

/// Aborts the process, as glibc does when it finds its heap corrupt.
pub fn abort() -> ! {
    // SAFETY: the call has no precondition.
    unsafe { libc::abort() }
}

/// Lets another thread run on this processor.
pub fn yield_now() {
    // SAFETY: the call has no precondition.
    unsafe { libc::sched_yield() };
}

/// The value of an environment variable; `name` ends with `=`.
///
/// Also `None` while the C library has not set `environ` yet.
pub fn variable(name: &str) -> Option<&'static CStr> {
    entries().find_map(|entry| {
        let text = entry.to_bytes_with_nul();
        CStr::from_bytes_with_nul(text.strip_prefix(name.as_bytes())?).ok()
    })
}

/// Calls `each` with the name of every environment variable.
pub fn each_variable(mut each: impl FnMut(&[u8])) {
    entries().filter_map(|entry| entry.to_bytes().split(|&byte| byte == b'=').next()).for_each(&mut each);
}

/// The entries of the environment; none while the C library has not set `environ` yet.
fn entries() -> impl Iterator<Item = &'static CStr> {
    let mut at = environ();
    core::iter::from_fn(move || {
        let place = at?;
        // SAFETY: the environment is a list of strings that ends with null; no thread changes it while the process starts.
        let entry = NonNull::new(unsafe { *place.as_ptr() })?;
        // SAFETY: the entry was not the null that ends the list.
        at = Some(unsafe { place.add(1) });
        // SAFETY: an entry of the environment is a string that ends with 0.
        Some(unsafe { CStr::from_ptr(entry.as_ptr()) })
    })
}

/// The C library's `environ`; `None` early in the start of a process, before the C library has set it.
pub fn environ() -> Option<NonNull<*mut c_char>> {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: `environ` is the C library's variable; it is read while the process starts, when no thread changes it.
    NonNull::new(unsafe { environ })
}

/// A pthread key: a value for each thread, passed to a destructor when the thread ends.
#[derive(Clone, Copy, Debug)]
pub struct Key(libc::pthread_key_t);

impl Key {
    /// Makes a key. When a thread ends, `destructor` is called with the thread's value if that is not null.
    pub fn new(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
        let mut key = 0;
        // SAFETY: `key` is local and writable; the destructor lives as long as the program.
        let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) } != 0;
        if failed { None } else { Some(Self(key)) }
    }

    /// The key as a number.
    #[allow(clippy::unnecessary_cast, reason = "a long on macOS")]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// The key that [`number`](Self::number) returned a number for.
    pub const fn from_number(number: u32) -> Self {
        Self(number as libc::pthread_key_t)
    }

    /// This thread's value; null when it has none.
    #[inline]
    pub fn get(self) -> *mut c_void {
        // SAFETY: the key was made by `new`.
        unsafe { libc::pthread_getspecific(self.0) }
    }

    /// Sets this thread's value; `false` without memory.
    pub fn set(self, value: *mut c_void) -> bool {
        // SAFETY: the key was made by `new`. Without memory the call sets nothing, and the thread's cache is lost when
        // it ends.
        unsafe { libc::pthread_setspecific(self.0, value) == 0 }
    }

    /// Deletes the key: its destructor is not called any more.
    pub fn delete(self) {
        // SAFETY: the key was made by `new`.
        unsafe { libc::pthread_key_delete(self.0) };
    }
}

/// Registers functions for forks: one to call before, one after in the parent, one in the child.
///
/// `false` without memory.
pub fn at_fork(prepare: unsafe extern "C" fn(), parent: unsafe extern "C" fn(), child: unsafe extern "C" fn()) -> bool {
    // SAFETY: the functions live as long as the program.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

/// Starts a thread with every signal blocked, and returns its handle for [`join`].
///
/// The stack is small, since limits on address space count it.
pub fn spawn(body: extern "C" fn(*mut c_void) -> *mut c_void) -> Option<usize> {
    /// Bytes of the stack: the thread-local variables of all libraries lie there too.
    const STACK: usize = 256 << 10;
    let errno = errno();
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: `attributes` is local and writable.
    unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
    // SAFETY: the call above initialised `attributes`; a size that this call refuses leaves the default.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK) };
    // SAFETY: `all` is local and writable.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both sets are local, and `all` was filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let mut thread = core::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: `thread` is local and writable; the body lives as long as the program.
    let failed = unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), body, null_mut()) } != 0;
    // SAFETY: `before` was written by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    // SAFETY: `pthread_attr_init` made `attributes` above.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    set_errno(errno);
    // SAFETY: `pthread_create` wrote `thread`, since it did not fail.
    (!failed).then(|| unsafe { thread.assume_init() } as usize)
}

/// Waits for the end of a thread.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn join(thread: usize) {
    // SAFETY: `spawn` made the thread in this process, and it was not joined before.
    unsafe { libc::pthread_join(thread as libc::pthread_t, null_mut()) };
}

/// The alternate signal stack of the running thread, if `address` lies in it.
///
/// Returns its first address and the address behind its last byte.
pub fn handler_stack(address: usize) -> Option<(usize, usize)> {
    let mut stack = core::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: asks only; `stack` is local and writable.
    let failed = unsafe { libc::sigaltstack(core::ptr::null(), stack.as_mut_ptr()) } != 0;
    // SAFETY: `stack` holds zeros or the values that the call wrote, both valid.
    let stack = unsafe { stack.assume_init() };
    let (low, end) = (stack.ss_sp.addr(), stack.ss_sp.addr().saturating_add(stack.ss_size));
    (!failed && (low..end).contains(&address)).then_some((low, end))
}

/// Reads the running thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: `errno_place` points to this thread's `errno`.
    unsafe { *super::errno_place() }
}

/// Sets the running thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: `errno_place` points to this thread's `errno`.
    unsafe { *super::errno_place() = value };
}

/// Value of `errno` when there is no memory.
pub const ENOMEM: i32 = libc::ENOMEM;

/// Identifies the running thread: a number that no other living thread has, never 0.
#[inline]
pub fn thread() -> usize {
    // SAFETY: the call has no precondition.
    unsafe { libc::pthread_self() as usize }
}
