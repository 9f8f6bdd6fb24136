//! Tests of closing a ring, and of a ring for which the kernel refuses calls.

use super::*;
use std::cell::RefCell;
use std::os::fd::{FromRawFd, IntoRawFd};

thread_local! {
    /// For each ring that this thread closed: how many entries the kernel had not completed by then.
    pub(super) static LEFT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Records completions.
#[derive(Default)]
struct Recorder(Mutex<Vec<Completion>>);

impl CompletionHandler for Recorder {
    fn completed(&self, completion: Completion) {
        self.0.lock().expect("no panic").push(completion);
    }
}

/// A ring that this thread owns, if this user may use io_uring.
fn ring_thread(test: &str, depth: u32, sink: &Arc<Recorder>) -> Option<RingThread> {
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an event");
    let made = RingThread::new(depth, Arc::new(RingShared::new(event)), Arc::clone(sink) as Arc<dyn CompletionHandler>);
    made.inspect_err(|_| println!("SKIP {test}: a kernel that lets this user have io_uring")).ok()
}

#[test]
fn a_ring_is_closed_with_nothing_armed() {
    let Some(mut ring_thread) = ring_thread("a_ring_is_closed_with_nothing_armed", 4, &Arc::default()) else { return };
    let shared = Arc::clone(&ring_thread.shared);
    ring_thread.push();
    ring_thread.ring.submit().expect("it takes the entry for the event");
    ring_thread.drain_completions(&mut Vec::new());
    assert_eq!(ring_thread.outstanding(), 1, "it waits for the event");
    drop(ring_thread);
    assert_eq!(LEFT.take(), [0]);
    // Next, close a ring as its engine's thread does: by the return of `run`, once the engine is closing.
    shared.queue().closing = true;
    RingThread::new(4, shared, Arc::<Recorder>::default()).expect("another").run();
    assert_eq!(LEFT.take(), [0]);
}

#[test]
fn a_request_that_a_signal_interrupted_is_put_on_the_ring_again() {
    let slab = Arc::new(crate::SlabFile::open(std::path::Path::new("/dev/null")).expect("it opens"));
    let request = |token| IoRequest { token, op: Op::Sync, slab: Arc::clone(&slab), offset: 0, bytes: 0, frame: None };
    let (shared, mut done) = (RingShared::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an event")), Vec::new());
    shared.queue().requests.push_back(request(1));
    shared.complete(request(2), -rustix::io::Errno::INTR.raw_os_error(), &mut done);
    shared.complete(request(3), -rustix::io::Errno::IO.raw_os_error(), &mut done);
    let tokens: Vec<u64> = shared.queue().requests.iter().map(|request| request.token).collect();
    assert_eq!((tokens, done.len(), done[0].token), (vec![2, 1], 1, 3));
}

#[test]
fn a_ring_that_the_kernel_refuses_ends_every_request_and_closes() {
    let sink = Arc::<Recorder>::default();
    let test = "a_ring_that_the_kernel_refuses_ends_every_request_and_closes";
    let Some(mut ring_thread) = ring_thread(test, 2, &sink) else { return };
    // Reads from the pipe block for ever: its writer writes nothing.
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("a pipe");
    let slab = Arc::new(crate::SlabFile::open(&pipe).expect("it opens"));
    let frames = crate::FramePool::new(1).expect("a mapping");
    let read = |token| {
        let frame = frames.take(4096).expect("there is room");
        IoRequest { token, op: Op::Read, slab: Arc::clone(&slab), offset: 0, bytes: 4096, frame: Some(frame) }
    };
    let (shared, last) = (Arc::clone(&ring_thread.shared), read(4));
    // Two requests are in the kernel, blocked on the pipe; two wait for room in the ring.
    shared.queue().requests.extend((0..4).map(read));
    ring_thread.push();
    ring_thread.ring.submit().expect("the kernel takes them");
    let null = std::fs::File::open("/dev/null").expect("it is always there");
    // SAFETY: `ring_thread` keeps the descriptor open, and `into_raw_fd` below does not close it.
    let mut of_ring = unsafe { OwnedFd::from_raw_fd(ring_thread.ring.as_raw_fd()) };
    rustix::io::dup2(&null, &mut of_ring).expect("now it is no ring");
    let _ = of_ring.into_raw_fd();
    let late = Arc::clone(&shared);
    let closes = std::thread::spawn(move || {
        while !late.queue().asleep {
            std::thread::yield_now();
        }
        late.put(|queue| queue.requests.push_back(last));
        while !late.queue().asleep {
            std::thread::yield_now();
        }
        late.put(|queue| queue.closing = true);
    });
    ring_thread.run();
    closes.join().expect("no panic");
    let done = std::mem::take(&mut *sink.0.lock().expect("no panic"));
    let code = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    let ends: Vec<_> = done.iter().map(|done| (done.token, done.frame.is_some(), done.result.clone())).collect();
    let told = |token, back| (token, back, Err(slab.fault("read", 0, code)));
    assert_eq!(ends, [told(0, false), told(1, false), told(2, true), told(3, true), told(4, true)]);
    drop(done);
    assert_eq!(frames.usage().0, 2 * 4096, "what the kernel may still write is never dealt out again");
    assert_eq!(LEFT.take(), [0]);
}
