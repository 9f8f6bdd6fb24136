//! A disk that is there: files of one directory, read and written through an engine.
//!
//! Promises upward: as [`Disk`]; one directory has one `Directory` at a time, in this process and in others, whatever is done to
//! its lock file; it keeps to the directory that it opened, whatever has that name later; no link is followed in it; tasks are run on the engine's threads, after what came has been told.
//! Asks from below: an engine, `flock`, `fsync` of a directory.
//!
//! Invariant: a key in `waiting` is the token of one request that the engine has.

mod parents;

use crate::disk::{Answer, Disk, File, Order, Reply};
use crate::engine::{Ring, Threads};
use crate::fault::{FileFault, Reason};
use crate::frame::Frame;
use crate::request::{Completion, Engine, Op, Request, Sink};
use crate::slab::{Slab, check_own, check_stat, remove_in};
use crate::task::{Driver, Tasks};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use terrace_guard::Process;

/// The file whose lock says that a directory is in use, as the lock of the directory itself does: file systems over a network
/// lock files only. The file is never removed: another process may wait for its lock.
const LOCK: &str = "terrace.lock";

/// Requests on their way at once: 64 of 64 KiB keep a disk of 7 GB/s and 0.5 ms busy.
const DEPTH: u32 = 64;

/// Threads where there is no ring: each waits for one request.
const THREADS: usize = 16;

/// Tasks run for so long before what they asked for goes to the disk: a tenth of what 64 requests keep it busy for.
const TURN: Duration = Duration::from_micros(50);

/// A directory is in use only when it still is after so long. Who had it may just have gone: copies that were under way end
/// first, and a process that is being made has its parent's files until it runs its own program.
const PATIENCE: Duration = Duration::from_secs(1);

/// Which engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The ring where this user may have it, else threads.
    #[default]
    Best,
    /// The ring.
    Ring,
    /// Threads.
    Threads,
}

/// A directory that is open.
pub struct Directory {
    path: PathBuf,
    files: Mutex<HashMap<File, Arc<Slab>>>,
    mail: Arc<Mail>,
    /// Dropped before the locks: then nothing is written any more.
    engine: Arc<dyn Engine>,
    /// Of the directory itself: files are found from here, and names are synced.
    names: Locked,
    _lock: Locked,
    /// Whether a store has it.
    claimed: AtomicBool,
    process: Process,
}

/// Where completions go.
struct Mail {
    waiting: Mutex<slab::Slab<Reply>>,
    tasks: Tasks,
}

impl Mail {
    fn waiting(&self) -> MutexGuard<'_, slab::Slab<Reply>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Mail {
    fn completed(&self, completion: Completion) {
        let reply = self.waiting().try_remove(completion.token as usize);
        if let Some(reply) = reply {
            self.tasks.expect();
            // Nobody waits any more: the memory goes back.
            let _ = reply.send(Answer { result: completion.result, frame: completion.frame });
        }
    }

    fn settle(&self) -> bool {
        self.tasks.run(TURN)
    }
}

/// A thread that runs tasks, where there is no directory whose engine does. Dropped, it ends.
pub struct Worker {
    _engine: Arc<Threads>,
}

