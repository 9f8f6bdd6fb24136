//! Guards of signal handlers, dropped in every order and at every time: a thread in a handler does not touch its cache, and a
//! guard gives its thread no other cache.
#![cfg(unix)]

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use terrace_host::{Global, Handler, check};

#[global_allocator]
static A: Global = Global::new();

/// The address of a block of 48 bytes that is allocated and freed. The thread's cache returns the block freed last: outside of
/// handlers this is the same address each time.
fn top() -> usize {
    let block = black_box(Box::new([0u8; 48]));
    block.as_ptr().addr()
}

/// Calls something far below the caller's frame, so that the caller stands above the handler that this was.
#[inline(never)]
fn far_below<T>(call: impl FnOnce() -> T) -> T {
    let room = black_box([0u8; 1 << 14]);
    let result = call();
    black_box(room);
    result
}

fn guards_end_their_stay_in_any_order() {
    let own = top();
    let (first, second, third) = (Handler::enter(), Handler::enter(), Handler::enter());
    assert_ne!(top(), own, "three guards");
    drop(third);
    assert_ne!(top(), own, "two guards");
    drop(first);
    assert_ne!(top(), own, "the second is there, and the first is not");
    drop(second);
    assert_eq!(top(), own, "no guard is left");
}

fn a_guard_that_is_never_dropped_ends_with_its_handler() {
    let own = top();
    far_below(|| std::mem::forget(Handler::enter()));
    assert_eq!(top(), own);
}

fn a_jump_into_a_handler_ends_only_what_is_inside_of_it() {
    let own = top();
    far_below(|| {
        let outer = Handler::enter();
        far_below(|| std::mem::forget(Handler::enter()));
        assert_ne!(top(), own, "the outer handler was not left");
        drop(outer);
        assert_ne!(top(), own, "a guard is left, whose end no call has seen");
    });
    assert_eq!(top(), own, "both were left");
}

fn a_guard_that_outlives_its_handler_does_not_end_another() {
    let own = top();
    let late = far_below(Handler::enter);
    assert_eq!(top(), own, "the handler was left");
    let handler = Handler::enter();
    drop(late);
    assert_ne!(top(), own, "the other guard is there");
    drop(handler);
    assert_eq!(top(), own);
}

/// Bytes of the stack of a thread that lies just below its alternate signal stack.
const STACK: usize = 1 << 20;

/// The result of the handler: the address of a block while it ran.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Leaves a guard behind, as a jump out of a handler does.
extern "C" fn on_signal(_: i32) {
    std::mem::forget(Handler::enter());
    INSIDE.store(top(), Relaxed);
}

/// The body of a thread whose alternate signal stack begins at `above`.
extern "C" fn below(above: *mut c_void) -> *mut c_void {
    let own = top();
    let handlers = libc::stack_t { ss_sp: above, ss_flags: 0, ss_size: 1 << 16 };
    // SAFETY: memory of the test's that no other thread uses until this one has ended.
    assert_eq!(unsafe { libc::sigaltstack(&handlers, std::ptr::null_mut()) }, 0);
    // SAFETY: the handler is installed.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    assert_ne!(INSIDE.load(Relaxed), own, "in the handler");
    assert_eq!(top(), own, "the handler is gone: its stack is not the thread's");
    std::ptr::null_mut()
}

fn a_handler_on_a_stack_above_the_thread_s_is_left() {
    // SAFETY: zeros are an action without flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler is a function of a signal.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
    let mut memory = vec![0u128; (STACK + (1 << 16)) / 16];
    let stack = memory.as_mut_ptr().cast::<c_void>();
    // SAFETY: zeros until the next call fills them in.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: ours to be written.
    assert_eq!(unsafe { libc::pthread_attr_init(&mut attributes) }, 0);
    // SAFETY: the memory outlives the thread.
    assert_eq!(unsafe { libc::pthread_attr_setstack(&mut attributes, stack, STACK) }, 0);
    let mut thread = 0;
    let above = stack.wrapping_byte_add(STACK);
    // SAFETY: the body takes the address of the memory behind its stack.
    assert_eq!(unsafe { libc::pthread_create(&mut thread, &attributes, below, above) }, 0);
    // SAFETY: just made, joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, std::ptr::null_mut()) }, 0);
}

static BARRIER: Barrier = Barrier::new(2);

