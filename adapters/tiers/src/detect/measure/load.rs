//! Keeps a fixed number of requests in flight until the time or the work is over.
//!
//! Promises upward: `depth` requests are in flight while there is more work; none is when [`run`] returns.
//! Asks from below: an engine. The completion of a request submits the next one, which costs no wake-up.

use super::splitmix64;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use terrace_file::{
    Completion, CompletionHandler, Engine, FileFault, FileFaultReason, Frame, FramePool, IoRequest, Op, SlabFile,
    ThreadEngine, UringEngine,
};

/// A series of I/O requests to run.
pub(super) struct Workload {
    pub op: Op,
    pub slab: Arc<SlabFile>,
    /// Bytes of each request.
    pub bytes: usize,
    /// Offsets of the requests in the file, in order of submission.
    pub offsets: VecDeque<u64>,
    /// Number of requests in flight at once.
    pub depth: u32,
    /// How long requests are submitted.
    pub time: Duration,
}

/// Figures of a finished workload.
pub(super) struct WorkloadResult {
    /// Number of completed requests.
    pub done: u64,
    pub elapsed: Duration,
    /// Name of the engine.
    pub engine: &'static str,
}

struct LoadGenerator {
    state: Mutex<State>,
    over: Condvar,
    /// Weak, because the engine owns this handler: a strong reference would close a cycle.
    engine: OnceLock<Weak<dyn Engine>>,
}

struct State {
    work: Workload,
    /// Number of requests in flight and of completions being handled. `run` drops the engine only when this is 0: if a
    /// completion handler dropped the last reference, a thread of the engine would have to join itself.
    busy: u32,
    /// Whether a request was submitted.
    begun: bool,
    done: u64,
    until: Instant,
    fault: Option<FileFault>,
    /// State of the generator that makes each written block unique, as some disks and file systems deduplicate.
    salt: u64,
}

impl LoadGenerator {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the next request, with this frame as its memory; `None` if the workload is over.
    fn next(&mut self, mut frame: Frame) -> Option<IoRequest> {
        // The first request is submitted even if the time was over before this thread got the lock.
        let late = self.begun && Instant::now() >= self.until;
        if self.fault.is_some() || late {
            return None;
        }
        let offset = self.work.offsets.pop_front()?;
        if self.work.op == Op::Write {
            for block in frame.chunks_exact_mut(4096) {
                block[..8].copy_from_slice(&splitmix64(&mut self.salt).to_ne_bytes());
            }
        }
        (self.busy, self.begun) = (self.busy + 1, true);
        let (op, slab, bytes) = (self.work.op, Arc::clone(&self.work.slab), self.work.bytes);
        Some(IoRequest { token: offset, op, slab, offset, bytes, frame: Some(frame) })
    }

    fn took(&mut self, offset: u64, result: Result<usize, FileFault>) {
        match result {
            Ok(moved) if moved == self.work.bytes => self.done += 1,
            Ok(_) => {
                let (call, file) = ("measure", self.work.slab.name().to_owned());
                self.fault = Some(FileFault { call, file, offset, code: 0, reason: FileFaultReason::UnexpectedEnd });
            }
            Err(fault) => self.fault = Some(fault),
        }
    }
}

impl CompletionHandler for LoadGenerator {
    fn completed(&self, completion: Completion) {
        let mut state = self.state();
        state.took(completion.token, completion.result);
        let next = completion.frame.and_then(|frame| state.next(frame));
        drop(state);
        if let (Some(request), Some(engine)) = (next, self.engine.get().and_then(Weak::upgrade)) {
            engine.submit(vec![request]);
        }
        // The handler's reference to the engine was dropped above, so `run` may drop the last one now.
        self.state().busy -= 1;
        self.over.notify_all();
    }
}

/// Starts an io_uring engine, or an engine of threads if the system refuses io_uring.
fn engine(depth: u32, sink: Arc<LoadGenerator>) -> std::io::Result<Arc<dyn Engine>> {
    match UringEngine::new(depth, sink.clone()) {
        Ok(ring) => Ok(Arc::new(ring)),
        Err(_) => Ok(Arc::new(ThreadEngine::new(depth as usize, sink)?)),
    }
}

/// Runs a workload until it is over. Writes write the bytes of the frames, with a unique number put into each block.
pub(super) fn run(work: Workload, frames: &FramePool) -> Result<WorkloadResult, super::DiskMeasureError> {
    run_on(engine, work, frames)
}

