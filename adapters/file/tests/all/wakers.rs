//! Wakers that use or own what wakes them, or panic: they are cloned, replaced, run and dropped with no lock held, and the panic
//! of one does not keep others from being woken.
#![cfg(target_os = "linux")]

use crate::common;

use common::{PIECE, open_by, open_with, options};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use terrace_file::{EngineKind, FramePool};
use terrace_tests::hung::bounded;
use terrace_tests::waker::{Call, waker};

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Bytes of a pool that the test takes whole, so that others wait.
const ALL: usize = 2 << 20;

#[test]
fn wakers_of_waiters_for_a_frame_may_take_and_return_frames() {
    bounded(|| {
        let frames = FramePool::new(ALL).expect("memory");
        let acts = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let (pool, count) = (frames.clone(), Arc::clone(&acts));
        let waker = || {
            let (pool, count) = (pool.clone(), Arc::clone(&count));
            waker(move |act| {
                count[act as usize].fetch_add(1, Ordering::Relaxed);
                let (used, all) = pool.usage();
                // This frame returns at once, which wakes other waiters.
                assert!(used <= all && pool.take(1).is_ok() == (used < all));
            })
        };
        let held = frames.take(ALL).expect("all of it");
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(frames.wait(ALL))).collect();
        for wait in &mut waits {
            assert!(poll(wait, &waker()).is_pending());
            // Replaces the first waker, which is dropped.
            assert!(poll(wait, &waker()).is_pending());
        }
        drop(waits.pop());
        drop(held);
        assert!(matches!(poll(&mut waits[1], &waker()), Poll::Ready(Ok(_))));
        drop(waits);
        let acts = acts.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert!(acts.iter().all(|count| *count > 1), "{acts:?}");
    });
}

#[test]
fn a_waker_that_panics_is_the_only_one_that_is_not_woken() {
    for bad in [Call::Wake, Call::Drop] {
        bounded(move || {
            let frames = FramePool::new(ALL).expect("memory");
            let held = frames.take(ALL).expect("all of it");
            let woken = Arc::new(AtomicUsize::new(0));
            let mut waits: Vec<_> = (0..5).map(|_| Box::pin(frames.wait(ALL))).collect();
            for (at, wait) in waits.iter_mut().enumerate() {
                let woken = Arc::clone(&woken);
                let armed = Arc::new(AtomicUsize::new(0));
                let waker = waker(move |act| match act {
                    Call::Wake if bad == Call::Wake && at % 2 == 0 => panic!("in a waker, on purpose"),
                    Call::Wake => _ = woken.fetch_add(1, Ordering::Relaxed),
                    // The last waker, which the pool stores.
                    Call::Drop if bad == Call::Drop && at == 4 && armed.fetch_add(1, Ordering::Relaxed) == 1 => {
                        panic!("in a waker, on purpose")
                    }
                    _ => {}
                });
                assert!(poll(wait, &waker).is_pending());
            }
            if bad == Call::Drop {
                drop(waits.pop());
            }
            drop(held);
            assert_eq!(woken.load(Ordering::Relaxed), if bad == Call::Wake { 2 } else { 4 });
            for mut wait in waits {
                assert!(matches!(poll(&mut wait, Waker::noop()), Poll::Ready(Ok(_))));
            }
        });
    }
}

/// Owns a value until it is woken.
struct Owner<T>(Mutex<Option<T>>, mpsc::Sender<()>);

impl<T: Send> Wake for Owner<T> {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("no panic").take());
        let _ = self.1.send(());
    }
}

#[test]
fn a_waker_of_a_stores_future_may_own_the_store() {
    for kind in [EngineKind::IoUring, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(fixture) = open_by(directory.path(), kind) else { continue };
        let frame = fixture.frames.take(PIECE).expect("room");
        let mut put = fixture.store.put(frame, PIECE);
        let (woken, wake) = mpsc::channel();
        let waker = Waker::from(Arc::new(Owner(Mutex::new(Some(fixture)), woken)));
        if poll(&mut put, &waker).is_pending() {
            wake.recv().expect("it ends");
        }
        drop(waker);
        drop(put);
        // The waker has dropped its store: another store can have the directory.
        open_with(directory.path(), kind, options()).expect("it opens again").keep(1, 1).expect("room");
    }
}

#[test]
fn a_waker_that_panics_at_the_end_of_a_task_takes_neither_the_task_nor_its_thread_along() {
    for kind in [EngineKind::IoUring, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(fixture) = open_by(directory.path(), kind) else { continue };
        let (woken, wake) = mpsc::channel();
        for _ in 0..40 {
            let woken = woken.clone();
            let waker = waker(move |act| {
                if act == Call::Wake {
                    let _ = woken.send(());
                    panic!("in a waker, on purpose");
                }
            });
            let mut put = fixture.store.put(fixture.frames.take(PIECE).expect("room"), PIECE);
            let mut polled = poll(&mut put, &waker);
            if polled.is_pending() {
                wake.recv().expect("it is woken all the same");
                polled = poll(&mut put, Waker::noop());
            }
            assert!(matches!(polled, Poll::Ready(put) if put.result.is_ok()));
        }
        fixture.keep(1, 1).expect("all threads are there");
    }
}
