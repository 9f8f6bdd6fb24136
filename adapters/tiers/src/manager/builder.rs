//! How a manager is made.

use super::error::Error;
use super::gpu::Gpu;
use super::upkeep::Upkeep;
use super::{Made, Manager, Place, Shared, State, User};
use crate::detect::{self, Machine};
use crate::ledger::{Ledger, Settings, Share, TierKind, TierSpec};
use crate::policy::Kind;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace_core::pressure::Level;
use terrace_core::residence::Tier;
use terrace_device::Device;
use terrace_file::{
    ALIGN, Directory, Disk, EngineKind, Executor, FramePool, JoinHandle, Notify, Store, StoreOptions, TaskRunner,
};
use terrace_guard::{Process, ProcessOwned};

/// What a program does with its buffers, mostly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Reads large buffers again and again: half of the memory that is available.
    #[default]
    Inference,
    /// Writes what it reads, beside a program that needs memory itself: a quarter.
    Training,
}

/// Called when a tier is fuller or emptier than it was.
pub type OnPressure = Box<dyn Fn(Tier, Level) + Send + Sync>;

/// Settings of a manager. What is not set follows from the preset and the machine.
#[derive(Default)]
pub struct Builder {
    preset: Preset,
    memory: Option<u64>,
    devices: Vec<(Device, Option<u64>)>,
    directories: Vec<Named>,
    disks: Vec<(Arc<dyn Disk>, StoreOptions)>,
    tasks: Executor,
    /// Whether the user runs them.
    by_hand: bool,
    policy: Kind,
    tenants: Vec<Share>,
    chunk: Option<usize>,
    pinned: Option<u64>,
    engine: EngineKind,
    upkeep: Option<Duration>,
    on_pressure: Option<OnPressure>,
}

/// A directory, as it was named.
#[derive(Debug)]
struct Named {
    path: PathBuf,
    cap: Option<u64>,
    /// The user's word.
    kind: Option<detect::TierKind>,
}

/// A tier of files to be.
struct Files {
    disk: Arc<dyn Disk>,
    options: StoreOptions,
    kind: Option<detect::TierKind>,
    device: String,
}

/// Bytes of a chunk: what a write in a file tier rewrites at least.
const CHUNK: usize = 1 << 20;

/// Chunks that may be on their way together, of all copies;
const STAGE: u64 = 32;
/// but no more bytes than this, beside `memory`, unless two chunks are more: one that is read while the other is
/// written.
const STAGE_BYTES: u64 = 32 << 20;

/// Bytes that each store keeps for its log.
const LOG: u64 = 1 << 20;

/// How often maintenance looks, where it is not said: four times a second, some 20 us each.
const UPKEEP: Duration = Duration::from_millis(250);

/// Of a directory whose cap is not said: a quarter of what is free.
const SHARE_OF_DISK: u64 = 4;

impl Builder {
    /// What the program does.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Bytes of the machine's memory that buffers may take, with what describes them.
    ///
    /// This counts wherever their bytes are, but for the first MiB of descriptions. Beside it are 32 MiB, or two chunks
    /// where that is more, through which bytes go on their way to files. Without: a share of what is available, by the
    /// preset, and no more than the control group allows.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// A device: its memory is the best tier, below devices named before.
    ///
    /// Where it shares the machine's memory there is one tier for both instead, which it addresses as processors do:
    /// nothing is copied to it.
    pub fn device(mut self, device: &Device) -> Self {
        self.devices.push((device.clone(), None));
        self
    }

    /// The same, with the bytes that buffers may take there: always a tier of its own.
    pub fn device_of(mut self, device: &Device, bytes: u64) -> Self {
        self.devices.push((device.clone(), Some(bytes)));
        self
    }

