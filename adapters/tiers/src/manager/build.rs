//! Construction of a manager from its settings: tiers, best first, and what recovers from their stores.
//!
//! Promises upward: settings are checked before anything is opened; what cannot be opened is an error, and loses nothing.
//! Asks from below: devices, directories, stores, the ledger.

use super::builder::{ManagerBuilder, RequestedDirectory};
use super::device_tier::DeviceTier;
use super::error::Error;
use super::maintenance::MaintenanceThread;
use super::sizes::{LOG, room, stage};
use super::stats::StatsRecorder;
use super::tracking::BufferTracking;
use super::{ManagedTier, Manager, ManagerShared, ShutdownGuard, State, TierStorage};
use crate::detect::{self, Machine};
use crate::ledger::{Ledger, Medium, Settings, TierSpec};
use crate::policy::PolicyKind;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace_core::residence::Tier;
use terrace_core::settings::{
    CHUNK, DEBUG, ENGINE, MAINTENANCE_INTERVAL, MEMORY, MIN_FREE, PINNED_CAP, POLICY, SHARE_OF_DISK, STAGING, Surface,
    Value,
};
use terrace_file::{Directory, Disk, EngineKind, FramePool, JoinHandle, Notify, Store, StoreOptions, TaskRunner};
use terrace_guard::{Process, ProcessOwned};
use tokio::sync::Semaphore;

/// A file tier to build.
struct FileTier {
    disk: Arc<dyn Disk>,
    options: StoreOptions,
    kind: Option<detect::TierKind>,
    device: String,
}

impl ManagerBuilder {
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
        self.settings.check(Surface::Manager)?;
        let chunk = self.settings.of(&CHUNK).number() as usize;
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
            let disk = Directory::open(&path, self.engine_kind(), &self.tasks)?;
            opened.extend(path.canonicalize());
            let mut options =
                StoreOptions::new(cap.unwrap_or_else(|| self.settings.of(&SHARE_OF_DISK).part_of(disk.free())));
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

    fn engine_kind(&self) -> EngineKind {
        EngineKind::ALL[self.settings.of(&ENGINE).word()]
    }

    fn root(&self) -> PathBuf {
        self.system_root.clone().unwrap_or_else(|| "/".into())
    }

    /// Opens the tiers of devices and memory, best first.
    fn addressed(&self) -> Result<Vec<ManagedTier>, Error> {
        let preset_share = |bytes: u64| MEMORY.of(self.settings.profile()).default.part_of(bytes);
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
        let capacity = match self.settings.of(&MEMORY) {
            Value::Number(bytes) => bytes,
            share => share.part_of(detect::available_under(&self.root()).unwrap_or(0)),
        };
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
        let (stage, system_root) = (stage(chunk as u64, self.settings.of(&STAGING).number()), self.root());
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
        let interval = self.settings.of(&MAINTENANCE_INTERVAL).delay().unwrap_or(0);
        let interval = Duration::from_millis(interval.into());
        let mut settings = Settings::new(tiers.iter().map(spec).collect());
        if interval.is_zero() {
            // Without ticks there is no rate of demand.
            settings.ahead_from = u64::MAX;
        }
        settings.policy = PolicyKind::ALL[self.settings.of(&POLICY).word()];
        if !self.tenants.is_empty() {
            settings.tenants = self.tenants;
        }
        let ledger = Ledger::new(settings).map_err(Error::Setup)?;
        let pinned_cap = AtomicU64::new(self.settings.of(&PINNED_CAP).part_of(memory));
        let min_free = AtomicU64::new(self.settings.of(&MIN_FREE).number());
        let is_memory = |made: &ManagedTier| made.storage.medium() == Medium::Memory;
        let stats = StatsRecorder::new(tiers.iter().position(is_memory).map_or(Tier::MAX, |at| at as Tier));
        let debug = self.settings.of(&DEBUG).switches();
        let shared = Arc::new_cyclic(|own| ManagerShared {
            own: own.clone(),
            system_root,
            tasks: self.tasks,
            frames,
            tiers,
            chunk,
            blank_bytes: Arc::default(),
            pinned_cap,
            min_free,
            debug,
            on_pressure: self.on_pressure,
            staged: Semaphore::new((stage / chunk as u64) as usize),
            lease_gate: Arc::default(),
            moved: Notify::new(),
            process: Process::current(),
            tracking: BufferTracking::new(own, debug),
            _worker: worker,
            maintenance: OnceLock::new(),
            state: Mutex::new(State::new(ledger, most)),
            stats,
        });
        shared.recover(most_of_chunk)?;
        // Before the first allocation: a control group kills what takes more than its limit.
        shared.follow_machine_memory();
        let maintenance = MaintenanceThread::begin(&shared, interval).map_err(|error| Error::Memory(error.kind()))?;
        let _ = shared.maintenance.set(maintenance);
        let shutdown = ProcessOwned::new(Arc::new(ShutdownGuard { shared: Arc::downgrade(&shared) }));
        Ok(Manager { shared: ProcessOwned::new(shared), shutdown })
    }
}

fn frames(bytes: u64, made: fn(usize) -> std::io::Result<FramePool>) -> Result<FramePool, Error> {
    let bytes = usize::try_from(bytes).map_err(|_| Error::BadSetting("more memory than there are addresses".into()))?;
    made(bytes).map_err(|error| Error::Memory(error.kind()))
}
