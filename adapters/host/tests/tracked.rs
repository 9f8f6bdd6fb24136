//! The tracker of the process's heap: one test at a time, since all watch the same heap.
#![cfg(target_os = "linux")]

use object::{Object, ObjectSymbol};
use std::alloc::Layout;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use terrace_host::{Global, Handler, Heap, HeapTracker, check};
use terrace_track::{LiveList, Tag, TrackMode, TrackedBlock, tag};

#[global_allocator]
static A: Global = Global::new();

static ALONE: Mutex<()> = Mutex::new(());

/// The tracker in a mode, off again at the end of the test.
struct Tracking(&'static HeapTracker, #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Tracking {
    fn new(mode: TrackMode) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let tracker = Global::tracker();
        assert!(tracker.set_mode(mode));
        Self(tracker, alone)
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.0.set_mode(TrackMode::Off);
        check().expect("every structure agrees");
    }
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr().addr() as u64
}

fn find(live: &LiveList, key: u64) -> Option<&TrackedBlock> {
    live.blocks.iter().find(|block| block.key == key)
}

#[test]
fn a_block_is_listed_while_it_is_live_with_its_tag_and_size() {
    let tracking = Tracking::new(TrackMode::Records);
    let named = tag("numbers");
    let (small, large) = (vec![1u8; 100], vec![1u8; 1 << 20]);
    drop(named);
    let nameless = vec![1u8; 3000];
    let live = tracking.0.live();
    for (block, least, name) in [(&small, 100, "numbers"), (&large, 1 << 20, "numbers"), (&nameless, 3000, "")] {
        let found = find(&live, address(block)).expect("a live block");
        assert!((least..least + least / 4 + 4096).contains(&found.bytes), "{found:?}");
        assert_eq!((&*found.tag, &*found.location), (name, "host memory"));
    }
    assert!(find(&tracking.0.find_older_than(Duration::from_secs(3600)), address(&small)).is_none());
    let keys = [&small, &large, &nameless].map(|block| address(block));
    drop((small, large, nameless));
    let live = tracking.0.live();
    assert_eq!(keys.map(|key| find(&live, key)), [None; 3]);
    let counted = tracking.0.by_tag();
    let numbers = counted.get("numbers").expect("a tag");
    assert_eq!((numbers.allocations, numbers.frees, numbers.live_bytes), (2, 2, 0), "{counted}");
}

/// Without a thread-local variable that has an address, a thread notices at its next slow call only.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(feature = "dynamic-tls")))]
#[test]
fn threads_at_work_in_their_caches_are_reached_at_once() {
    let tracking = Tracking::new(TrackMode::Off);
    let (begin, go) = (Barrier::new(3), AtomicBool::new(false));
    thread::scope(|scope| {
        let threads = [0, 1].map(|_| {
            scope.spawn(|| {
                // Each pair is served by the cache: without the bypass none would take the slow path again.
                let mut pairs = 0usize;
                begin.wait();
                while !go.load(Relaxed) {
                    black_box(Box::new([pairs; 8]));
                    pairs += 1;
                }
                black_box(Box::new([1u64; 8]))
            })
        });
        begin.wait();
        thread::sleep(Duration::from_millis(20));
        tracking.0.set_mode(TrackMode::Records);
        go.store(true, Relaxed);
        let kept = threads.map(|thread| thread.join().expect("it ends well"));
        let live = tracking.0.live();
        assert!(kept.iter().all(|block| find(&live, address(&**block)).is_some_and(|found| found.bytes == 64)));
    });
}

#[test]
fn switched_off_nothing_is_kept_and_the_cache_serves_again() {
    let tracking = Tracking::new(TrackMode::Records);
    let kept = vec![1u8; 200];
    assert!(find(&tracking.0.live(), address(&kept)).is_some());
    tracking.0.set_mode(TrackMode::Off);
    assert!(tracking.0.live().is_empty());
    let total = tracking.0.total();
    assert!(total.bytes >= 200 && total.live_bytes == 0, "what was live counts as freed: {total:?}");
    let unseen = vec![1u8; 200];
    tracking.0.set_mode(TrackMode::Records);
    assert!(tracking.0.total().bytes < 100_000, "anew");
    let live = tracking.0.live();
    assert_eq!([&kept, &unseen].map(|block| find(&live, address(block))), [None; 2], "from before");
    // Their frees have no record, and count for nothing.
    let scope = tracking.0.scope();
    drop((kept, unseen));
    assert_eq!(scope.end().frees, 0);
}

