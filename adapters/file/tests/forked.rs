//! A forked child has its parent's values but not its threads: dropping them does nothing, and calls fail with the reason.
#![cfg(target_os = "linux")]

mod common;

use common::{PIECE, StoreFixture, open_by, open_with, options};
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, mpsc};
use terrace_file::{
    Change, Completion, CompletionHandler, Directory, Disk, EngineKind, Executor, FileFaultReason, FramePool,
    IoRequest, JoinHandle, Op, PutResult, SlabFile, Store, StoreError, ThreadEngine,
};
use terrace_file::{Engine, UringEngine};
use terrace_tests::hung::in_child;

/// Unfinished puts and commits.
type UnderWay = (Vec<JoinHandle<PutResult>>, Vec<JoinHandle<Result<(), StoreError>>>);

/// Starts what may be in flight when the process forks.
fn under_way(fixture: &StoreFixture, state: &str) -> UnderWay {
    let put = |byte| {
        let mut frame = fixture.frames.take(PIECE).expect("room");
        frame[..PIECE].fill(byte);
        fixture.store.put(frame, PIECE)
    };
    match state {
        "puts" => ((0..50).map(put).collect(), Vec::new()),
        "commits" => {
            let piece = fixture.put(7).expect("room");
            let change = |object| Change::Piece { object, part: 0, piece: Arc::clone(&piece) };
            (Vec::new(), (10..20).map(|object| fixture.store.commit(vec![change(object)])).collect())
        }
        _ => (Vec::new(), Vec::new()),
    }
}

#[test]
fn a_forked_child_drops_a_store_and_nothing_happens() {
    for kind in [EngineKind::IoUring, EngineKind::Threads] {
        for state in ["idle", "puts", "commits"] {
            let directory = tempfile::tempdir().expect("a directory");
            let Some(fixture) = open_by(directory.path(), kind) else { continue };
            fixture.keep(1, 1).expect("room");
            let (frame, part) = (fixture.frames.take(PIECE).expect("room"), fixture.part(1));
            let joins = under_way(&fixture, state);
            let values = (joins, frame, part, fixture);
            let ((puts, commits), frame, part, fixture) = in_child(values, drop);
            drop((frame, part));
            assert!(puts.into_iter().all(|put| put.wait().result.is_ok()), "the parent goes on");
            commits.into_iter().for_each(|commit| commit.wait().expect("the parent goes on"));
            fixture.keep(2, 2).expect("the parent goes on");
            drop(fixture);
            let fixture = open_with(directory.path(), kind, options()).expect("it opens again");
            assert!(fixture.holds(&fixture.part(1), 1) && fixture.holds(&fixture.part(2), 2));
        }
    }
}

fn is_forked<T>(told: Result<T, StoreError>) -> bool {
    matches!(told, Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::Forked)
}

#[test]
fn every_call_on_a_store_says_that_this_is_a_forked_child() {
    for kind in [EngineKind::IoUring, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(fixture) = open_by(directory.path(), kind) else { continue };
        fixture.keep(1, 1).expect("room");
        let values = (fixture.frames.take(PIECE).expect("room"), fixture.part(1), fixture.store.compact(), fixture);
        let values = in_child(values, |(frame, part, pending, fixture)| {
            let StoreFixture { store, frames, disk } = fixture;
            assert!(is_forked(pending.wait()), "begun by the parent");
            assert!(is_forked(store.put(frame, PIECE).wait().result) && is_forked(store.get(&part).wait()));
            assert!(
                is_forked(store.commit(vec![Change::Remove { object: 1 }]).wait()) && is_forked(store.compact().wait())
            );
            assert!(store.objects().is_empty() && store.object(1).is_none() && store.check().is_err());
            assert_eq!((store.stats().disk, frames.usage().0), (0, 0));
            assert!(frames.take(1).is_err());
            assert_eq!(disk.files().err().map(|fault| fault.reason), Some(FileFaultReason::Forked));
            let tasks = Executor::new();
            let other = Store::open(disk, &tasks, &frames, options());
            assert!(tasks.run(std::time::Duration::MAX) && other.wait().is_err(), "with what the parent opened");
            // A directory of the child's own works.
            let own = tempfile::tempdir().expect("a directory");
            open_with(own.path(), kind, options()).expect("it opens").keep(1, 1).expect("room");
        });
        values.2.wait().expect("the parent goes on");
    }
}

