//! Both engines on real files: they move every byte, complete every request once, and leave no thread behind.
#![cfg(target_os = "linux")]

use rustix::fs::{AtFlags, StatxFlags};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};
use terrace_file::{
    ALIGN, Completion, CompletionHandler, Driver, Engine, Executor, FileFaultReason, Frame, FramePool, IoRequest, Op,
    SlabFile, ThreadEngine, UringEngine, perform,
};

/// Collects completions for a test.
#[derive(Default)]
struct CompletionQueue {
    done: Mutex<Vec<Completion>>,
    some: Condvar,
}

impl CompletionHandler for CompletionQueue {
    fn completed(&self, completion: Completion) {
        self.done.lock().expect("no panic").push(completion);
        self.some.notify_one();
    }
}

impl CompletionQueue {
    /// Waits for `count` completions.
    fn take(&self, count: usize) -> Vec<Completion> {
        let mut done = self.done.lock().expect("no panic");
        while done.len() < count {
            let (next, late) = self.some.wait_timeout(done, Duration::from_secs(60)).expect("no panic");
            assert!(!late.timed_out(), "{} of {count} completions", next.len());
            done = next;
        }
        std::mem::take(&mut *done)
    }
}

/// Makes an engine.
type Make = fn(Arc<dyn CompletionHandler>) -> std::io::Result<Box<dyn Engine>>;

/// Runs a test on both engines; skips io_uring if this user may not use it.
fn both(test: impl Fn(&dyn Engine, &CompletionQueue, &Path)) {
    let engines: [Make; 2] = [
        |sink| Ok(Box::new(ThreadEngine::new(3, sink)?)),
        // Eight in flight: further requests wait.
        |sink| Ok(Box::new(UringEngine::new(8, sink)?)),
    ];
    for make in engines {
        let directory = tempfile::tempdir().expect("a directory");
        let completions = Arc::new(CompletionQueue::default());
        match make(Arc::clone(&completions) as Arc<dyn CompletionHandler>) {
            Ok(engine) => {
                println!("engine {}", engine.name());
                test(&*engine, &completions, directory.path());
            }
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}

fn slab(directory: &Path, bytes: u64) -> Arc<SlabFile> {
    Arc::new(SlabFile::create(&directory.join("slab"), bytes).expect("a file"))
}

fn request(token: u64, op: Op, slab: &Arc<SlabFile>, offset: u64, bytes: usize, frame: Option<Frame>) -> IoRequest {
    IoRequest { token, op, slab: Arc::clone(slab), offset, bytes, frame }
}

#[test]
fn what_was_written_is_read_and_every_request_is_answered_once() {
    both(|engine, completions, directory| {
        let (slab, frames) = (slab(directory, 8 << 20), FramePool::new(16 << 20).expect("memory"));
        const PIECE: usize = 64 << 10;
        let writes = (0..128u64).map(|at| {
            let mut frame = frames.take(PIECE).expect("room");
            frame.fill(at as u8 + 1);
            request(at, Op::Write, &slab, at * PIECE as u64, PIECE, Some(frame))
        });
        engine.submit(writes.collect());
        let written = completions.take(128);
        assert_eq!(written.iter().map(|done| done.token).collect::<BTreeSet<_>>().len(), 128);
        engine.submit(vec![request(500, Op::Sync, &slab, 0, 0, None)]);
        assert!(matches!(&completions.take(1)[..], [Completion { token: 500, result: Ok(0), frame: None }]));
        let reads = written.into_iter().map(|done| {
            assert_eq!(done.result, Ok(PIECE));
            let mut frame = done.frame.expect("the frame comes back");
            frame.fill(0);
            request(done.token, Op::Read, &slab, done.token * PIECE as u64, PIECE, Some(frame))
        });
        engine.submit(reads.collect());
        for done in completions.take(128) {
            assert_eq!(done.result, Ok(PIECE));
            let frame = done.frame.expect("the frame comes back");
            assert!(frame.iter().all(|&byte| byte == done.token as u8 + 1), "piece {}", done.token);
        }
        assert_eq!(frames.usage().0, 0, "all frames are back");
    });
}

#[test]
fn reads_past_the_end_are_short_and_bad_requests_are_refused() {
    both(|engine, completions, directory| {
        let (slab, frames) = (slab(directory, 64 << 10), FramePool::new(1 << 20).expect("memory"));
        let frame = || Some(frames.take(32 << 10).expect("room"));
        engine.submit(vec![
            request(0, Op::Read, &slab, 48 << 10, 32 << 10, frame()),
            request(1, Op::Read, &slab, 1 << 20, 32 << 10, frame()),
            request(2, Op::Read, &slab, 0, (32 << 10) + ALIGN, frame()),
            request(3, Op::Write, &slab, 0, 512, None),
        ]);
        let mut done = completions.take(4);
        done.sort_by_key(|done| done.token);
        assert_eq!((&done[0].result, &done[1].result), (&Ok(16 << 10), &Ok(0)), "up to the end, and beyond it");
        for refused in &done[2..] {
            let fault = refused.result.as_ref().expect_err("it leaves its frame, or has none");
            assert_eq!((fault.call, fault.reason), ("request", FileFaultReason::Unsupported), "{fault}");
        }
        let told = std::fs::read_dir(directory).expect("ours").next().expect("the slab's file").expect("a file");
        let told =
            rustix::fs::statx(rustix::fs::CWD, told.path(), AtFlags::empty(), StatxFlags::DIOALIGN).expect("a file");
        if told.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
            assert_eq!(
                slab.is_direct(),
                told.stx_dio_offset_align > 0,
                "direct wherever the system says that it can be"
            );
        }
        if slab.is_direct() {
            engine.submit(vec![request(4, Op::Read, &slab, 1, 32 << 10, frame())]);
            let misaligned = completions.take(1).remove(0).result.expect_err("direct I/O is aligned");
            assert_eq!((misaligned.call, misaligned.offset), ("request", 1), "{misaligned}");
        }
    });
}

#[test]
fn what_a_thread_kept_for_itself_is_done_when_it_leaves() {
    let (directory, completions, tasks) =
        (tempfile::tempdir().expect("a directory"), Arc::<CompletionQueue>::default(), Executor::new());
    let engine =
        Arc::new(ThreadEngine::new(1, Arc::clone(&completions) as Arc<dyn CompletionHandler>).expect("a thread"));
    tasks.add_driver(Arc::downgrade(&engine) as Weak<dyn Driver>);
    let (slab, frames) = (slab(directory.path(), 64 << 10), FramePool::new(1 << 20).expect("memory"));
    tasks.block_on(|| {
        engine.submit(vec![request(7, Op::Read, &slab, 0, ALIGN, frames.take(ALIGN).ok())]);
        std::future::ready(())
    });
    assert_eq!(completions.take(1)[0].token, 7);
}

#[test]
fn dropping_an_engine_answers_what_was_asked_first() {
    let directory = tempfile::tempdir().expect("a directory");
    let (slab, frames) = (slab(directory.path(), 8 << 20), FramePool::new(16 << 20).expect("memory"));
    let makers: [Make; 2] =
        [|sink| Ok(Box::new(ThreadEngine::new(2, sink)?)), |sink| Ok(Box::new(UringEngine::new(4, sink)?))];
    for make in makers {
        let completions = Arc::new(CompletionQueue::default());
        let Ok(engine) = make(Arc::clone(&completions) as Arc<dyn CompletionHandler>) else { continue };
        let frame = || Some(frames.take(64 << 10).expect("room"));
        engine.submit((0..100).map(|at| request(at, Op::Write, &slab, at << 16, 64 << 10, frame())).collect());
        drop(engine);
        assert_eq!(completions.done.lock().expect("no panic").len(), 100, "before its threads are gone");
    }
}

/// Number of this process's threads that engines spawned.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the system tells").filter_map(Result::ok);
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("terrace-")).count()
}

