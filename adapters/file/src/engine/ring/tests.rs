//! A ring that is closed, and one that the kernel refuses.

use super::*;
use std::cell::RefCell;
use std::os::fd::{FromRawFd, IntoRawFd};

thread_local! {
    /// Entries that the kernel still had when rings of this thread were closed.
    pub(super) static LEFT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what it is told.
#[derive(Default)]
struct Kept(Mutex<Vec<Completion>>);

impl Sink for Kept {
    fn completed(&self, completion: Completion) {
        self.0.lock().expect("no panic").push(completion);
    }
}

/// A ring that this thread owns, where this user may have one.
fn owned(test: &str, depth: u32, sink: &Arc<Kept>) -> Option<Owned> {
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an event");
    let made = Owned::new(depth, Arc::new(Shared::new(event)), Arc::clone(sink) as Arc<dyn Sink>);
    made.inspect_err(|_| println!("SKIP {test}: a kernel that lets this user have io_uring")).ok()
}

#[test]
fn a_ring_is_closed_with_nothing_armed() {
    let Some(mut owned) = owned("a_ring_is_closed_with_nothing_armed", 4, &Arc::default()) else { return };
    let shared = Arc::clone(&owned.shared);
    owned.push();
    owned.ring.submit().expect("it takes the entry for the event");
    owned.take(&mut Vec::new());
    assert_eq!(owned.left(), 1, "it waits for the event");
    drop(owned);
    assert_eq!(LEFT.take(), [0]);
    // As its thread ends.
    shared.inbox().closing = true;
    Owned::new(4, shared, Arc::<Kept>::default()).expect("another").run();
    assert_eq!(LEFT.take(), [0]);
}

#[test]
fn a_request_that_a_signal_interrupted_is_put_on_the_ring_again() {
    let slab = Arc::new(crate::Slab::open(std::path::Path::new("/dev/null")).expect("it opens"));
    let request = |token| Request { token, op: Op::Sync, slab: Arc::clone(&slab), offset: 0, bytes: 0, frame: None };
    let (shared, mut over) = (Shared::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an event")), Vec::new());
    shared.inbox().queue.push_back(request(1));
    shared.ended(request(2), -rustix::io::Errno::INTR.raw_os_error(), &mut over);
    shared.ended(request(3), -rustix::io::Errno::IO.raw_os_error(), &mut over);
    let tokens: Vec<u64> = shared.inbox().queue.iter().map(|request| request.token).collect();
    assert_eq!((tokens, over.len(), over[0].token), (vec![2, 1], 1, 3));
}

#[test]
fn a_ring_that_the_kernel_refuses_ends_every_request_and_closes() {
    let sink = Arc::<Kept>::default();
    let test = "a_ring_that_the_kernel_refuses_ends_every_request_and_closes";
    let Some(mut owned) = owned(test, 2, &sink) else { return };
    // Reads from it wait for ever: it has a writer, who writes nothing.
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("a pipe");
    let slab = Arc::new(crate::Slab::open(&pipe).expect("it opens"));
    let frames = crate::Frames::new(1).expect("a mapping");
    let read = |token| {
        let frame = frames.take(4096).expect("there is room");
        Request { token, op: Op::Read, slab: Arc::clone(&slab), offset: 0, bytes: 4096, frame: Some(frame) }
    };
    let (shared, last) = (Arc::clone(&owned.shared), read(4));
    // Two with the kernel, which waits for the pipe, and two that wait for room.
    shared.inbox().queue.extend((0..4).map(read));
    owned.push();
    owned.ring.submit().expect("the kernel takes them");
    let null = std::fs::File::open("/dev/null").expect("it is always there");
    // SAFETY: `owned` keeps the descriptor open, and `into_raw_fd` below does not close it.
    let mut of_ring = unsafe { OwnedFd::from_raw_fd(owned.ring.as_raw_fd()) };
    rustix::io::dup2(&null, &mut of_ring).expect("now it is no ring");
    let _ = of_ring.into_raw_fd();
    let late = Arc::clone(&shared);
    let closes = std::thread::spawn(move || {
        while !late.inbox().asleep {
            std::thread::yield_now();
        }
        late.put(|inbox| inbox.queue.push_back(last));
        while !late.inbox().asleep {
            std::thread::yield_now();
        }
        late.put(|inbox| inbox.closing = true);
    });
    owned.run();
    closes.join().expect("no panic");
    let over = std::mem::take(&mut *sink.0.lock().expect("no panic"));
    let code = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    let ends: Vec<_> = over.iter().map(|over| (over.token, over.frame.is_some(), over.result.clone())).collect();
    let told = |token, back| (token, back, Err(slab.fault("read", 0, code)));
    assert_eq!(ends, [told(0, false), told(1, false), told(2, true), told(3, true), told(4, true)]);
    drop(over);
    assert_eq!(frames.usage().0, 2 * 4096, "what the kernel may still write is never dealt out again");
    assert_eq!(LEFT.take(), [0]);
}