fn run_on(
    engine: impl FnOnce(u32, Arc<LoadGenerator>) -> std::io::Result<Arc<dyn Engine>>,
    work: Workload,
    frames: &FramePool,
) -> Result<WorkloadResult, super::DiskMeasureError> {
    let depth = work.depth;
    let memory: Vec<Frame> = (0..depth).map(|_| frames.take(work.bytes)).collect::<Result<_, _>>()?;
    let until = Instant::now() + work.time;
    let state = State { work, busy: 0, begun: false, done: 0, until, fault: None, salt: 1 };
    let load = Arc::new(LoadGenerator { state: Mutex::new(state), over: Condvar::new(), engine: OnceLock::new() });
    let engine = engine(depth, Arc::clone(&load))?;
    let _ = load.engine.set(Arc::downgrade(&engine));
    let begin = Instant::now();
    let mut state = load.state();
    state.until = begin + state.work.time;
    let first: Vec<IoRequest> = memory.into_iter().map_while(|frame| state.next(frame)).collect();
    drop(state);
    engine.submit(first);
    let busy = |state: &mut State| state.busy > 0;
    let mut state = load.over.wait_while(load.state(), busy).unwrap_or_else(PoisonError::into_inner);
    let elapsed = begin.elapsed();
    match state.fault.take() {
        Some(fault) => Err(fault.into()),
        None => Ok(WorkloadResult { done: state.done, elapsed, engine: engine.name() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::measure::DiskMeasureError;

    const BLOCK: usize = 4096;

    fn work(op: Op, blocks: u64, time: Duration) -> (tempfile::TempDir, Workload) {
        let here = tempfile::tempdir().expect("a folder");
        let slab = SlabFile::create(&here.path().join("slab"), 64 * BLOCK as u64).expect("a file");
        let offsets = (0..blocks).map(|block| block * BLOCK as u64).collect();
        (here, Workload { op, slab: Arc::new(slab), bytes: BLOCK, offsets, depth: 4, time })
    }

    /// Runs a workload on the system's best engine and on the engine of threads, none of which may drop that engine.
    fn on_both(op: Op, blocks: u64, time: Duration) -> [Result<WorkloadResult, DiskMeasureError>; 2] {
        let frames = FramePool::new(1 << 20).expect("memory");
        let (_here, first) = work(op, blocks, time);
        let (_there, second) = work(op, blocks, time);
        let threads = |_, sink: Arc<LoadGenerator>| -> std::io::Result<Arc<dyn Engine>> {
            Ok(Arc::new(ThreadEngine::new(3, sink)?))
        };
        let both = [run(first, &frames), run_on(threads, second, &frames)];
        assert_eq!(frames.usage().0, 0, "all memory is back");
        both
    }

    #[test]
    fn all_is_done_where_there_is_time_and_one_where_there_is_none() {
        let day = Duration::from_secs(86_400);
        for (op, blocks) in [(Op::Write, 64), (Op::Read, 64), (Op::Read, 3), (Op::Read, 0)] {
            let done = on_both(op, blocks, day).map(|outcome| outcome.expect("it is a good file").done);
            assert_eq!(done, [blocks; 2], "{op:?}");
        }
        let done = on_both(Op::Write, 64, Duration::ZERO).map(|outcome| outcome.expect("it is a good file").done);
        assert_eq!(done, [1; 2]);
        let engine = on_both(Op::Read, 1, day)[1].as_ref().map(|outcome| outcome.engine).ok();
        assert_eq!(engine, Some("threads"));
    }

    #[test]
    fn what_is_not_there_is_a_fault_and_ends_it() {
        for outcome in on_both(Op::Read, 1000, Duration::from_secs(86_400)) {
            let Err(DiskMeasureError::File(fault)) = outcome else { panic!("the file has 64 blocks") };
            // Requests that were in flight beside the first failed one may fail too; after it none is submitted.
            let block = fault.offset / BLOCK as u64;
            assert!(fault.reason == FileFaultReason::UnexpectedEnd && (64..80).contains(&block), "{fault}");
        }
    }

    #[test]
    fn no_two_blocks_that_are_written_are_the_same() {
        let frames = FramePool::new(1 << 20).expect("memory");
        let (here, work) = work(Op::Write, 64, Duration::from_secs(86_400));
        run(work, &frames).expect("it is a good file");
        let written = std::fs::read(here.path().join("slab")).expect("a file");
        let blocks: std::collections::HashSet<&[u8]> = written.chunks(BLOCK).collect();
        assert_eq!(blocks.len(), 64);
    }
}