#[test]
fn an_idle_engine_takes_no_time_and_leaves_no_thread() {
    // In a process of its own, because other tests have engines too.
    const VARIABLE: &str = "TERRACE_TEST_IDLE_ENGINES";
    if std::env::var_os(VARIABLE).is_none() {
        let child = std::process::Command::new(std::env::current_exe().expect("our own path"))
            .args(["--exact", "engines::an_idle_engine_takes_no_time_and_leaves_no_thread"])
            .env(VARIABLE, "1")
            .output()
            .expect("our own program runs");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        return;
    }
    both(|engine, completions, directory| {
        let (slab, frames) = (slab(directory, 64 << 10), FramePool::new(1 << 20).expect("memory"));
        let frame = Some(frames.take(64 << 10).expect("room"));
        engine.submit(vec![request(0, Op::Write, &slab, 0, 64 << 10, frame)]);
        completions.take(1);
        assert!(threads() > 0);
        let (before, begun) = (switches(), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        // Count context switches, not time, which a busy machine distorts: a thread that sleeps has none.
        let woken = switches() - before;
        assert!(woken <= 10, "{woken} switches in {:?}", begun.elapsed());
    });
    assert_eq!(threads(), 0);
}

/// Context switches of the engines' threads.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the system tells").filter_map(Result::ok);
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let engines = status.filter(|text| text.starts_with("Name:\tterrace-"));
    let count = |text: String| -> u64 {
        let lines = text.lines().filter(|line| line.contains("ctxt_switches"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    engines.map(count).sum()
}

#[test]
fn files_that_cannot_be_are_errors_that_say_why_and_leave_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("slab");
    let absent = SlabFile::create(&directory.path().join("absent/slab"), 4096).expect_err("no such directory");
    assert!(absent.to_string().contains("absent/slab"), "{absent}");
    let full = SlabFile::create(&path, 1 << 60).expect_err("no disk has an exbibyte");
    assert!(
        matches!(
            full.reason,
            FileFaultReason::Full | FileFaultReason::TooLarge | FileFaultReason::Unsupported | FileFaultReason::Other
        ),
        "{full:?}"
    );
    assert!(!path.exists(), "nothing is left behind");
    let first = SlabFile::create(&path, 1 << 20).expect("a file");
    let twice = SlabFile::create(&path, 1 << 20).expect_err("it is there");
    assert_eq!(twice.reason, FileFaultReason::Exists, "{twice}");
    drop(first);
    let again = SlabFile::open(&path).expect("it is there");
    assert_eq!(again.bytes(), 1 << 20);
    assert!(SlabFile::open(&directory.path().join("other")).is_err());
}

#[test]
fn one_request_on_this_thread() {
    let directory = tempfile::tempdir().expect("a directory");
    let (slab, frames) = (slab(directory.path(), 1 << 20), FramePool::new(1 << 20).expect("memory"));
    let mut frame = frames.take(4096).expect("room");
    frame.fill(0xa5);
    let done = perform(request(7, Op::Write, &slab, 8192, 4096, Some(frame)));
    assert_eq!((done.token, done.result), (7, Ok(4096)));
    let mut frame = done.frame.expect("it comes back");
    frame.fill(0);
    let done = perform(request(8, Op::Read, &slab, 8192, 4096, Some(frame)));
    assert!(done.result == Ok(4096) && done.frame.expect("it comes back").iter().all(|&byte| byte == 0xa5));
}
