//! The thread that answers openers, one for all buffers that a process holds.
//!
//! Promises upward: once a [`Served`] is dropped, this process no longer holds the name; openers never make a holder wait; a forked
//! child has a server of its own.
//! Asks from below: epoll.
//!
//! Every holder waits for openers at the same socket, and one of them gets each: where one is stopped or killed, others
//! answer. So epoll's exclusive wake-ups are not used: one might wake a holder that is stopped, and no other.

use crate::error::ShmError;
use crate::layout::BufferHeader;
use crate::socket::{accept, answer, peer};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use terrace_guard::Process;

/// The server of one process. A forked child finds its parent's, and makes the next in the chain.
struct Server {
    process: Process,
    state: Mutex<Listeners>,
    next: OnceLock<Box<Server>>,
}

/// What the thread answers for.
#[derive(Default)]
struct Listeners {
    /// Made with the thread, when the first buffer is served.
    epoll: Option<Arc<OwnedFd>>,
    /// By the number that epoll tells.
    offers: HashMap<u64, Offer>,
    /// Larger than every key of `offers`.
    next: u64,
}

/// One buffer for openers.
struct Offer {
    listener: OwnedFd,
    memory: Arc<OwnedFd>,
    /// Its owner, and the users that its creator allowed.
    users: Vec<u32>,
}

/// A buffer that this process answers for, until it is dropped.
#[derive(Debug)]
pub struct Served(u64);

/// Answers openers of a buffer from now on.
pub fn serve(listener: OwnedFd, memory: Arc<OwnedFd>, header: &BufferHeader) -> Result<Served, ShmError> {
    let server = current();
    let mut state = server.lock();
    let epoll = match &state.epoll {
        Some(epoll) => epoll.clone(),
        None => state.epoll.insert(start(server)?).clone(),
    };
    let key = state.next;
    epoll::add(&epoll, &listener, EventData::new_u64(key), EventFlags::IN)
        .map_err(ShmError::system("waiting at a name"))?;
    let users = header.users.iter().copied().chain([header.owner]).collect();
    state.offers.insert(key, Offer { listener, memory, users });
    state.next += 1;
    Ok(Served(key))
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut state = current().lock();
        let Some(offer) = state.offers.remove(&self.0) else { return };
        // Other processes keep the socket open, so that closing it does not end the wait.
        if let Some(epoll) = &state.epoll {
            _ = epoll::delete(epoll, &offer.listener);
        }
    }
}

/// The server of this process.
fn current() -> &'static Server {
    static FIRST: OnceLock<Server> = OnceLock::new();
    let new = || Server { process: Process::current(), state: Mutex::default(), next: OnceLock::new() };
    let mut server = FIRST.get_or_init(new);
    while !server.process.is_current() {
        server = server.next.get_or_init(|| Box::new(new()));
    }
    server
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread, which lives as long as the process.
fn start(server: &'static Server) -> Result<Arc<OwnedFd>, ShmError> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(ShmError::system("making an epoll"))?;
    let epoll = Arc::new(epoll);
    let waits = epoll.clone();
    let thread = thread::Builder::new().name("terrace-shm".into()).spawn(move || run(server, &waits));
    thread.map_err(|error| ShmError::System { what: "starting the thread that answers openers", error })?;
    Ok(epoll)
}

fn run(server: &Server, epoll: &OwnedFd) {
    let mut events = Vec::with_capacity(32);
    loop {
        events.clear();
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            // No error is left that passes.
            Err(_) => return,
        }
        // All of them, also behind one that fails.
        let failed = events.iter().filter(|event| answer_opener(&server.lock(), event).is_err()).count();
        if failed > 0 {
            // No descriptor is left for a client: it waits until one is.
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Answers one of those that wait for a buffer; others are the next event. Fails where no descriptor is left for it.
fn answer_opener(state: &Listeners, event: &Event) -> Result<(), Errno> {
    let (key, flags) = (event.data.u64(), event.flags);
    let Some(offer) = state.offers.get(&key) else { return Ok(()) };
    if let Some(epoll) = state.epoll.as_ref().filter(|_| flags.contains(EventFlags::HUP)) {
        // A peer shut the socket down, for all: it would be ready for ever, and bring no opener.
        _ = epoll::delete(epoll, &offer.listener);
    }
    // All holders share this setting. A peer that waits in `accept` itself has changed it: then this thread would wait there
    // too, with the lock, when another holder is faster.
    _ = rustix::io::ioctl_fionbio(&offer.listener, true);
    let client = match accept(offer.listener.as_fd()) {
        Ok(Some(client)) => client,
        // Another holder was faster, or the client went away.
        Ok(None) | Err(Errno::CONNABORTED | Errno::INTR) => return Ok(()),
        Err(error) => return Err(error),
    };
    let allowed = peer(client.as_fd()).is_ok_and(|peer| offer.users.contains(&peer.uid));
    answer(client.as_fd(), allowed.then_some([offer.memory.as_fd(), offer.listener.as_fd()]));
    Ok(())
}