/// A thread's value under its key: a guard, and a block to free afterwards.
type Left = (Option<Handler>, Box<[u8; 48]>);

/// The destructor of a key that is younger than the allocator's: the thread has no cache any more when it runs.
extern "C" fn late(value: *mut c_void) {
    // SAFETY: the thread below made it, and set it under its key once.
    let (handler, block) = *unsafe { Box::from_raw(value.cast::<Left>()) };
    drop(handler);
    BARRIER.wait();
    // The other thread has the cache now, and has just freed a block into it.
    BARRIER.wait();
    drop(block);
    BARRIER.wait();
}

fn a_guard_that_outlives_its_threads_cache_gives_the_thread_no_other() {
    let mut key = 0;
    // SAFETY: the key is ours, and `late` takes any value that is set under it.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(late)) }, 0);
    let dying = thread::spawn(move || {
        let value = Box::into_raw(Box::new((None, Box::new([0u8; 48])) as Left));
        // SAFETY: the key is there.
        assert_eq!(unsafe { libc::pthread_setspecific(key, value.cast()) }, 0);
        // SAFETY: the value is this thread's alone until `late` takes it.
        unsafe { (*value).0 = Some(Handler::enter()) };
    });
    BARRIER.wait();
    let other = thread::spawn(|| {
        let kept = [(); 8].map(|()| Box::new([0u8; 48]));
        let own = top();
        BARRIER.wait();
        BARRIER.wait();
        assert_eq!(top(), own, "a thread that has ended uses the cache of another");
        drop(kept);
    });
    other.join().expect("no panic");
    dying.join().expect("no panic");
}

/// Whether the process has memory at the page of an address.
fn is_mapped(address: usize) -> bool {
    let page = std::ptr::without_provenance_mut::<c_void>(address & !4095);
    let mut resident = 0;
    // SAFETY: reads the table of pages, and writes the one byte.
    unsafe { libc::mincore(page, 4096, &mut resident) == 0 }
}

/// A thread without a cache: a handler makes its first call of the allocator. Null: all is well. (A panic inside would need more
/// blocks than the emergency pool has.)
extern "C" fn without_a_cache(_: *mut c_void) -> *mut c_void {
    let handler = Handler::enter();
    let small = black_box(Box::new([1u8; 100]));
    let large = black_box(vec![2u8; 100_000].into_boxed_slice());
    let address = large.as_ptr().addr();
    let kept = small.iter().all(|byte| *byte == 1) && large.iter().all(|byte| *byte == 2) && is_mapped(address);
    drop((small, large));
    let went_back = !is_mapped(address);
    // Blocks that were used before, and new mappings.
    let zeroed = [100, 20_000, 100_000].into_iter().all(|bytes| {
        drop(black_box(vec![3u8; bytes]));
        black_box(vec![0u8; bytes]).iter().all(|byte| *byte == 0)
    });
    drop(handler);
    std::ptr::without_provenance_mut(usize::from(!kept) + 2 * usize::from(!went_back) + 4 * usize::from(!zeroed))
}

fn a_handler_of_a_thread_without_a_cache_is_served_from_the_reserve() {
    let (mut thread, nothing) = (0, std::ptr::null_mut::<c_void>());
    // SAFETY: the body needs no argument.
    assert_eq!(unsafe { libc::pthread_create(&mut thread, nothing.cast(), without_a_cache, nothing) }, 0);
    let mut wrong = std::ptr::null_mut();
    // SAFETY: just made, joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, &mut wrong) }, 0);
    assert_eq!(wrong.addr(), 0, "1: not what was written; 2: a large block's memory did not go back; 4: not zeros");
}

/// One test: in each part, the cache that a thread left is the next thread's.
#[test]
fn a_guard_changes_no_stay_and_no_cache_but_its_own() {
    guards_end_their_stay_in_any_order();
    a_guard_that_is_never_dropped_ends_with_its_handler();
    a_jump_into_a_handler_ends_only_what_is_inside_of_it();
    a_guard_that_outlives_its_handler_does_not_end_another();
    a_guard_that_outlives_its_threads_cache_gives_the_thread_no_other();
    a_handler_on_a_stack_above_the_thread_s_is_left();
    a_handler_of_a_thread_without_a_cache_is_served_from_the_reserve();
    check().expect("every structure agrees");
}
