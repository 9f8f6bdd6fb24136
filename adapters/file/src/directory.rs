//! A disk over the files of one directory, accessed through an engine.
//!
//! Promises upward: what [`Disk`] requires; at most one `Directory` has a directory open at a time, in this process and
//! in others, even if its lock file is removed; the `Directory` stays on the directory that it opened, even if the path
//! then names another; it follows no symbolic link in that directory; the engine's threads run tasks after they have
//! delivered completions.
//! Asks from below: an engine, `flock`, `fsync` of a directory.
//!
//! Invariant: each key in `waiting` is the token of one request that the engine has not completed.

mod open_files;
mod parents;

use crate::disk::{Disk, DiskRequest, DiskResponse, ResponseSender, StoreFile};
use crate::engine::{ThreadEngine, UringEngine};
use crate::executor::{Driver, Executor};
use crate::fault::{FileFault, FileFaultReason};
use crate::frame::Frame;
use crate::request::{Completion, CompletionHandler, Engine, IoRequest, Op};
use crate::slab_file::{SlabFile, check_stat, check_trusted, remove_in};
use open_files::OpenFiles;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use terrace_guard::Process;

/// The name of the lock file. It is locked in addition to the directory, because network file systems can lock files
/// only. It is never removed: another process may be waiting for its lock, and would then lock a removed file.
const LOCK: &str = "terrace.lock";

/// The most io_uring requests in flight: 64 requests of 64 KiB keep a disk of 7 GB/s bandwidth and 0.5 ms latency busy.
const RING_DEPTH: u32 = 64;

/// Number of I/O threads where io_uring is not used; each performs one blocking request at a time.
const POOL_THREADS: usize = 16;

/// How long an I/O thread polls tasks before it submits the requests that they made: a tenth of the time for which
/// [`RING_DEPTH`] requests keep the disk busy.
const TASK_TIME: Duration = Duration::from_micros(50);

/// How long to wait for a lock before the directory counts as in use. The previous owner may still be closing: it first
/// completes its copies in flight, and a child process that it has just forked shares the lock until `exec`.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The kind of engine that performs a directory's I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// io_uring if this user may use it, else threads.
    #[default]
    Best,
    /// io_uring; opening fails where it is not available.
    IoUring,
    /// A pool of threads, each in one blocking system call at a time.
    Threads,
}

impl EngineKind {
    /// All, in the order of the words of the setting `engine`.
    pub const ALL: [Self; 3] = [Self::Best, Self::IoUring, Self::Threads];
}

/// An open, locked directory of a store.
pub struct Directory {
    path: PathBuf,
    files: Mutex<OpenFiles>,
    router: Arc<ResponseRouter>,
    /// The I/O engine. Dropped before the locks are released, so that no write is in flight any more by then.
    engine: Arc<dyn Engine>,
    /// The directory, open and locked: files are opened relative to it, and it is synced to make their names durable.
    directory: FileLock,
    _lock: FileLock,
    /// Whether a store of this process has claimed the directory.
    claimed: AtomicBool,
    process: Process,
}

/// Sends each completion of the engine, as a response, to the task that waits for it.
struct ResponseRouter {
    waiting: Mutex<slab::Slab<ResponseSender>>,
    tasks: Executor,
}

impl ResponseRouter {
    fn waiting(&self) -> MutexGuard<'_, slab::Slab<ResponseSender>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompletionHandler for ResponseRouter {
    fn completed(&self, completion: Completion) {
        let reply = self.waiting().try_remove(completion.token as usize);
        if let Some(reply) = reply {
            self.tasks.expect_run();
            // If the receiver is gone, the response is dropped, which returns its frame to the pool.
            let _ = reply.send(DiskResponse { result: completion.result, frame: completion.frame });
        }
    }

    fn run_deferred(&self) -> bool {
        self.tasks.run(TASK_TIME)
    }
}

/// A thread that polls an executor's tasks where no directory's engine does; ends when dropped.
pub struct TaskRunner {
    _engine: Arc<ThreadEngine>,
}

impl TaskRunner {
    /// Spawns the thread.
    ///
    /// # Errors
    /// The error of the system when it cannot create a thread.
    pub fn spawn(tasks: &Executor) -> Result<Self, FileFault> {
        let router = Arc::new(ResponseRouter { waiting: Mutex::default(), tasks: tasks.clone() });
        let engine = ThreadEngine::new(1, router)
            .map_err(|error| FileFault::new("start a thread", "the system", 0, error.raw_os_error().unwrap_or(0)))?;
        let engine = Arc::new(engine);
        tasks.add_driver(Arc::downgrade(&engine) as Weak<dyn Driver>);
        Ok(Self { _engine: engine })
    }
}

impl fmt::Debug for TaskRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRunner").finish_non_exhaustive()
    }
}