impl Worker {
    /// Begins to run them.
    ///
    /// # Errors
    /// The system's, for threads.
    pub fn begin(tasks: &Tasks) -> Result<Self, FileFault> {
        let mail = Arc::new(Mail { waiting: Mutex::default(), tasks: tasks.clone() });
        let engine = Threads::new(1, mail)
            .map_err(|error| FileFault::new("start a thread", "the system", 0, error.raw_os_error().unwrap_or(0)))?;
        let engine = Arc::new(engine);
        tasks.driven_by(Arc::downgrade(&engine) as Weak<dyn Driver>);
        Ok(Self { _engine: engine })
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Directory {
    /// Opens a directory, which is made if it is not there. `tasks` are run by its engine from now on.
    ///
    /// # Errors
    /// The system's; [`Reason::Busy`](crate::Reason::Busy) when another store has it; [`Reason::Untrusted`](crate::Reason::Untrusted)
    /// when its lock file is a link, has another name, or is another user's: so in a directory that was copied by hard links,
    /// or lies on a file system that shows every file as another user's.
    pub fn open(path: &Path, kind: EngineKind, tasks: &Tasks) -> Result<Self, FileFault> {
        let name = path.display().to_string();
        let fault = |call, code: Option<i32>| FileFault::new(call, &name, 0, code.unwrap_or(0));
        parents::make(path, &parents::sync).map_err(|error| match error.kind() {
            // Of that name there is something else.
            std::io::ErrorKind::AlreadyExists => fault("create directory", Some(Errno::NOTDIR.raw_os_error())),
            _ => fault("create directory", error.raw_os_error()),
        })?;
        let told =
            |call| move |error: Errno| FileFault::new(call, &path.display().to_string(), 0, error.raw_os_error());
        let names = Locked::new(parents::open(path).map_err(told("open"))?);
        // seeded: directory_lock: lock_directory(&names.0) => Ok(())
        lock_directory(&names.0).map_err(told("lock"))?;
        let lock = Locked::new(open_lock(&names.0, path)?);
        take(&lock.0).map_err(told("lock"))?;
        let mail = Arc::new(Mail { waiting: Mutex::default(), tasks: tasks.clone() });
        let engine = engine(kind, &mail).map_err(|error| fault("engine", error.raw_os_error()))?;
        tasks.driven_by(Arc::downgrade(&engine) as Weak<dyn Driver>);
        Ok(Self {
            path: path.into(),
            files: Mutex::default(),
            mail,
            engine,
            names,
            _lock: lock,
            claimed: AtomicBool::new(false),
            process: Process::current(),
        })
    }

    /// Bytes that this user may still write there; 0 where the system does not say.
    pub fn free(&self) -> u64 {
        rustix::fs::fstatvfs(&self.names.0).map_or(0, |told| told.f_bavail.saturating_mul(told.f_frsize))
    }

    /// The engine's name, for people.
    pub fn engine(&self) -> &'static str {
        self.engine.name()
    }

    fn slab(&self, file: File) -> Result<Arc<Slab>, FileFault> {
        if let Some(slab) = self.files().get(&file) {
            return Ok(Arc::clone(slab));
        }
        let name = file.to_string();
        let slab = Arc::new(Slab::open_in((self.names.0.as_fd(), Path::new(&name)), &self.path.join(&name))?);
        Ok(Arc::clone(self.files().entry(file).or_insert(slab)))
    }

    fn has_name(&self, file: File) -> Result<(), FileFault> {
        self.slab(file)?.has_name((self.names.0.as_fd(), Path::new(&file.to_string())))
    }

    fn files(&self) -> MutexGuard<'_, HashMap<File, Arc<Slab>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create(&self, file: File, bytes: u64) -> Result<(), FileFault> {
        let name = file.to_string();
        let place = (self.names.0.as_fd(), Path::new(&name));
        let slab = Slab::create_in(place, &self.path.join(&name), bytes)?;
        self.files().insert(file, Arc::new(slab));
        Ok(())
    }

    fn remove(&self, file: File) -> Result<(), FileFault> {
        self.files().remove(&file);
        let name = file.to_string();
        match remove_in((self.names.0.as_fd(), Path::new(&name))) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.fault("remove", &self.path.join(name), error.raw_os_error())),
        }
    }

    fn sync_names(&self) -> Result<(), FileFault> {
        let synced = retry_on_intr(|| rustix::fs::fsync(&self.names.0));
        synced.map_err(|error| self.fault("sync", &self.path, error.raw_os_error()))
    }

    fn fault(&self, call: &'static str, path: &Path, code: i32) -> FileFault {
        FileFault::new(call, &path.display().to_string(), 0, code)
    }

    fn request(&self, op: Op, (file, offset, bytes): (File, u64, usize), frame: Option<Frame>, reply: Reply) {
        match self.slab(file) {
            Ok(slab) => {
                let token = self.mail.waiting().insert(reply) as u64;
                self.engine.submit(vec![Request { token, op, slab, offset, bytes, frame }]);
            }
            Err(fault) => _ = reply.send(Answer { result: Err(fault), frame }),
        }
    }
}

/// A file that is locked until this is dropped. A forked child shares the lock and keeps the file open: so it is unlocked by hand.
struct Locked(OwnedFd, Process);

