//! Windows: mappings, waiting, the clock, and fiber-local storage, whose callbacks tell the end of threads. There is no
//! fork.

use core::ffi::{CStr, c_void};
use core::ptr::{NonNull, null, null_mut};
use terrace_core::sync::AtomicU32;
use windows_sys::Win32::Foundation::{GetLastError, SetLastError};
use windows_sys::Win32::Storage::FileSystem::WriteFile;
use windows_sys::Win32::System::Console::{GetStdHandle, STD_ERROR_HANDLE};
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};
use windows_sys::Win32::System::SystemInformation::{
    GetSystemInfo, GetTickCount64, GlobalMemoryStatusEx, MEMORYSTATUSEX, SYSTEM_INFO,
};
use windows_sys::Win32::System::Threading::{
    CreateThread, FlsAlloc, FlsFree, FlsGetValue, FlsSetValue, GetCurrentThreadId, INFINITE, SwitchToThread,
    WaitOnAddress, WakeByAddressAll, WakeByAddressSingle,
};

/// Error number when there is no memory: `ERROR_NOT_ENOUGH_MEMORY`.
pub const ENOMEM: i32 = 8;

/// Maps `bytes` bytes of zeros at an address that the system chooses.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    map_at(0, bytes)
}

/// Reserves addresses, which the system chooses, without memory; [`commit`] backs them.
pub fn reserve(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the system gives no addresses that are in use.
    NonNull::new(unsafe { VirtualAlloc(null(), bytes, MEM_RESERVE, PAGE_READWRITE) }.cast())
}

/// Backs reserved pages with memory; they read as zeros. `false` without memory.
///
/// # Safety
/// [`reserve`] must have returned these addresses; they must be whole pages.
pub unsafe fn commit(at: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller's promise; what is committed already stays as it is.
    !unsafe { VirtualAlloc(at.as_ptr().cast(), bytes, MEM_COMMIT, PAGE_READWRITE) }.is_null()
}

/// Maps `bytes` bytes of zeros at `address`, or not at all.
pub fn map_at(address: usize, bytes: usize) -> Option<NonNull<u8>> {
    let hint = core::ptr::without_provenance(address);
    // SAFETY: the system checks every argument, and gives no memory that is in use.
    NonNull::new(unsafe { VirtualAlloc(hint, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) }.cast())
}

/// Unmaps a whole mapping; `at` must be its first address.
///
/// # Safety
/// No thread may use these pages any more, and one call of this file must have mapped them.
pub unsafe fn unmap(at: NonNull<u8>, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { VirtualFree(at.as_ptr().cast(), 0, MEM_RELEASE) };
}

/// Purges whole pages: they read as zeros from now on.
///
/// # Safety
/// `map` or `map_at` must have mapped the pages, and their contents must not be needed any more.
pub unsafe fn purge(at: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    let gone = unsafe { VirtualFree(at.as_ptr().cast(), bytes, MEM_DECOMMIT) } != 0;
    // SAFETY: this process keeps the addresses reserved.
    gone && !unsafe { VirtualAlloc(at.as_ptr().cast(), bytes, MEM_COMMIT, PAGE_READWRITE) }.is_null()
}

/// Sleeps until another thread wakes the waiters of `word`. Returns at once if `word` is not `seen`.
///
/// Sleeps at most `milliseconds`; 0: no limit.
pub fn wait(word: &AtomicU32, seen: u32, milliseconds: u32) {
    let time = if milliseconds == 0 { INFINITE } else { milliseconds };
    // SAFETY: both words outlive the call.
    unsafe { WaitOnAddress(word.as_ptr().cast(), (&raw const seen).cast(), size_of::<u32>(), time) };
}

/// Wakes one waiter of `word` if `count` is 1, otherwise all.
pub fn wake(word: &AtomicU32, count: i32) {
    let address = word.as_ptr().cast();
    if count == 1 {
        // SAFETY: the call uses the address as a key only, and does not access it.
        unsafe { WakeByAddressSingle(address) };
    } else {
        // SAFETY: the call uses the address as a key only, and does not access it.
        unsafe { WakeByAddressAll(address) };
    }
}

/// Milliseconds since the system started.
pub fn milliseconds() -> u64 {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    unsafe { GetTickCount64() }
}

fn system() -> SYSTEM_INFO {
    let mut info = core::mem::MaybeUninit::zeroed();
    // SAFETY: `info` is local and writable.
    unsafe { GetSystemInfo(info.as_mut_ptr()) };
    // SAFETY: zeros are a value of every field, and the call wrote them.
    unsafe { info.assume_init() }
}

/// Bytes of the system's page.
pub fn page_bytes() -> usize {
    system().dwPageSize as usize
}

/// Bytes of the machine's memory.
pub fn physical_bytes() -> usize {
    let mut status = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
    // SAFETY: `status` is local and writable and says its length.
    unsafe { GlobalMemoryStatusEx(&raw mut status) };
    status.ullTotalPhys as usize
}

