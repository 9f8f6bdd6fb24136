//! Settings of a manager, and its construction.

use super::device_tier::DeviceTier;
use super::error::Error;
use super::maintenance::MaintenanceThread;
use super::sizes::{LOG, room, stage};
use super::stats::StatsRecorder;
use super::tracking::BufferTracking;
use super::{ManagedTier, Manager, ManagerShared, ShutdownGuard, State, TierStorage};
use crate::detect::{self, Machine};
use crate::ledger::{Ledger, Medium, Settings, TenantQuota, TierSpec};
use crate::policy::PolicyKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace_core::pressure::Level;
use terrace_core::residence::Tier;
use terrace_core::settings::{CHUNK, MAINTENANCE_INTERVAL, MEMORY, PINNED_CAP, Profile, SHARE_OF_DISK, Value};
use terrace_device::Device;
use terrace_file::{
    Directory, Disk, EngineKind, Executor, FramePool, JoinHandle, Notify, Store, StoreOptions, TaskRunner,
};
use terrace_guard::{Process, ProcessOwned};
use tokio::sync::Semaphore;

/// How a program mostly uses its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Reads large buffers repeatedly: memory tiers get half of the available memory.
    #[default]
    Inference,
    /// Writes what it reads, and needs memory itself: memory tiers get a quarter.
    Training,
}

/// Called when the pressure level of a tier changes.
pub type PressureCallback = Box<dyn Fn(Tier, Level) + Send + Sync>;

/// Builds a [`Manager`]. Unset values follow from the preset and the machine.
#[derive(Default)]
pub struct ManagerBuilder {
    preset: Preset,
    memory: Option<u64>,
    devices: Vec<(Device, Option<u64>)>,
    directories: Vec<RequestedDirectory>,
    disks: Vec<(Arc<dyn Disk>, StoreOptions)>,
    tasks: Executor,
    /// Whether the user runs the tasks.
    by_hand: bool,
    policy: PolicyKind,
    tenants: Vec<TenantQuota>,
    chunk: Option<usize>,
    pinned: Option<u64>,
    engine: EngineKind,
    maintenance: Option<Duration>,
    on_pressure: Option<PressureCallback>,
    system_root: Option<PathBuf>,
}

/// A directory that the user named.
#[derive(Debug)]
struct RequestedDirectory {
    path: PathBuf,
    cap: Option<u64>,
    /// The kind that the user declared.
    kind: Option<detect::TierKind>,
}

/// A file tier to build.
struct FileTier {
    disk: Arc<dyn Disk>,
    options: StoreOptions,
    kind: Option<detect::TierKind>,
    device: String,
}

impl ManagerBuilder {
    /// Sets how the program uses its buffers.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Sets the bytes of the machine's memory that buffers and their metadata may take.
    ///
    /// They take less while other programs need the memory: a thirty-second of the machine or the control group stays free
    /// for them, and more while tasks wait for memory; an eighth of these bytes remains to the manager whatever happens.
    /// Metadata counts wherever a buffer's bytes are, except for its first MiB. Staging memory for files is extra: 12
    /// MiB, or two chunks where that is more. Default: a share of the available memory, by the preset, and no more than
    /// the control group allows.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Adds a device, whose memory becomes the best tier below devices added before.
    ///
    /// Where it shares the machine's memory, both have one tier instead, which the device addresses as processors do:
    /// nothing is copied to it.
    pub fn device(mut self, device: &Device) -> Self {
        self.devices.push((device.clone(), None));
        self
    }

    /// Adds a device with the bytes that buffers may take there: always a tier of its own.
    pub fn device_of(mut self, device: &Device, bytes: u64) -> Self {
        self.devices.push((device.clone(), Some(bytes)));
        self
    }