impl Locked {
    fn new(file: OwnedFd) -> Self {
        Self(file, Process::current())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.1.is_current() {
            let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
        }
    }
}

/// Locks the directory itself, where its file system can.
fn lock_directory(names: &OwnedFd) -> rustix::io::Result<()> {
    match take(names) {
        Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::ISDIR) => Ok(()),
        outcome => outcome,
    }
}

/// Opens the file that is locked: a regular one of ours, that was made here.
fn open_lock(names: &OwnedFd, path: &Path) -> Result<OwnedFd, FileFault> {
    let path = path.join(LOCK);
    let told = |error: Errno| FileFault::new("open", &path.display().to_string(), 0, error.raw_os_error());
    // A pipe of that name is not waited for.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = retry_on_intr(|| rustix::fs::openat(names, LOCK, flags, Mode::RUSR | Mode::WUSR)).map_err(told)?;
    check_own(&lock, &path)?;
    Ok(lock)
}

/// Locks a file, until it is unlocked, or closed by this process and the children that it forked.
fn take(lock: &OwnedFd) -> rustix::io::Result<()> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => std::thread::sleep(PATIENCE / 200),
            // Elsewhere this number says that the system has no more to give.
            Err(Errno::WOULDBLOCK) => return Err(Errno::BUSY),
            outcome => return outcome,
        }
    }
}

/// An engine that tells `mail`.
fn engine(kind: EngineKind, mail: &Arc<Mail>) -> std::io::Result<Arc<dyn Engine>> {
    let sink = || Arc::clone(mail) as Arc<dyn Sink>;
    if kind != EngineKind::Threads {
        match Ring::new(DEPTH, sink()) {
            Ok(ring) => return Ok(Arc::new(ring)),
            Err(error) if kind == EngineKind::Ring => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Arc::new(Threads::new(THREADS, sink())?))
}

impl Disk for Directory {
    fn files(&self) -> Result<Vec<(File, u64)>, FileFault> {
        if !self.process.is_current() {
            return Err(FileFault::forked("list"));
        }
        let told = |error: Errno| self.fault("list", &self.path, error.raw_os_error());
        let mut files = Vec::new();
        for entry in retry_on_intr(|| Dir::read_from(&self.names.0)).map_err(told)? {
            let entry = entry.map_err(told)?;
            if let Some(file) = entry.file_name().to_str().ok().and_then(File::named) {
                let stat = rustix::fs::statat(&self.names.0, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                let stat = stat.map_err(told)?;
                // The size of what is no file of ours means nothing.
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
            Reason::Full => self.free() >= bytes,
            // Descriptors, for one.
            Reason::Exhausted => rustix::io::fcntl_dupfd_cloexec(&self.names.0, 0).is_ok(),
            _ => false,
        }
    }

    fn submit(&self, order: Order, reply: Reply) {
        if !self.process.is_current() {
            return drop(reply.send(Answer::plain(Err(FileFault::forked("submit")))));
        }
        if matches!(order, Order::Create { .. } | Order::Remove { .. } | Order::SyncNames) {
            // These take long, here: who waits for what has ended is woken first.
            crate::wait::wake();
        }
        let answer = match order {
            Order::Read { file, offset, bytes, frame } => {
                return self.request(Op::Read, (file, offset, bytes), Some(frame), reply);
            }
            Order::Write { file, offset, bytes, frame } => {
                // Written with each commit, and synced with each new log only.
                // seeded: superblock_name: file == File::Superblock => false
                if file == File::Superblock
                    && let Err(fault) = self.has_name(file)
                {
                    return drop(reply.send(Answer { result: Err(fault), frame: Some(frame) }));
                }
                return self.request(Op::Write, (file, offset, bytes), Some(frame), reply);
            }
            Order::Sync { file } => match self.has_name(file) {
                Ok(()) => return self.request(Op::Sync, (file, 0, 0), None, reply),
                Err(fault) => Err(fault),
            },
            Order::Create { file, bytes } => self.create(file, bytes),
            Order::Remove { file } => self.remove(file),
            Order::SyncNames => self.sync_names(),
        };
        let _ = reply.send(Answer::plain(answer));
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).field("engine", &self.engine()).finish_non_exhaustive()
    }
}