#[test]
fn a_forked_child_that_lives_on_does_not_lock_the_directory() {
    for kind in [EngineKind::IoUring, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(fixture) = open_by(directory.path(), kind) else { continue };
        fixture.keep(1, 1).expect("room");
        let (mut ended, end) = std::io::pipe().expect("a pipe");
        // SAFETY: the child takes no lock that another thread of the parent may hold, and ends below.
        let child = match unsafe { libc::fork() } {
            0 => {
                drop(end);
                // SAFETY: ends the child if it hangs.
                unsafe { libc::alarm(60) };
                let _ = ended.read(&mut [0]);
                // SAFETY: ends this process without running the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            child => child,
        };
        drop(fixture);
        let again = open_with(directory.path(), kind, options()).expect("the child has it not");
        assert!(again.holds(&again.part(1), 1));
        drop(end);
        // SAFETY: waits for our own child, and reads no status.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }
}

#[test]
fn where_nothing_may_be_looked_at_a_directory_is_denied() {
    let above = tempfile::tempdir().expect("a directory");
    in_child(above, |above| {
        std::env::set_current_dir(above.path()).expect("it is there");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(above.path(), mode).expect("it is ours");
        // SAFETY: the child has one thread, and ends as that user. The call fails for a user who is no superuser.
        unsafe { libc::setresuid(65534, 65534, 65534) };
        for path in ["store", ".", "a/b", "../x/.."] {
            let opened = Directory::open(Path::new(path), EngineKind::Threads, &Executor::new());
            assert_eq!(opened.map(drop).map_err(|fault| fault.reason), Err(FileFaultReason::Denied), "{path}");
        }
    });
}

struct Told(mpsc::Sender<Completion>);

impl CompletionHandler for Told {
    fn completed(&self, completion: Completion) {
        let _ = self.0.send(completion);
    }
}

#[test]
fn an_engine_answers_in_a_forked_child_and_is_dropped_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let slab = Arc::new(SlabFile::create(&directory.path().join("slab"), 1 << 20).expect("a file"));
    let (told, tell) = mpsc::channel();
    let sink = || Arc::new(Told(told.clone()));
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(ThreadEngine::new(3, sink()).expect("threads"))];
    engines.extend(UringEngine::new(4, sink()).ok().map(|ring| Box::new(ring) as Box<dyn Engine>));
    let frames = FramePool::new(2 << 20).expect("memory");
    for engine in engines {
        let request = |token| {
            let frame = Some(frames.take(4096).expect("room"));
            IoRequest { token, op: Op::Write, slab: Arc::clone(&slab), offset: 0, bytes: 4096, frame }
        };
        engine.submit(vec![request(1)]);
        let (engine, _, tell) = in_child((engine, vec![request(2)], &tell), |(engine, requests, tell)| {
            engine.wake();
            engine.submit(requests);
            // The parent's request may have completed before the fork.
            let refused = tell.try_iter().find(|completion| completion.token == 2).expect("it is answered");
            assert_eq!(refused.result.expect_err("not here").reason, FileFaultReason::Forked);
            drop(engine);
        });
        assert_eq!(tell.recv().expect("answered").result.expect("written"), 4096);
        drop(engine);
        assert!(tell.try_recv().is_err(), "nothing came of what the child did");
    }
}

#[test]
fn a_forked_child_runs_no_task_of_its_parent_and_begins_none() {
    let tasks = Executor::new();
    let values = in_child((tasks.spawn(async { 1 }), tasks.clone()), |(pending, tasks)| {
        assert!(!tasks.is_own() && tasks.ready() == 0 && !tasks.run_one(0));
        let begun = tasks.spawn(async { 2 });
        assert_eq!((begun.in_child(|| 3).wait(), pending.in_child(|| 4).wait(), tasks.ready()), (3, 4, 0));
    });
    assert!(tasks.is_own() && tasks.ready() == 1 && tasks.run(std::time::Duration::MAX));
    assert_eq!(values.0.wait(), 1);
}
