//! Memory of callers that disks read and write without a copy.
#![cfg(target_os = "linux")]

use crate::patterns::pattern;
use std::os::unix::process::ExitStatusExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_file::{
    ALIGN, Directory, Disk, DiskRequest, DiskResponse, EngineKind, Executor, FileFault, FramePool, ResponseSender,
    StoreFile, StoreOptions,
};
use terrace_tests::Random;
use terrace_tiers::{Buffer, Error, Manager};

const CHUNK: usize = 256 << 10;

/// A disk that notes where the memory of its requests is, and may keep what it reads into for longer than its answer.
struct Watched {
    directory: Directory,
    /// Addresses, in no order.
    frames: Mutex<Vec<usize>>,
    /// How long the frames of reads are kept; `Duration::MAX` for ever.
    keeps: Mutex<Option<Duration>>,
    kept: AtomicBool,
    /// Whether it writes into the memory of writes; how often it could.
    scribbles: AtomicBool,
    scribbled: AtomicUsize,
    /// Whether it answers reads with memory of its own.
    swaps: AtomicBool,
}

impl Disk for Watched {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        self.directory.files()
    }

    fn submit(&self, mut request: DiskRequest, reply: ResponseSender) {
        if let DiskRequest::Write { frame, .. } = &mut request
            && self.scribbles.load(Ordering::Relaxed)
        {
            let wrote = std::panic::catch_unwind(AssertUnwindSafe(|| frame[0] = frame[0].wrapping_add(0)));
            self.scribbled.fetch_add(usize::from(wrote.is_ok()), Ordering::Relaxed);
        }
        let request = match request {
            // It reads back what is in the file, into the memory that it was given to write from.
            DiskRequest::Write { file, offset, bytes, frame } if self.scribbles.load(Ordering::Relaxed) => {
                DiskRequest::Read { file, offset, bytes, frame }
            }
            DiskRequest::Read { bytes, .. } if self.swaps.load(Ordering::Relaxed) => {
                let frame = FramePool::new(1 << 20).expect("memory").take(bytes).expect("room");
                return drop(reply.send(DiskResponse { result: Ok(bytes), frame: Some(frame) }));
            }
            request => request,
        };
        let keeps = *self.keeps.lock().expect("no panic");
        match request {
            DiskRequest::Read { mut frame, .. } if keeps.is_some() => {
                let kept = keeps.unwrap_or_default();
                std::mem::forget(std::thread::spawn(move || {
                    // The answer comes first, as of a disk that is gone.
                    drop(reply);
                    std::thread::sleep(kept);
                    frame.fill(0xEE);
                }));
                self.kept.store(true, Ordering::Release);
            }
            DiskRequest::Read { file: StoreFile::Slab(_), ref frame, .. }
            | DiskRequest::Write { file: StoreFile::Slab(_), ref frame, .. } => {
                self.frames.lock().expect("no panic").push(frame.pointer().addr());
                self.directory.submit(request, reply);
            }
            _ => self.directory.submit(request, reply),
        }
    }
}

/// A manager on a watched disk, and a buffer of more bytes than its memory.
fn watched(path: &Path, engine: EngineKind, bytes: usize) -> (Arc<Watched>, Manager, Buffer) {
    in_chunks(path, engine, bytes, CHUNK)
}

/// The same, in chunks of so many bytes.
fn in_chunks(path: &Path, engine: EngineKind, bytes: usize, chunk: usize) -> (Arc<Watched>, Manager, Buffer) {
    let tasks = Executor::new();
    let directory = Directory::open(path, engine, &tasks).expect("it opens");
    let disk = Arc::new(Watched {
        directory,
        frames: Mutex::default(),
        keeps: Mutex::default(),
        kept: AtomicBool::new(false),
        scribbles: AtomicBool::new(false),
        scribbled: AtomicUsize::new(0),
        swaps: AtomicBool::new(false),
    });
    let builder = Manager::builder().memory(1 << 20).chunk(chunk).maintenance_interval(Duration::ZERO);
    let builder = builder.disk(Arc::clone(&disk) as Arc<dyn Disk>, StoreOptions::new(64 << 20)).tasks(&tasks);
    let manager = builder.build().expect("it is built");
    let buffer = manager.allocate(bytes as u64).expect("room");
    buffer.write(0, &pattern(1, bytes as u64)).expect("written");
    assert_eq!(manager.list()[0].tier, 1, "it is too large for memory");
    disk.seen();
    (disk, manager, buffer)
}

impl Watched {
    fn seen(&self) -> Vec<usize> {
        let mut seen = std::mem::take(&mut *self.frames.lock().expect("no panic"));
        seen.sort_unstable();
        seen
    }
}

/// `bytes` bytes that begin `inside` bytes behind a page.
fn at(memory: &mut Vec<u8>, inside: usize, bytes: usize) -> &mut [u8] {
    memory.resize(bytes + 2 * ALIGN, 0xAA);
    let page = memory.as_ptr().align_offset(ALIGN);
    &mut memory[page + inside..][..bytes]
}