    /// Adds a file tier in a directory, which is created if needed.
    ///
    /// Directories on NVMe come before those on other flash, and these before those on rotating disks; of one kind, the
    /// first added comes first.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directories.push(RequestedDirectory { path: path.into(), cap: None, kind: None });
        self
    }

    /// Adds a file tier in a directory with the bytes that its files may take.
    pub fn directory_of(mut self, path: impl Into<PathBuf>, cap: u64) -> Self {
        self.directories.push(RequestedDirectory { path: path.into(), cap: Some(cap), kind: None });
        self
    }

    /// Adds a file tier in a directory of a declared kind, whatever the system reports.
    pub fn directory_as(mut self, path: impl Into<PathBuf>, kind: detect::TierKind, cap: Option<u64>) -> Self {
        self.directories.push(RequestedDirectory { path: path.into(), cap, kind: Some(kind) });
        self
    }

    /// Adds a file tier on a custom disk, below all directories.
    ///
    /// Where its engine runs tasks, pass them by [`tasks`](Self::tasks), which spares a thread.
    pub fn disk(mut self, disk: Arc<dyn Disk>, options: StoreOptions) -> Self {
        self.disks.push((disk, options));
        self
    }

    /// Sets the executor of tasks. The caller runs it, or has given it to a [`Directory`].
    pub fn tasks(mut self, tasks: &Executor) -> Self {
        (self.tasks, self.by_hand) = (tasks.clone(), true);
        self
    }

    /// Sets the eviction policy.
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.policy = policy;
        self
    }

    /// Adds a tenant; without any there is one tenant without limits.
    ///
    /// After a restart durable buffers belong to the tenant of the same number, even above its caps; to the first one
    /// where there are fewer tenants now.
    pub fn tenant(mut self, quota: TenantQuota) -> Self {
        self.tenants.push(quota);
        self
    }

    /// Sets the bytes of a chunk, a multiple of 4 KiB; 1 MiB by default.
    ///
    /// A buffer has at most 2^24 chunks; each takes some 220 bytes of memory for each file tier, twice that with a
    /// name. Durable buffers keep their own chunk size, up to 32 times this and 8 MiB (twice this, where that is
    /// more), if a slab holds such a chunk.
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes);
        self
    }

    /// Sets the bytes of buffers that may be leased together.
    ///
    /// Default: three quarters of what memory and devices may have.
    pub fn pinned_cap(mut self, bytes: u64) -> Self {
        self.pinned = Some(bytes);
        self
    }

    /// Sets the I/O engine for files.
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the interval of maintenance; zero for none but by [`Manager::tick`].
    ///
    /// What the machine has left is looked at when the manager is built, and at every fourth tick.
    pub fn maintenance_interval(mut self, interval: Duration) -> Self {
        self.maintenance = Some(interval);
        self
    }

    /// Sets the callback for changes of pressure levels; it runs on some thread, without locks.
    ///
    /// Its panics are caught and dropped; it must not wait for the manager, as it may run on the manager's thread.
    pub fn on_pressure(mut self, callback: impl Fn(Tier, Level) + Send + Sync + 'static) -> Self {
        self.on_pressure = Some(Box::new(callback));
        self
    }

    /// Sets the folder under which `proc` and `sys` are read, to learn what memory others leave.
    ///
    /// `/` by default. For programs that see the machine's files elsewhere, as in some containers; and for tests, which copy them.
    pub fn system_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.system_root = Some(root.into());
        self
    }

    /// Builds the manager and recovers its durable buffers.
    ///
    /// A tier that recovers more than its capacity takes nothing until enough is freed.
    ///
    /// # Errors
    /// [`Error::BadSetting`], [`Error::Setup`], [`Error::Chunks`]; errors of stores, such as a cap below what is
    /// durable: nothing is lost.
    pub fn build(self) -> Result<Manager, Error> {
        let tasks = self.tasks.clone();
        let join = self.build_async()?;
        tasks.block_on(|| join)
    }

    /// As [`build`](Self::build), as a future; begins at once.
    ///
    /// # Errors
    /// At once: [`Error::BadSetting`], and errors of opening a directory. From the future: as [`build`](Self::build).
    pub fn build_async(mut self) -> Result<JoinHandle<Result<Manager, Error>>, Error> {
        let chunk =
            CHUNK.accept(self.chunk.map_or(CHUNK.default, |bytes| Value::Number(bytes as u64)))?.number() as usize;
        let files = self.files(chunk as u64)?;
        // Tasks need a thread if there are no files, or if the engine of a custom disk runs other tasks.
        let needs_worker = files.is_empty() || !(self.by_hand || self.tasks.has_driver());
        let worker = if needs_worker { Some(TaskRunner::spawn(&self.tasks)?) } else { None };
        let built = self.tasks.clone().spawn(self.make(chunk, files, worker));
        Ok(built.in_child(|| Err(Error::Forked)))
    }

    /// Opens the file tiers, best first.
    fn files(&mut self, chunk: u64) -> Result<Vec<FileTier>, Error> {
        let mut machine = None;
        let (mut files, mut opened) = (Vec::new(), Vec::new());
        for RequestedDirectory { path, cap, kind } in std::mem::take(&mut self.directories) {
            if kind.is_some_and(|kind| !kind.is_disk()) {
                return Err(Error::BadSetting("a directory is nvme, ssd or hdd: gpu and cpu are no disks".into()));
            }
            if path.canonicalize().is_ok_and(|real| opened.contains(&real)) {
                return Err(Error::BadSetting("a directory is one tier: it is named twice".into()));
            }
            let disk = Directory::open(&path, self.engine, &self.tasks)?;
            opened.extend(path.canonicalize());
            let mut options = StoreOptions::new(cap.unwrap_or_else(|| SHARE_OF_DISK.default.part_of(disk.free())));
            // Whole chunks fill a slab: one of 1.5 MiB would be used by a chunk of 1 MiB alone.
            options.slab_bytes = options.slab_bytes.next_multiple_of(chunk);
            if options.cap < options.least_cap() {
                let (least, given) = (options.least_cap(), options.cap);
                let path = path.display();
                return Err(Error::BadSetting(
                    format!("{path}: files need a cap of {least} bytes at least, and may take {given}: raise the cap")
                        .into(),
                ));
            }
            let machine = machine.get_or_insert_with(|| Machine::detect(Vec::new()));
            let found = || machine.disk_of(&path).ok().and_then(|(found, _)| found.class.tier);
            let kind = kind.or_else(found);
            files.push(FileTier { disk: Arc::new(disk), options, kind, device: path.display().to_string() });
        }
        // Directories of unknown kind come last.
        files.sort_by_key(|files| (files.kind.is_none(), files.kind));
        let own = |(disk, options)| FileTier { disk, options, kind: None, device: "a disk of one's own".into() };
        files.extend(std::mem::take(&mut self.disks).into_iter().map(own));
        Ok(files)
    }

    fn root(&self) -> PathBuf {
        self.system_root.clone().unwrap_or_else(|| "/".into())
    }

    /// Opens the tiers of devices and memory, best first.
    fn addressed(&self) -> Result<Vec<ManagedTier>, Error> {
        let profile = match self.preset {
            Preset::Inference => Profile::Inference,
            Preset::Training => Profile::Training,
        };
        let preset_share = |bytes: u64| MEMORY.of(profile).default.part_of(bytes);
        let (mut made, mut joint) = (Vec::new(), None);
        for (device, bytes) in &self.devices {
            let gpu = DeviceTier::open(device)?;
            if bytes.is_none() && joint.is_none() && DeviceTier::shares_memory(device) {
                joint = Some(gpu);
                continue;
            }
            let capacity = match bytes {
                Some(bytes) => *bytes,
                None => gpu.room(Medium::Device).map(|room| preset_share(room.bytes()))?,
            };
            let (kind, device) = (Some(detect::TierKind::Gpu), gpu.name());
            made.push(ManagedTier { storage: TierStorage::Device(gpu), kind, device, capacity });
        }
        let capacity = self.memory.unwrap_or_else(|| preset_share(detect::available_under(&self.root()).unwrap_or(0)));
        if capacity == 0 && joint.is_some() {
            return Err(Error::BadSetting(
                "a device that shares the machine's memory needs some of it: see `memory`".into(),
            ));
        }
        if capacity > 0 {
            let (device, storage) = match joint {
                Some(gpu) => (format!("cpu and {}", gpu.name()), TierStorage::Joint(gpu)),
                None => ("cpu".into(), TierStorage::Memory(frames(capacity, FramePool::sparse)?)),
            };
            made.push(ManagedTier { storage, kind: Some(detect::TierKind::Cpu), device, capacity });
        }
        Ok(made)
    }

    async fn make(self, chunk: usize, files: Vec<FileTier>, worker: Option<TaskRunner>) -> Result<Manager, Error> {
        let (stage, system_root) = (stage(chunk as u64), self.root());
        let frames = frames(stage + LOG * files.len() as u64, FramePool::new)?;
        let mut tiers = self.addressed()?;
        // Most bytes of a chunk of a recovered buffer.
        let mut most_of_chunk = stage;
        let memory = tiers.iter().fold(0u64, |sum, made| sum.saturating_add(made.capacity));
        for FileTier { disk, options, kind, device } in files {
            if options.slab_bytes < chunk as u64 {
                return Err(Error::BadSetting(
                    "a slab holds a chunk at least: raise the cap, or lower the chunk".into(),
                ));
            }
            most_of_chunk = most_of_chunk.min(options.slab_bytes);
            let store = Store::open(disk, &self.tasks, &frames, options).await?;
            tiers.push(ManagedTier { storage: TierStorage::File(store), kind, device, capacity: room(&options) });
        }
        let spec = |made: &ManagedTier| TierSpec {
            medium: made.storage.medium(),
            capacity: made.capacity,
            unit: made.storage.unit(),
        };
        let most = tiers.iter().map(|made| made.capacity).collect();
        let interval = self.maintenance.unwrap_or_else(maintenance_interval);
        let mut settings = Settings::new(tiers.iter().map(spec).collect());
        if interval.is_zero() {
            // Without ticks there is no rate of demand.
            settings.ahead_from = u64::MAX;
        }
        settings.policy = self.policy;
        if !self.tenants.is_empty() {
            settings.tenants = self.tenants;
        }
        let ledger = Ledger::new(settings).map_err(Error::Setup)?;
        let pinned_cap = self.pinned.unwrap_or_else(|| PINNED_CAP.default.part_of(memory));
        let is_memory = |made: &ManagedTier| made.storage.medium() == Medium::Memory;
        let stats = StatsRecorder::new(tiers.iter().position(is_memory).map_or(Tier::MAX, |at| at as Tier));
        let shared = Arc::new_cyclic(|own| ManagerShared {
            own: own.clone(),
            system_root,
            tasks: self.tasks,
            frames,
            tiers,
            chunk,
            blank_bytes: Arc::default(),
            pinned_cap,
            on_pressure: self.on_pressure,
            staged: Semaphore::new((stage / chunk as u64) as usize),
            lease_gate: Arc::default(),
            moved: Notify::new(),
            process: Process::current(),
            tracking: BufferTracking::new(own),
            _worker: worker,
            maintenance: OnceLock::new(),
            state: Mutex::new(State::new(ledger, most)),
            stats,
        });
        shared.adopt(most_of_chunk)?;
        // Before the first allocation: a control group kills what takes more than its limit.
        shared.follow_machine_memory();
        let maintenance = MaintenanceThread::begin(&shared, interval).map_err(|error| Error::Memory(error.kind()))?;
        let _ = shared.maintenance.set(maintenance);
        let shutdown = ProcessOwned::new(Arc::new(ShutdownGuard { shared: Arc::downgrade(&shared) }));
        Ok(Manager { shared: ProcessOwned::new(shared), shutdown })
    }
}

/// The default; zero, which is none by itself, for never.
fn maintenance_interval() -> Duration {
    Duration::from_millis(MAINTENANCE_INTERVAL.default.delay().unwrap_or(0).into())
}

fn frames(bytes: u64, made: fn(usize) -> std::io::Result<FramePool>) -> Result<FramePool, Error> {
    let bytes = usize::try_from(bytes).map_err(|_| Error::BadSetting("more memory than there are addresses".into()))?;
    made(bytes).map_err(|error| Error::Memory(error.kind()))
}

impl std::fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("memory", &self.memory)
            .field("directories", &self.directories)
            .finish_non_exhaustive()
    }
}