    /// A tier of files in a directory, which is made if it is not there.
    ///
    /// Directories on NVMe come before those on other flash, and these before those on disks that turn; of the same,
    /// the one that was named first.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directories.push(Named { path: path.into(), cap: None, kind: None });
        self
    }

    /// The same, with the bytes that its files may take.
    pub fn directory_of(mut self, path: impl Into<PathBuf>, cap: u64) -> Self {
        self.directories.push(Named { path: path.into(), cap: Some(cap), kind: None });
        self
    }

    /// The same, with what it lies on, whatever the system says.
    pub fn directory_as(mut self, path: impl Into<PathBuf>, kind: detect::TierKind, cap: Option<u64>) -> Self {
        self.directories.push(Named { path: path.into(), cap, kind: Some(kind) });
        self
    }

    /// A tier of files on a disk of one's own, below all directories.
    ///
    /// Where its engine runs tasks, they are given by [`tasks`](Self::tasks), which spares a thread.
    pub fn disk(mut self, disk: Arc<dyn Disk>, options: StoreOptions) -> Self {
        self.disks.push((disk, options));
        self
    }

    /// Where tasks go. The caller runs them, or has given them to a [`Directory`].
    pub fn tasks(mut self, tasks: &Executor) -> Self {
        (self.tasks, self.by_hand) = (tasks.clone(), true);
        self
    }

    /// Who leaves a tier first.
    pub fn policy(mut self, policy: Kind) -> Self {
        self.policy = policy;
        self
    }

    /// One more tenant; without any there is one without limits.
    ///
    /// What is durable stays its tenant's, by number, after a restart, also above its caps; the first one's where there
    /// are fewer now.
    pub fn tenant(mut self, share: Share) -> Self {
        self.tenants.push(share);
        self
    }

    /// Bytes of a chunk, a multiple of 4 KiB: 1 MiB without.
    ///
    /// A buffer has 2^24 chunks at most, and of the memory some 220 bytes for each in a tier of files, twice that with
    /// a name. What is durable keeps its own, up to 32 times this and 32 MiB (twice this, where that is more), if a
    /// slab holds it.
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes);
        self
    }

    /// Bytes of buffers that may be leased together.
    ///
    /// Without: three quarters of what memory and devices may have.
    pub fn pinned_cap(mut self, bytes: u64) -> Self {
        self.pinned = Some(bytes);
        self
    }

    /// How files are read and written.
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.engine = engine;
        self
    }

    /// How often maintenance looks. Zero: never by itself, only by [`Manager::tick`].
    pub fn upkeep(mut self, interval: Duration) -> Self {
        self.upkeep = Some(interval);
        self
    }

    /// Who is told of pressure: on some thread, without locks.
    ///
    /// What it panics with is lost; it must not wait for the manager, whose thread it may be.
    pub fn on_pressure(mut self, told: impl Fn(Tier, Level) + Send + Sync + 'static) -> Self {
        self.on_pressure = Some(Box::new(told));
        self
    }

    /// Makes the manager, and recovers the durable buffers.
    ///
    /// A tier that recovers more than it would take in takes nothing more until enough is freed.
    ///
    /// # Errors
    /// [`Error::BadSetting`], [`Error::Setup`], [`Error::Chunks`]; those of stores, as of a cap below what is durable:
    /// nothing is lost.
    pub fn build(self) -> Result<Manager, Error> {
        let tasks = self.tasks.clone();
        let join = self.build_async()?;
        tasks.block_on(|| join)
    }

    /// The same, as a task.
    ///
    /// # Errors
    /// At once: [`Error::BadSetting`], and that a directory cannot be had. As the task's: as [`build`](Self::build).
    pub fn build_async(mut self) -> Result<JoinHandle<Result<Manager, Error>>, Error> {
        let chunk = self.chunk.unwrap_or(CHUNK);
        if chunk == 0 || !chunk.is_multiple_of(ALIGN) || i32::try_from(chunk).is_err() {
            return Err(Error::BadSetting("a chunk is a multiple of 4 KiB, below 2 GiB"));
        }
        let files = self.files()?;
        // Somebody must run tasks, also where there are no files, or those of a disk of one's own run others.
        let lone = files.is_empty() || !(self.by_hand || self.tasks.has_driver());
        let worker = if lone { Some(TaskRunner::spawn(&self.tasks)?) } else { None };
        let built = self.tasks.clone().spawn(self.make(chunk, files, worker));
        Ok(built.in_child(|| Err(Error::Forked)))
    }

    /// The tiers of files, best first.
    fn files(&mut self) -> Result<Vec<Files>, Error> {
        let mut machine = None;
        let (mut files, mut opened) = (Vec::new(), Vec::new());
        for Named { path, cap, kind } in std::mem::take(&mut self.directories) {
            if kind.is_some_and(|kind| !kind.is_disk()) {
                return Err(Error::BadSetting("a directory is nvme, ssd or hdd: gpu and cpu are no disks"));
            }
            if path.canonicalize().is_ok_and(|real| opened.contains(&real)) {
                return Err(Error::BadSetting("a directory is one tier: it is named twice"));
            }
            let disk = Directory::open(&path, self.engine, &self.tasks)?;
            opened.extend(path.canonicalize());
            let options = StoreOptions::new(cap.unwrap_or_else(|| disk.free() / SHARE_OF_DISK));
            let machine = machine.get_or_insert_with(|| Machine::look(Vec::new()));
            let found = || machine.disk_of(&path).ok().and_then(|(found, _)| found.class.tier);
            let kind = kind.or_else(found);
            files.push(Files { disk: Arc::new(disk), options, kind, device: path.display().to_string() });
        }
        // Those of which nothing is known come last.
        files.sort_by_key(|files| (files.kind.is_none(), files.kind));
        let own = |(disk, options)| Files { disk, options, kind: None, device: "a disk of one's own".into() };
        files.extend(std::mem::take(&mut self.disks).into_iter().map(own));
        Ok(files)
    }

    /// The tiers of devices and memory, best first.
    fn addressed(&self) -> Result<Vec<Made>, Error> {
        let share = |bytes: u64| match self.preset {
            Preset::Inference => bytes / 2,
            Preset::Training => bytes / 4,
        };
        let (mut made, mut joint) = (Vec::new(), None);
        for (device, bytes) in &self.devices {
            let gpu = Gpu::open(device)?;
            if bytes.is_none() && joint.is_none() && Gpu::shares_memory(device) {
                joint = Some(gpu);
                continue;
            }
            let capacity = match bytes {
                Some(bytes) => *bytes,
                None => gpu.room(TierKind::Device).map(|room| share(room.bytes()))?,
            };
            let (kind, device) = (Some(detect::TierKind::Gpu), gpu.name());
            made.push(Made { place: Place::Device(gpu), kind, device, capacity });
        }
        let capacity = self.memory.unwrap_or_else(|| share(detect::memory().unwrap_or(0)));
        if capacity == 0 && joint.is_some() {
            return Err(Error::BadSetting("a device that shares the machine's memory needs some of it: see `memory`"));
        }
        if capacity > 0 {
            let (device, place) = match joint {
                Some(gpu) => (format!("cpu and {}", gpu.name()), Place::Joint(gpu)),
                None => ("cpu".into(), Place::Memory(frames(capacity, FramePool::sparse)?)),
            };
            made.push(Made { place, kind: Some(detect::TierKind::Cpu), device, capacity });
        }
        Ok(made)
    }

    async fn make(self, chunk: usize, files: Vec<Files>, worker: Option<TaskRunner>) -> Result<Manager, Error> {
        let stage = stage(chunk as u64);
        let frames = frames(stage + LOG * files.len() as u64, FramePool::new)?;
        let mut places = self.addressed()?;
        // Of one that was durable before.
        let mut most_of_chunk = stage;
        let memory = places.iter().fold(0u64, |sum, made| sum.saturating_add(made.capacity));
        for Files { disk, options, kind, device } in files {
            if options.slab_bytes < chunk as u64 {
                return Err(Error::BadSetting("a slab holds a chunk at least: raise the cap, or lower the chunk"));
            }
            most_of_chunk = most_of_chunk.min(options.slab_bytes);
            let store = Store::open(disk, &self.tasks, &frames, options).await?;
            places.push(Made { place: Place::File(store), kind, device, capacity: room(&options) });
        }
        let spec = |made: &Made| TierSpec { kind: made.place.kind(), capacity: made.capacity, unit: made.place.unit() };
        let most = places.iter().map(|made| made.capacity).collect();
        let mut settings = Settings::new(places.iter().map(spec).collect());
        settings.policy = self.policy;
        if !self.tenants.is_empty() {
            settings.tenants = self.tenants;
        }
        let ledger = Ledger::new(settings).map_err(Error::Setup)?;
        let pinned_cap = self.pinned.unwrap_or(memory / 4 * 3);
        let shared = Arc::new_cyclic(|own| Shared {
            own: own.clone(),
            tasks: self.tasks,
            frames,
            places,
            chunk,
            pinned_cap,
            over_cap: AtomicBool::new(false),
            on_pressure: self.on_pressure,
            leasing: Arc::default(),
            moved: Notify::new(),
            process: Process::current(),
            _worker: worker,
            upkeep: OnceLock::new(),
            state: Mutex::new(State::new(ledger, most)),
        });
        shared.adopt(most_of_chunk)?;
        let interval = self.upkeep.unwrap_or(UPKEEP);
        let upkeep = Upkeep::begin(&shared, interval).map_err(|error| Error::Memory(error.kind()))?;
        let _ = shared.upkeep.set(upkeep);
        let user = ProcessOwned::new(Arc::new(User { shared: Arc::downgrade(&shared) }));
        Ok(Manager { shared: ProcessOwned::new(shared), user })
    }
}

/// Bytes that chunks go through.
fn stage(chunk: u64) -> u64 {
    (chunk * STAGE).min(STAGE_BYTES.max(2 * chunk))
}

fn frames(bytes: u64, made: fn(usize) -> std::io::Result<FramePool>) -> Result<FramePool, Error> {
    let bytes = usize::try_from(bytes).map_err(|_| Error::BadSetting("more memory than there are addresses"))?;
    made(bytes).map_err(|error| Error::Memory(error.kind()))
}

/// Bytes of buffers that a store takes: seven eighths of its slabs. The rest is for versions that are durable while
/// newer ones are written, for the ends of chunks, and for the logs of small ones: 232 bytes for each (29, twice, in
/// two copies of this log and of the next), which for the smallest, of 4 KiB, is a seventeenth.
fn room(options: &StoreOptions) -> u64 {
    let slabs = options.cap.saturating_sub(2 * options.log_bytes) / options.slab_bytes * options.slab_bytes;
    slabs / 8 * 7
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("memory", &self.memory)
            .field("directories", &self.directories)
            .finish_non_exhaustive()
    }
}