#[test]
fn whole_pages_of_the_caller_are_read_and_written_where_they_are() {
    for engine in [EngineKind::Best, EngineKind::Threads] {
        let (directory, bytes) = (tempfile::tempdir().expect("a directory"), 4 * CHUNK + 5000);
        let (disk, manager, buffer) = watched(directory.path(), engine, bytes);
        let mut memory = Vec::new();
        let to = at(&mut memory, 0, bytes);
        let chunks = |to: &[u8], of: std::ops::Range<usize>| -> Vec<usize> {
            of.map(|chunk| to.as_ptr().addr() + chunk * CHUNK).collect()
        };
        buffer.read(0, to).expect("read");
        assert_eq!(to, pattern(1, bytes as u64));
        let seen = disk.seen();
        assert_eq!(seen.len(), 5);
        assert!(chunks(to, 0..4).iter().all(|chunk| seen.contains(chunk)), "{seen:x?}");
        assert!(!seen.contains(&chunks(to, 4..5)[0]), "the last chunk is not whole pages");
        // From the middle of a chunk on, and to the middle of another.
        let part = &mut to[CHUNK / 2..3 * CHUNK + 100];
        buffer.read((CHUNK / 2) as u64, part).expect("read");
        let seen = disk.seen();
        let whole = chunks(to, 1..3);
        assert!(seen.len() == 4 && whole.iter().all(|chunk| seen.contains(chunk)), "{seen:x?}");
        // What is written leaves from there as well.
        to.copy_from_slice(&pattern(2, bytes as u64));
        buffer.write(0, to).expect("written");
        let seen = disk.seen();
        assert!(seen.len() == 5 && chunks(to, 0..4).iter().all(|chunk| seen.contains(chunk)), "{seen:x?}");
        let within = at(&mut memory, 64, bytes);
        let range = within.as_ptr_range();
        buffer.read(0, within).expect("read");
        assert_eq!(within, pattern(2, bytes as u64));
        buffer.write(0, within).expect("written");
        let seen = disk.seen();
        assert!(seen.len() == 10 && seen.iter().all(|frame| !(range.start.addr()..range.end.addr()).contains(frame)));
        manager.check().expect("sound");
    }
}

/// Memory of a caller, a page or more of it unused in front.
struct Own(Vec<u8>, usize, usize);

impl AsMut<[u8]> for Own {
    fn as_mut(&mut self) -> &mut [u8] {
        at(&mut self.0, self.1, self.2)
    }
}

#[test]
fn a_future_reads_into_the_memory_that_it_was_given_and_returns_it() {
    let (directory, bytes) = (tempfile::tempdir().expect("a directory"), 5 * CHUNK);
    let (disk, manager, buffer) = watched(directory.path(), EngineKind::Best, bytes);
    for inside in [0, 64] {
        let mut own = Own(Vec::new(), inside, bytes);
        let start = own.as_mut().as_ptr().addr();
        let mut own = buffer.read_into_async(0, own).wait().expect("read");
        assert_eq!(own.as_mut().as_ptr().addr(), start);
        assert_eq!(own.as_mut(), pattern(1, bytes as u64));
        let seen = disk.seen();
        let direct = (0..5).filter(|chunk| seen.contains(&(start + chunk * CHUNK))).count();
        assert_eq!(direct, if inside == 0 { 5 } else { 0 });
    }
    // Bytes of a buffer in memory are copied into the array; a range outside the buffer is refused.
    let small = manager.allocate(100).expect("room");
    small.write(0, &[7; 100]).expect("written");
    assert_eq!(small.read_into_async(50, [0; 50]).wait(), Ok([7; 50]));
    assert!(matches!(small.read_into_async(51, [0; 50]).wait(), Err(Error::OutOfBounds { .. })));
}

#[test]
fn small_chunks_are_copied() {
    let (directory, bytes) = (tempfile::tempdir().expect("a directory"), 5 * CHUNK);
    let (disk, _manager, buffer) = in_chunks(directory.path(), EngineKind::Best, bytes, 128 << 10);
    let mut memory = Vec::new();
    let own = at(&mut memory, 0, bytes);
    buffer.write(0, own).expect("written");
    buffer.read(0, own).expect("read");
    let (seen, range) = (disk.seen(), own.as_ptr_range());
    assert_eq!(seen.len(), 20);
    assert!(seen.iter().all(|frame| !(range.start.addr()..range.end.addr()).contains(frame)));
}

#[test]
fn a_disk_cannot_write_what_a_caller_lends_to_be_written() {
    for engine in [EngineKind::Best, EngineKind::Threads] {
        let (directory, bytes) = (tempfile::tempdir().expect("a directory"), 5 * CHUNK);
        let (disk, _manager, buffer) = watched(directory.path(), engine, bytes);
        let mut memory = Vec::new();
        disk.scribbles.store(true, Ordering::Relaxed);
        let _any = buffer.write(0, at(&mut memory, 64, bytes));
        assert!(disk.scribbled.swap(0, Ordering::Relaxed) >= 5, "staging memory");
        let own = at(&mut memory, 0, bytes);
        own.fill(3);
        // Neither by itself, nor by an engine: what is in the file is another pattern.
        assert!(matches!(buffer.write(0, own), Err(Error::Store(_))));
        assert_eq!(disk.scribbled.load(Ordering::Relaxed), 0);
        assert!(own.iter().all(|byte| *byte == 3));
    }
}

