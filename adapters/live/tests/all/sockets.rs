//! The two ends: what a client gets, and what no client can do to the program.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use terrace_live::{BYTES, CounterReader, Figure, Figures, LiveError, Publisher, RowKind, RowList, SharedCounters};

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live.sock");
    (folder, path)
}

/// A source whose row counts its calls, and the count.
fn counting() -> (impl FnMut(&mut RowList) + Send, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let source = move |rows: &mut RowList| {
        let figures = Figures::NONE.with(Figure::Allocations, calls.fetch_add(1, Relaxed) + 1);
        rows.push(RowKind::Pool, "counting", figures);
    };
    (source, counted)
}

fn start(path: &Path) -> (Publisher, Arc<AtomicU64>) {
    let (source, calls) = counting();
    (Publisher::builder().source(source).interval(Duration::from_millis(1)).start(path).unwrap(), calls)
}

/// Waits until the sources were called `more` times more: the publisher's thread works.
fn works(calls: &AtomicU64, more: u64) {
    let until = calls.load(Relaxed) + more;
    while calls.load(Relaxed) < until {
        thread::yield_now();
    }
}

fn names(reader: &CounterReader) -> Vec<String> {
    reader.frame().unwrap().rows.iter().map(|row| row.name().to_string()).collect()
}

#[test]
fn a_client_reads_what_the_sources_say_and_rows_come_and_go() {
    let (_folder, path) = place();
    let (source, calls) = counting();
    let many = Arc::new(AtomicU64::new(300));
    let wanted = many.clone();
    let tags = move |rows: &mut RowList| {
        (0..wanted.load(Relaxed)).for_each(|tag| rows.push(RowKind::Tag, format!("tag {tag}"), Figures::NONE));
    };
    let builder = Publisher::builder().source(source).source(tags).interval(Duration::from_millis(1));
    let publisher = builder.start(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let reader = CounterReader::connect(publisher.path()).unwrap();
    let frame = reader.frame().unwrap();
    assert_eq!((frame.maker, frame.rows.len(), frame.rows[0].owner), (std::process::id(), 127, std::process::id()));
    many.store(2, Relaxed);
    works(&calls, 3);
    assert_eq!(names(&reader), ["counting", "tag 0", "tag 1"]);
    many.store(0, Relaxed);
    works(&calls, 3);
    let count = || reader.frame().unwrap().rows[0].figures.get(Figure::Allocations).unwrap();
    assert_eq!(names(&reader), ["counting"]);
    let before = count();
    works(&calls, 3);
    assert!(count() > before, "new figures without a new connection");
    drop(publisher);
    assert!(!path.exists(), "the file goes with the publisher");
    assert_eq!(names(&reader), ["counting"], "the last figures stay readable");
}

#[test]
fn clients_that_never_read_or_go_away_disturb_nothing() {
    let (_folder, path) = place();
    let (publisher, calls) = start(&path);
    // They never read; their connections stay open here.
    let idle: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    // They are gone before the thread gets to them.
    (0..100).for_each(|_| drop(UnixStream::connect(&path).unwrap()));
    works(&calls, 3);
    let reader = CounterReader::connect(&path).unwrap();
    assert_eq!(names(&reader), ["counting"]);
    drop((publisher, idle));
}

#[test]
fn a_reader_cannot_write() {
    let (_folder, path) = place();
    let (_publisher, _) = start(&path);
    let shared = SharedCounters::create().unwrap();
    shared.keep_others_from_writing();
    let file = fs::File::from(shared.read_only().unwrap());
    assert!(std::io::Write::write(&mut &file, b"x").is_err(), "opened to read");
    // The same memory, opened again to write it: sealed.
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&shared.as_fd()));
    let opened = fs::OpenOptions::new().write(true).open(again).unwrap();
    assert!(std::io::Write::write(&mut &opened, b"x").is_err() && opened.set_len(0).is_err(), "sealed");
    assert!(SharedCounters::open(file.into()).is_ok());
}

#[test]
fn a_stale_socket_is_replaced_a_live_one_and_any_other_file_is_an_error() {
    let (folder, path) = place();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (publisher, _) = start(&path);
    let error = Publisher::builder().start(&path).unwrap_err();
    assert!(matches!(error, LiveError::InUse { .. }), "{error}");
    assert!(CounterReader::connect(&path).is_ok(), "the first one is as it was");
    drop(publisher);
    fs::write(&path, "mine").unwrap();
    let error = Publisher::builder().start(&path).unwrap_err();
    assert!(matches!(error, LiveError::NoSocket { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    let error = Publisher::builder().start(folder.path().join("no/such/folder")).unwrap_err();
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[test]
fn what_is_no_publisher_is_a_clear_error() {
    let (folder, path) = place();
    let connect = |path: &Path| CounterReader::connect(path).unwrap_err();
    assert!(connect(&path).to_string().contains("give the socket of a running program"));
    // Nobody accepts.
    let listener = UnixListener::bind(&path).unwrap();
    assert!(matches!(connect(&path), LiveError::Silent { .. }));
    // Text, and no descriptor.
    let server = thread::spawn(move || {
        for text in [&b"hello"[..], b""] {
            let mut client = listener.accept().unwrap().0;
            // The connection of the attempt above waits first, and is gone: writing to it may fail.
            _ = std::io::Write::write(&mut client, text);
        }
    });
    assert!(matches!(connect(&path), LiveError::Foreign { .. }));
    server.join().unwrap();
    // A file that could shrink under the reader.
    let file = folder.path().join("file");
    fs::write(&file, vec![0; BYTES]).unwrap();
    assert!(matches!(SharedCounters::open(fs::File::open(&file).unwrap().into()).unwrap_err(), LiveError::Unsealed));
}

#[test]
fn a_source_that_panics_is_left_out_from_then_on() {
    let (_folder, path) = place();
    let (source, calls) = counting();
    let broken = |rows: &mut RowList| {
        rows.push(RowKind::Pool, "broken", Figures::NONE);
        if rows_are_many() {
            panic!("a source of the test's panics once");
        }
    };
    let builder = Publisher::builder().source(broken).source(source).interval(Duration::from_millis(1));
    let _publisher = builder.start(&path).unwrap();
    works(&calls, 5);
    let reader = CounterReader::connect(&path).unwrap();
    assert_eq!(names(&reader), ["counting"]);
}

/// `true` at the second call.
fn rows_are_many() -> bool {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    CALLS.fetch_add(1, Relaxed) == 1
}