impl Directory {
    /// Opens a directory, or creates it; its I/O engine becomes a driver of `tasks`, and polls them.
    ///
    /// # Errors
    /// [`FileFaultReason::Busy`] when another store has the directory open; [`FileFaultReason::Untrusted`] when the
    /// lock file is a symbolic link, has a second hard link (as in a copy of the directory by hard links), or belongs
    /// to another user (as on a file system mounted with a fixed owner); otherwise the error of the failed system call.
    pub fn open(path: &Path, kind: EngineKind, tasks: &Executor) -> Result<Self, FileFault> {
        let name = path.display().to_string();
        let fault = |call, code: Option<i32>| FileFault::new(call, &name, 0, code.unwrap_or(0));
        parents::create(path, &parents::sync).map_err(|error| match error.kind() {
            // The path names something other than a directory.
            std::io::ErrorKind::AlreadyExists => fault("create directory", Some(Errno::NOTDIR.raw_os_error())),
            _ => fault("create directory", error.raw_os_error()),
        })?;
        let refused =
            |call| move |error: Errno| FileFault::new(call, &path.display().to_string(), 0, error.raw_os_error());
        let names = FileLock::new(parents::open(path).map_err(refused("open"))?);
        // seeded: directory_lock: lock_directory(&names.0) => Ok(())
        lock_directory(&names.0).map_err(refused("lock"))?;
        let lock = FileLock::new(open_lock(&names.0, path)?);
        acquire_lock(&lock.0).map_err(refused("lock"))?;
        let router = Arc::new(ResponseRouter { waiting: Mutex::default(), tasks: tasks.clone() });
        let engine = engine(kind, &router).map_err(|error| fault("engine", error.raw_os_error()))?;
        tasks.add_driver(Arc::downgrade(&engine) as Weak<dyn Driver>);
        Ok(Self {
            path: path.into(),
            files: Mutex::default(),
            router,
            engine,
            directory: names,
            _lock: lock,
            claimed: AtomicBool::new(false),
            process: Process::current(),
        })
    }

    /// Bytes that this user may still write to the directory's file system; 0 if unknown.
    pub fn free(&self) -> u64 {
        rustix::fs::fstatvfs(&self.directory.0).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// The name of the I/O engine, for display: `ring` or `threads`.
    pub fn engine(&self) -> &'static str {
        self.engine.name()
    }

    fn slab(&self, file: StoreFile) -> Result<Arc<SlabFile>, FileFault> {
        if let Some(slab) = self.files().get(file) {
            return Ok(slab);
        }
        let name = file.to_string();
        let slab = Arc::new(SlabFile::open_in((self.directory.0.as_fd(), Path::new(&name)), &self.path.join(&name))?);
        self.files().insert(file, slab)
    }

    fn check_linked(&self, file: StoreFile) -> Result<(), FileFault> {
        self.slab(file)?.check_linked((self.directory.0.as_fd(), Path::new(&file.to_string())))
    }

    fn files(&self) -> MutexGuard<'_, OpenFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create(&self, file: StoreFile, bytes: u64) -> Result<(), FileFault> {
        let name = file.to_string();
        let place = (self.directory.0.as_fd(), Path::new(&name));
        let slab = SlabFile::create_in(place, &self.path.join(&name), bytes)?;
        // What had this name before is gone.
        let mut files = self.files();
        files.remove(file);
        files.insert(file, Arc::new(slab)).map(drop)
    }

    fn remove(&self, file: StoreFile) -> Result<(), FileFault> {
        self.files().remove(file);
        let name = file.to_string();
        match remove_in((self.directory.0.as_fd(), Path::new(&name))) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.fault("remove", &self.path.join(name), error.raw_os_error())),
        }
    }

    fn sync_directory(&self) -> Result<(), FileFault> {
        let synced = retry_on_intr(|| rustix::fs::fsync(&self.directory.0));
        synced.map_err(|error| self.fault("sync", &self.path, error.raw_os_error()))
    }

    fn fault(&self, call: &'static str, path: &Path, code: i32) -> FileFault {
        FileFault::new(call, &path.display().to_string(), 0, code)
    }

    fn request(
        &self,
        op: Op,
        (file, offset, bytes): (StoreFile, u64, usize),
        frame: Option<Frame>,
        reply: ResponseSender,
    ) {
        match self.slab(file) {
            Ok(slab) => {
                let token = self.router.waiting().insert(reply) as u64;
                self.engine.submit(vec![IoRequest { token, op, slab, offset, bytes, frame }]);
            }
            Err(fault) => _ = reply.send(DiskResponse { result: Err(fault), frame }),
        }
    }
}

/// A file locked with `flock`. Dropping it unlocks explicitly: closing the file alone would not release the lock while
/// a forked child has it open.
struct FileLock(OwnedFd, Process);

impl FileLock {
    fn new(file: OwnedFd) -> Self {
        Self(file, Process::current())
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.1.is_current() {
            let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
        }
    }
}

/// Locks the directory itself; succeeds without a lock if its file system cannot lock directories.
fn lock_directory(names: &OwnedFd) -> rustix::io::Result<()> {
    match acquire_lock(names) {
        Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::ISDIR) => Ok(()),
        outcome => outcome,
    }
}