/// Returns `usize::MAX`: Windows limits the memory that a process commits, not its addresses.
pub fn address_limit() -> usize {
    usize::MAX
}

/// Returns `usize::MAX`: a job object's limit on committed memory shows as a refused mapping.
pub fn memory_limit() -> usize {
    usize::MAX
}

/// Bits that differ between processes: the address at which the system placed the thread's stack.
pub fn random() -> u64 {
    let here = 0u8;
    (&raw const here).addr() as u64 >> 4
}

/// Returns `false`: Windows has no setuid programs.
pub fn is_secure() -> bool {
    false
}

/// Writes bytes to standard error.
pub fn write_stderr(text: &[u8]) {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    let file = unsafe { GetStdHandle(STD_ERROR_HANDLE) };
    // SAFETY: `text` is readable for its whole length.
    unsafe { WriteFile(file, text.as_ptr(), text.len() as u32, null_mut(), null_mut()) };
}

/// Aborts the process.
pub fn abort() -> ! {
    // SAFETY: the call has no precondition.
    unsafe { libc::abort() }
}

/// Lets another thread run on this processor.
pub fn yield_now() {
    // SAFETY: the call has no precondition.
    unsafe { SwitchToThread() };
}

/// Identifies the running thread: a number that no other living thread has, never 0.
pub fn thread() -> usize {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    unsafe { GetCurrentThreadId() as usize }
}

/// Returns `None`: on Windows programs change settings by calls only, and the environment is not read.
pub fn variable(_: &str) -> Option<&'static CStr> {
    None
}

/// Does nothing: see [`variable`].
pub fn each_variable(_: impl FnMut(&[u8])) {}

/// Returns `None`: see [`variable`].
pub fn environ() -> Option<NonNull<*mut core::ffi::c_char>> {
    None
}

/// A fiber-local slot: a value for each thread, passed to a callback when the thread ends.
#[derive(Clone, Copy, Debug)]
pub struct Key(u32);

impl Key {
    /// Allocates a slot. `destructor` gets the value of each thread that ends, unless that is null.
    pub fn new(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
        // SAFETY: on 64-bit Windows "C" and "system" are one convention, and the argument is a pointer in both.
        let callback = unsafe { core::mem::transmute::<unsafe extern "C" fn(*mut c_void), _>(destructor) };
        // SAFETY: the callback lives as long as the program.
        let slot = unsafe { FlsAlloc(callback) };
        (slot != u32::MAX).then_some(Self(slot))
    }

    /// The slot as a number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The slot that [`number`](Self::number) returned a number for.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// This thread's value; null when it has none.
    pub fn get(self) -> *mut c_void {
        // SAFETY: the call has no precondition; it only reads a value of the system.
        let error = unsafe { GetLastError() };
        // SAFETY: the slot was made by `new`. The query changes the thread's last error, which is restored below.
        let value = unsafe { FlsGetValue(self.0) };
        // SAFETY: the call has no precondition.
        unsafe { SetLastError(error) };
        value
    }

    /// Sets this thread's value.
    pub fn set(self, value: *mut c_void) -> bool {
        // SAFETY: the slot was made by `new`.
        unsafe { FlsSetValue(self.0, value) != 0 }
    }

    /// Frees the slot: its callback is not called for threads that end later.
    pub fn delete(self) {
        // SAFETY: the slot was made by `new`.
        unsafe { FlsFree(self.0) };
    }
}

/// Does nothing: Windows has no fork.
pub fn at_fork(_: unsafe extern "C" fn(), _: unsafe extern "C" fn(), _: unsafe extern "C" fn()) -> bool {
    true
}

/// The function that [`run`] calls on the purge thread, the only thread that [`spawn`] starts.
static BODY: core::sync::atomic::AtomicPtr<()> = core::sync::atomic::AtomicPtr::new(null_mut());

/// The thread's entry in the system's calling convention: calls [`BODY`].
unsafe extern "system" fn run(argument: *mut c_void) -> u32 {
    let body = BODY.load(core::sync::atomic::Ordering::Acquire);
    // SAFETY: `spawn` stored it before the thread began.
    let body = unsafe { core::mem::transmute::<*mut (), extern "C" fn(*mut c_void) -> *mut c_void>(body) };
    body(argument);
    0
}

/// Starts a thread that runs `body`, and returns its handle.
pub fn spawn(body: extern "C" fn(*mut c_void) -> *mut c_void) -> Option<usize> {
    BODY.store(body as *mut (), core::sync::atomic::Ordering::Release);
    // SAFETY: `run` lives as long as the program.
    let thread = unsafe { CreateThread(null(), 0, Some(run), null(), 0, null_mut()) };
    (!thread.is_null()).then(|| thread.addr())
}

/// Sets the running thread's last error.
pub fn set_errno(value: i32) {
    // SAFETY: the call has no precondition.
    unsafe { SetLastError(value as u32) };
}

/// Returns `None`: Windows has no alternate signal stacks.
pub fn handler_stack(_: usize) -> Option<(usize, usize)> {
    None
}