#[test]
fn a_scope_counts_what_its_thread_does_in_any_mode() {
    for mode in [TrackMode::Counters, TrackMode::Records, TrackMode::Sites] {
        let tracking = Tracking::new(mode);
        let scope = tracking.0.scope();
        thread::scope(|threads| _ = threads.spawn(|| drop(black_box(vec![1u8; 1 << 20]))).join());
        let outer = scope.stats();
        let inner = tracking.0.scope();
        for _ in 0..1000 {
            drop(black_box(vec![1u8; 64]));
        }
        let large = black_box(vec![1u8; 1 << 20]);
        let did = inner.end();
        assert_eq!((did.allocations, did.frees, did.freed_bytes), (1001, 1000, 64_000), "{mode}");
        assert_eq!((did.bytes, did.peak_bytes), (64_000 + (1 << 20), 1 << 20), "{mode}");
        drop(large);
        let all = scope.end();
        assert_eq!(all.allocations - outer.allocations, 1001);
        assert!(all.peak_bytes >= 1 << 20 && outer.peak_bytes < 1 << 20, "{outer} {all}");
    }
}

#[test]
fn another_thread_frees_what_one_allocated() {
    let tracking = Tracking::new(TrackMode::Records);
    let (send, receive) = mpsc::channel::<Vec<u8>>();
    thread::scope(|scope| {
        let other = scope.spawn(|| receive.into_iter().map(|block| address(&block)).collect::<Vec<_>>());
        (1..300).for_each(|size| send.send(vec![1; size * 100]).expect("the other receives"));
        drop(send);
        let keys = other.join().expect("it ends well");
        let live = tracking.0.live();
        // The memory may be somebody else's by now: of another size, or older than none.
        let left =
            |(at, key): (usize, &u64)| find(&live, *key).is_some_and(|found| found.bytes == 100 * (at as u64 + 1));
        assert_eq!(keys.iter().enumerate().filter(|found| left(*found)).count(), 0);
    });
}

#[test]
fn a_block_that_grows_or_moves_has_one_record() {
    let tracking = Tracking::new(TrackMode::Records);
    let mut keys = Vec::new();
    let mut block: Vec<u8> = Vec::new();
    for size in [10, 100, 5000, 100_000, 1 << 20, 3 << 20, 40 << 20, 41 << 20] {
        block.reserve_exact(size - block.len());
        block.resize(size, 1);
        let live = tracking.0.live();
        let found = find(&live, address(&block)).expect("a record");
        assert!(found.bytes >= size as u64, "{found:?}");
        keys.push((address(&block), found.id));
        let stale = keys.iter().filter(|(key, id)| find(&live, *key).is_some_and(|other| other.id == *id));
        assert_eq!(stale.count(), 1, "{size}: {keys:?}");
    }
    block.truncate(1 << 20);
    block.shrink_to_fit();
    assert_eq!(find(&tracking.0.live(), address(&block)).map(|found| found.bytes), Some(1 << 20));
}

/// A heap frees its blocks at once: they have no records that could stay behind.
#[test]
fn blocks_of_a_heap_of_its_own_are_left_alone() {
    let tracking = Tracking::new(TrackMode::Records);
    let _named = tag("of a heap");
    let heap = Heap::new().expect("a heap");
    for bytes in [64, 1 << 20] {
        let layout = Layout::from_size_align(bytes, 16).expect("a layout");
        let block = heap.allocate(layout).expect("memory");
        assert!(find(&tracking.0.live(), block.as_ptr().addr() as u64).is_none());
        // SAFETY: the heap's block, of this layout.
        unsafe { heap.deallocate(block, layout) };
    }
    drop(heap);
    assert_eq!(tracking.0.by_tag().get("of a heap"), None);
}

#[inline(never)]
fn asks_for_memory(bytes: usize) -> Vec<u8> {
    let layout = Layout::from_size_align(black_box(bytes), 1).expect("a layout");
    // SAFETY: the layout is not empty.
    let block = unsafe { std::alloc::alloc(layout) };
    // SAFETY: a block of this allocator; the vector frees it by the same layout, and has no elements.
    unsafe { Vec::from_raw_parts(block, 0, bytes) }
}