#[test]
fn memory_that_a_disk_answers_with_in_place_of_the_caller_s_is_an_error() {
    let (directory, bytes) = (tempfile::tempdir().expect("a directory"), 5 * CHUNK);
    let (disk, _manager, buffer) = watched(directory.path(), EngineKind::Best, bytes);
    let mut memory = Vec::new();
    // All zeros, as the answer is: its checksum is right.
    buffer.write(0, &vec![0; bytes]).expect("written");
    disk.swaps.store(true, Ordering::Relaxed);
    assert!(matches!(buffer.read(0, at(&mut memory, 0, bytes)), Err(Error::Store(_))));
}

#[test]
fn a_read_that_is_cancelled_goes_on_in_its_memory() {
    let (directory, bytes) = (tempfile::tempdir().expect("a directory"), 5 * CHUNK);
    for engine in [EngineKind::Best, EngineKind::Threads] {
        let (_disk, manager, buffer) = watched(directory.path(), engine, bytes);
        for _ in 0..20 {
            drop(buffer.read_into_async(0, Own(Vec::new(), 0, bytes)).cancel_on_drop());
            drop(buffer.write_async(0, pattern(1, bytes as u64)).cancel_on_drop());
        }
        let mut memory = Vec::new();
        buffer.read(0, at(&mut memory, 0, bytes)).expect("read");
        assert_eq!(at(&mut memory, 0, bytes), pattern(1, bytes as u64));
        drop((buffer, manager));
    }
}

#[test]
fn parts_of_any_place_go_to_and_from_memory_of_any_place() {
    let (directory, bytes) = (tempfile::tempdir().expect("a directory"), 4 * CHUNK + 4096 + 77);
    let (_disk, manager, buffer) = watched(directory.path(), EngineKind::Best, bytes);
    let (mut random, mut model, mut memory) = (Random::new(7), pattern(1, bytes as u64), Vec::new());
    for step in 0..300u32 {
        let mut place = |most: usize| match random.below(3) {
            0 => random.below(most as u64 / ALIGN as u64 + 1) as usize * ALIGN,
            1 => random.below(most as u64 / CHUNK as u64 + 1) as usize * CHUNK,
            _ => random.below(most as u64 + 1) as usize,
        };
        let begin = place(bytes);
        let length = place(bytes).min(bytes - begin);
        let inside = if step % 2 == 0 { 0 } else { place(ALIGN - 1) % ALIGN };
        let part = at(&mut memory, inside, length);
        if step % 3 == 0 {
            part.copy_from_slice(&pattern(step as u8, length as u64));
            buffer.write(begin as u64, part).expect("written");
            model[begin..begin + length].copy_from_slice(part);
        } else {
            buffer.read(begin as u64, part).expect("read");
            assert!(*part == model[begin..begin + length], "step {step}: {length} bytes at {begin}");
        }
        assert_eq!(manager.list()[0].tier, 1, "it stays in files");
    }
}

#[test]
fn a_read_that_fails_ends_when_no_disk_can_write_the_memory_any_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let (disk, _manager, buffer) = watched(directory.path(), EngineKind::Best, 5 * CHUNK);
    let mut memory = Vec::new();
    let to = at(&mut memory, 0, 5 * CHUNK);
    *disk.keeps.lock().expect("no panic") = Some(Duration::from_millis(100));
    assert!(matches!(buffer.read(0, to), Err(Error::Store(_))));
    assert!(disk.kept.load(Ordering::Acquire));
    // The disk wrote these bytes just before it dropped the frame.
    assert!(to.iter().all(|byte| *byte == 0xEE));
    to.fill(1);
    std::thread::sleep(Duration::from_millis(200));
    assert!(to.iter().all(|byte| *byte == 1));
}

/// Names the program of its own in which [`a_disk_that_keeps_the_memory_ends_the_process`] runs.
const CHILD: &str = "TERRACE_LENT_CHILD";

#[test]
fn a_disk_that_keeps_the_memory_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let directory = tempfile::tempdir().expect("a directory");
        let (disk, _manager, buffer) = watched(directory.path(), EngineKind::Best, 5 * CHUNK);
        let mut memory = Vec::new();
        *disk.keeps.lock().expect("no panic") = Some(Duration::MAX);
        println!("returned {:?}", buffer.read(0, at(&mut memory, 0, 5 * CHUNK)));
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "lent::a_disk_that_keeps_the_memory_ends_the_process", "--nocapture"]).env(CHILD, "1");
    let ended = command.output().expect("it starts");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
    assert!(told.contains("kept the memory of a caller"), "{told}");
}