/// Opens the lock file, or creates it; fails unless it is a regular file of this user.
fn open_lock(names: &OwnedFd, path: &Path) -> Result<OwnedFd, FileFault> {
    let path = path.join(LOCK);
    let refused = |error: Errno| FileFault::new("open", &path.display().to_string(), 0, error.raw_os_error());
    // `NONBLOCK`: opening must not block if the name belongs to a pipe or a device.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = retry_on_intr(|| rustix::fs::openat(names, LOCK, flags, Mode::RUSR | Mode::WUSR)).map_err(refused)?;
    check_trusted(&lock, &path)?;
    Ok(lock)
}

/// Locks a file, after waiting up to [`LOCK_TIMEOUT`] for another holder. The lock lasts until it is released, or until
/// this process and all children that it forked have closed the file.
fn acquire_lock(lock: &OwnedFd) -> rustix::io::Result<()> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_TIMEOUT => std::thread::sleep(LOCK_TIMEOUT / 200),
            // Report `EBUSY`, because `EWOULDBLOCK` equals `EAGAIN`, which other calls return when the system is out of
            // resources.
            Err(Errno::WOULDBLOCK) => return Err(Errno::BUSY),
            outcome => return outcome,
        }
    }
}

/// Creates an I/O engine of this kind that delivers its completions to `router`.
fn engine(kind: EngineKind, router: &Arc<ResponseRouter>) -> std::io::Result<Arc<dyn Engine>> {
    let sink = || Arc::clone(router) as Arc<dyn CompletionHandler>;
    if kind != EngineKind::Threads {
        match UringEngine::new(RING_DEPTH, sink()) {
            Ok(ring) => return Ok(Arc::new(ring)),
            Err(error) if kind == EngineKind::IoUring => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Arc::new(ThreadEngine::new(POOL_THREADS, sink())?))
}

impl Disk for Directory {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        if !self.process.is_current() {
            return Err(FileFault::forked("list"));
        }
        let refused = |error: Errno| self.fault("list", &self.path, error.raw_os_error());
        let mut files = Vec::new();
        for entry in retry_on_intr(|| Dir::read_from(&self.directory.0)).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            if let Some(file) = entry.file_name().to_str().ok().and_then(StoreFile::from_name) {
                let stat = rustix::fs::statat(&self.directory.0, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                let stat = stat.map_err(refused)?;
                // Reject a file that another user or program may have put here, before its size is used.
                // seeded: listed_own: check_stat(&stat, &self.path.join(file.to_string()))? => ()
                check_stat(&stat, &self.path.join(file.to_string()))?;
                files.push((file, u64::try_from(stat.st_size).unwrap_or(0)));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::Acquire)
    }

    fn release(&self) {
        self.claimed.store(false, Ordering::Release);
    }

    fn has_recovered(&self, fault: &FileFault, bytes: u64) -> bool {
        match fault.reason {
            FileFaultReason::Full => self.free() >= bytes,
            // Descriptors, for example, had run out: they are back if one can be duplicated.
            FileFaultReason::Exhausted => rustix::io::fcntl_dupfd_cloexec(&self.directory.0, 0).is_ok(),
            _ => false,
        }
    }

    fn submit(&self, request: DiskRequest, reply: ResponseSender) {
        if !self.process.is_current() {
            return drop(reply.send(DiskResponse::without_frame(Err(FileFault::forked("submit")))));
        }
        if matches!(request, DiskRequest::Create { .. } | DiskRequest::Remove { .. } | DiskRequest::SyncDirectory) {
            // These requests block this thread for long: first unpark the threads whose results are already there.
            crate::park::flush_wakes();
        }
        let response = match request {
            DiskRequest::Read { file, offset, bytes, frame } => {
                return self.request(Op::Read, (file, offset, bytes), Some(frame), reply);
            }
            DiskRequest::Write { file, offset, bytes, frame } => {
                // Check that the superblock still has its name. Other files are checked when they are synced, but the
                // superblock is written with each commit and synced only with each new log.
                // seeded: superblock_name: file == StoreFile::Superblock => false
                if file == StoreFile::Superblock
                    && let Err(fault) = self.check_linked(file)
                {
                    return drop(reply.send(DiskResponse { result: Err(fault), frame: Some(frame) }));
                }
                return self.request(Op::Write, (file, offset, bytes), Some(frame), reply);
            }
            DiskRequest::Sync { file } => match self.check_linked(file) {
                Ok(()) => return self.request(Op::Sync, (file, 0, 0), None, reply),
                Err(fault) => Err(fault),
            },
            DiskRequest::Create { file, bytes } => self.create(file, bytes),
            DiskRequest::Remove { file } => self.remove(file),
            DiskRequest::SyncDirectory => self.sync_directory(),
        };
        let _ = reply.send(DiskResponse::without_frame(response));
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).field("engine", &self.engine()).finish_non_exhaustive()
    }
}