#[test]
fn a_call_stack_begins_with_the_code_that_asked() {
    let tracking = Tracking::new(TrackMode::Sites);
    let kept = [asks_for_memory(100), asks_for_memory(1 << 20)];
    let live = tracking.0.live();
    let program = std::env::current_exe().expect("this program");
    let bytes = std::fs::read(&program).expect("this program's file");
    let file = object::File::parse(&*bytes).expect("this program is an object file");
    for block in &kept {
        let stack = &find(&live, address(block)).expect("a record").stack;
        let first = stack.first().expect("a caller");
        assert_eq!(first.file.as_deref(), program.to_str());
        let around = |symbol: &object::Symbol<'_, '_>| {
            (symbol.address()..symbol.address() + symbol.size()).contains(&first.offset)
        };
        let function = file.symbols().find(around).and_then(|symbol| symbol.name().ok().map(String::from));
        assert!(function.as_ref().is_some_and(|name| name.contains("asks_for_memory")), "{first}: {function:?}");
    }
    assert_eq!(live.groups().groups.iter().filter(|group| group.bytes >= 1 << 20).count(), 1);
}

/// Frees of blocks from before make the gauge of live bytes negative, and the next switch begins with that.
#[test]
fn a_peak_is_right_after_frees_of_what_was_never_counted() {
    let tracking = Tracking::new(TrackMode::Off);
    let older: Vec<_> = (0..100).map(|_| vec![1u8; 1 << 20]).collect();
    tracking.0.set_mode(TrackMode::Counters);
    drop(older);
    tracking.0.set_mode(TrackMode::Off);
    tracking.0.set_mode(TrackMode::Counters);
    [1, 300].into_iter().for_each(|mib| drop(black_box(vec![1u8; mib << 20])));
    let total = tracking.0.total();
    assert!((299 << 20..303 << 20).contains(&total.peak_bytes), "{total:?}");
}

/// What a list takes, and its drop, are counted alike.
#[test]
fn queries_leave_counters_as_they_are() {
    let tracking = Tracking::new(TrackMode::Counters);
    let scope = tracking.0.scope();
    (0..100).for_each(|_| drop(black_box(tracking.0.by_tag())));
    let did = scope.end();
    assert_eq!((did.allocations, did.bytes), (did.frees, did.freed_bytes), "{did}");
}

/// A record of a block of such a heap would stay behind when the heap goes.
#[test]
fn a_large_block_of_a_heap_that_is_resized_has_no_record() {
    let tracking = Tracking::new(TrackMode::Records);
    let heap = Heap::new().expect("a heap");
    let block = heap.allocate(Layout::from_size_align(1 << 20, 16).expect("a layout")).expect("memory");
    // SAFETY: a live block, which only this test uses.
    let grown = unsafe { terrace_host::api::resize(block.as_ptr(), 2 << 20, 16) };
    assert!(!grown.is_null());
    let has_record = find(&tracking.0.live(), grown.addr() as u64).is_some();
    assert_eq!(has_record, grown != block.as_ptr());
    // SAFETY: the block that was resized; it is not used again.
    unsafe { terrace_host::api::free(grown) };
}

#[test]
fn modes_are_switched_by_threads_at_once() {
    let tracking = Tracking::new(TrackMode::Off);
    thread::scope(|scope| {
        for seed in 0..3 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mode = move |_| TrackMode::ALL[random.usize(..4)];
            scope.spawn(|| (0..300).map(mode).for_each(|mode| _ = Global::tracker().set_mode(mode)));
        }
    });
    tracking.0.set_mode(TrackMode::Records);
    let kept = vec![1u8; 777];
    assert!(find(&tracking.0.live(), address(&kept)).is_some());
}

