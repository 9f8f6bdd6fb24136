//! What tests share: names that no other run has, a deadline, what is left behind.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use terrace_shm::{SharedBuffer, ShmError, ShmOptions, Way};

/// A name of this test's own.
pub fn name(test: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test-{test}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Both ways.
pub const WAYS: [Way; 2] = [Way::Memfd, Way::File];

/// Options for one way.
pub fn by(way: Way) -> ShmOptions {
    SharedBuffer::options().way(way)
}

/// The error of what must fail.
pub fn refused<T>(told: Result<T, ShmError>) -> ShmError {
    match told {
        Ok(_) => panic!("it must fail"),
        Err(error) => error,
    }
}

/// Runs what would wait for ever if it were wrong.
pub fn bounded<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let told = test();
        let _ = ended.send(());
        told
    });
    assert!(end.recv_timeout(Duration::from_secs(120)) != Err(mpsc::RecvTimeoutError::Timeout), "it waits for ever");
    thread.join().expect("no panic")
}

/// Waits until something holds, for a minute at most.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// This user.
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The path that the README documents.
pub fn path(name: &str) -> std::path::PathBuf {
    format!("/dev/shm/terrace-shm.{}.{name}", uid()).into()
}

/// The abstract address that the README documents.
pub fn address(name: &str) -> std::os::unix::net::SocketAddr {
    use std::os::linux::net::SocketAddrExt as _;
    std::os::unix::net::SocketAddr::from_abstract_name(format!("terrace-shm/{}/{name}", uid())).expect("an address")
}

/// Names of sockets and files that contain a text.
pub fn left(text: &str) -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("/proc");
    let files = std::fs::read_dir("/dev/shm").expect("/dev/shm").flatten();
    let files = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    sockets.lines().map(String::from).chain(files).filter(|line| line.contains(text)).collect()
}

/// Waits until nothing of a name is left: a process that is being started has our descriptors for a moment.
pub fn gone(name: &str) {
    until("nothing is left", || left(name).is_empty());
}

/// What the descriptors of this process lead to.
pub fn descriptors() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    entries.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned())).collect()
}
