//! Settings of a manager.
//!
//! Promises upward: later calls win; nothing is checked or opened before the manager is built.
//! Asks from below: names, ranges and defaults from the core's table.

use crate::detect;
use crate::ledger::TenantQuota;
use crate::policy::PolicyKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use terrace_core::pressure::Level;
use terrace_core::residence::Tier;
use terrace_core::settings::{
    CHUNK, ChosenSettings, DEBUG, DebugSwitches, ENGINE, MAINTENANCE_INTERVAL, MEMORY, MIN_FREE, PINNED_CAP, POLICY,
    Profile, SHARE_OF_DISK, STAGING, Value,
};
use terrace_device::Device;
use terrace_file::{Disk, EngineKind, Executor, StoreOptions};

/// How a program mostly uses its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Reads large buffers repeatedly: memory tiers get half of the available memory.
    #[default]
    Inference,
    /// Writes what it reads, and needs memory itself: memory tiers get a quarter.
    Training,
    /// On a small or shared machine: memory tiers get an eighth, directories a tenth of what is free, and staging memory is 2 MiB.
    Constrained,
}

impl From<Preset> for Profile {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Inference => Self::Inference,
            Preset::Training => Self::Training,
            Preset::Constrained => Self::Constrained,
        }
    }
}

/// Called when the pressure level of a tier changes.
pub type PressureCallback = Box<dyn Fn(Tier, Level) + Send + Sync>;

/// Builds a [`Manager`](super::Manager). Unset values follow from the preset and the machine.
#[derive(Default)]
pub struct ManagerBuilder {
    pub(super) settings: ChosenSettings,
    pub(super) devices: Vec<(Device, Option<u64>)>,
    pub(super) directories: Vec<RequestedDirectory>,
    pub(super) disks: Vec<(Arc<dyn Disk>, StoreOptions)>,
    pub(super) tasks: Executor,
    /// Whether the user runs the tasks.
    pub(super) by_hand: bool,
    pub(super) tenants: Vec<TenantQuota>,
    pub(super) on_pressure: Option<PressureCallback>,
    pub(super) system_root: Option<PathBuf>,
}

/// A directory that the user named.
#[derive(Debug)]
pub(super) struct RequestedDirectory {
    pub(super) path: PathBuf,
    pub(super) cap: Option<u64>,
    /// The kind that the user declared.
    pub(super) kind: Option<detect::TierKind>,
}

impl ManagerBuilder {
    /// Sets how the program uses its buffers.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.settings.set_profile(preset.into());
        self
    }

    /// Takes the settings that were set in `settings`, and its profile.
    ///
    /// They are checked when the manager is built.
    pub fn settings(mut self, settings: &ChosenSettings) -> Self {
        self.settings.extend(settings);
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
        self.settings.set(&MEMORY, Value::Number(bytes));
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

    /// Sets the executor of tasks, which the caller runs.
    ///
    /// A [`Directory`](terrace_file::Directory) that has it runs it too.
    pub fn tasks(mut self, tasks: &Executor) -> Self {
        (self.tasks, self.by_hand) = (tasks.clone(), true);
        self
    }

    /// Sets the eviction policy.
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.settings.set(&POLICY, Value::Word(policy as usize));
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
        self.settings.set(&CHUNK, Value::Number(bytes as u64));
        self
    }

    /// Sets the bytes of buffers that may be leased together.
    ///
    /// Default: three quarters of what memory and devices may have.
    pub fn pinned_cap(mut self, bytes: u64) -> Self {
        self.settings.set(&PINNED_CAP, Value::Number(bytes));
        self
    }

    /// Sets the I/O engine for files.
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.settings.set(&ENGINE, Value::Word(engine as usize));
        self
    }

    /// Sets the interval of maintenance in whole milliseconds; zero for none but by `Manager::tick`.
    ///
    /// What the machine has left is looked at when the manager is built, and at every fourth tick.
    pub fn maintenance_interval(mut self, interval: Duration) -> Self {
        // Rounded up: an interval that is not zero does not become none.
        let milliseconds = interval.as_nanos().div_ceil(1_000_000).min(u128::from(u32::MAX) - 1) as u32;
        let delay = Some(milliseconds).filter(|milliseconds| *milliseconds > 0);
        self.settings.set(&MAINTENANCE_INTERVAL, Value::Delay(delay));
        self
    }

    /// Sets the bytes of the machine's memory to leave to other programs; 512 MiB by default.
    ///
    /// At most an eighth of it is left, and a thirty-second at least.
    /// Of a device's memory its pool leaves as much: see `DeviceOptions`.
    pub fn min_free(mut self, bytes: u64) -> Self {
        self.settings.set(&MIN_FREE, Value::Number(bytes));
        self
    }

    /// Sets the bytes of memory through which chunks go to files and back; two chunks at least.
    ///
    /// They are beside those of buffers.
    pub fn staging(mut self, bytes: u64) -> Self {
        self.settings.set(&STAGING, Value::Number(bytes));
        self
    }

    /// Sets the share of a disk's free bytes that a directory without a cap takes; a quarter by default.
    pub fn share_of_disk(mut self, share: f64) -> Self {
        self.settings.set(&SHARE_OF_DISK, Value::Share(share));
        self
    }

    /// Sets what the manager checks and tells of itself; nothing by default.
    ///
    /// `check`: every invariant, each second and when the manager ends; one that is broken aborts the process with a line.
    /// `stats`: a line on standard error when it ends. `leaks`: records of buffers from the beginning, and a list of those
    /// live at the end; `sites`: the same with call stacks. These two need the feature `track`.
    pub fn debug(mut self, debug: DebugSwitches) -> Self {
        self.settings.set(&DEBUG, debug.into());
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
}

impl std::fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("memory", &self.settings.of(&MEMORY))
            .field("directories", &self.directories)
            .finish_non_exhaustive()
    }
}