/// Each thread allocates, passes on, resizes and frees while the mode changes; then what is live is exactly what is kept.
#[test]
fn modes_change_under_threads_that_allocate() {
    let tracking = Tracking::new(TrackMode::Off);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut kept: Vec<Vec<u8>> = Vec::new();
                while !stop.load(Relaxed) {
                    match random.usize(..4) {
                        0 | 1 => kept.push(vec![seed as u8; 1 << random.u32(..18)]),
                        2 if !kept.is_empty() => drop(kept.swap_remove(random.usize(..kept.len()))),
                        3 if random.u32(..100) == 0 => thread::scope(|inner| {
                            let passed = std::mem::take(&mut kept);
                            inner.spawn(move || drop(passed));
                        }),
                        _ => kept.iter_mut().take(1).for_each(|block| block.reserve(100)),
                    }
                    assert!(kept.iter().all(|block| block.iter().take(8).all(|byte| *byte == seed as u8)));
                    if kept.len() > 200 {
                        kept.clear();
                    }
                }
            });
        }
        for round in 0..200 {
            tracking.0.set_mode(TrackMode::ALL[round % 4]);
            drop(tracking.0.live());
            thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Relaxed);
    });
    tracking.0.set_mode(TrackMode::Off);
    tracking.0.set_mode(TrackMode::Records);
    assert!(tracking.0.total().peak_bytes < 100_000, "{:?}", tracking.0.total());
    let named = Tag::new("kept").set();
    let kept: Vec<_> = (1..500).map(|size| vec![1u8; size]).collect();
    drop(named);
    let live = tracking.0.live();
    assert!(kept.iter().all(|block| find(&live, address(block)).is_some()));
    assert_eq!(live.blocks.iter().filter(|block| block.tag == "kept" && block.bytes < 1024).count(), kept.len());
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn allocates(_: i32) {
    let _handler = Handler::enter();
    drop(black_box(vec![1u8; 100]));
    drop(black_box(vec![1u8; 1 << 17]));
    HANDLED.fetch_add(1, Relaxed);
}

/// A signal interrupts a tracked call, which may hold a lock of the tracker.
#[test]
fn a_signal_handler_allocates_while_a_call_is_tracked() {
    let _tracking = Tracking::new(TrackMode::Records);
    let handler = allocates as extern "C" fn(i32) as libc::sighandler_t;
    // SAFETY: the handler marks its stay with a guard before it allocates.
    unsafe { libc::signal(libc::SIGUSR2, handler) };
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        scope.spawn(move || {
            // SAFETY: names the calling thread.
            send.send(unsafe { libc::pthread_self() }).expect("the test receives");
            while !stop.load(Relaxed) {
                drop(black_box([1, 10, 100, 1000].map(|size| vec![1u8; size])));
                // A reader of the lists holds locks too.
                drop(black_box(Global::tracker().live()));
            }
        });
        let thread = receive.recv().expect("the worker sends");
        for _ in 0..2000 {
            // SAFETY: the worker lives until `stop` is set below.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
            thread::sleep(Duration::from_micros(50));
        }
        stop.store(true, Relaxed);
    });
    assert!(HANDLED.load(Relaxed) > 0);
}

/// A child finds locks that other threads of its parent may have held: it tracks nothing, and goes on.
#[test]
fn a_forked_child_allocates_untracked() {
    // qemu-user fails an assertion of its own in the child of a process with several threads.
    let forks = if std::env::var_os("TERRACE_EMULATED").is_some() { 0 } else { 50 };
    let tracking = Tracking::new(TrackMode::Records);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    drop(black_box([1, 10, 100, 1000].map(|size| vec![1u8; size])));
                }
            });
        }
        let ended = (0..forks).take_while(|_| child_ends_well()).count();
        stop.store(true, Relaxed);
        assert_eq!(ended, forks);
    });
    assert_eq!(tracking.0.mode(), TrackMode::Records);
}

fn child_ends_well() -> bool {
    // SAFETY: the child calls the allocator, which permits that, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process if it waits for a lock that no thread of it holds.
        unsafe { libc::alarm(10) };
        drop(black_box([1, 100, 1 << 20].map(|size| vec![1u8; size])));
        let is_off = Global::tracker().live().is_empty() && !Global::tracker().set_mode(TrackMode::Records);
        // SAFETY: runs nothing of the parent's at the end.
        unsafe { libc::_exit(i32::from(!is_off)) };
    }
    let mut status = 0;
    // SAFETY: `status` is local and writable.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    (ended, status) == (child, 0)
}
