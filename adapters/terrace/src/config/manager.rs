//! Managers that are built of a configuration.
//!
//! Promises upward: every setting of a manager, and the directories.
//! Asks from below: the manager's builder.

use super::{Config, DirectoryConfig, DirectoryKind};
use terrace_tiers::detect::TierKind;
use terrace_tiers::{Manager, ManagerBuilder};

/// Starts to configure a manager with the settings and directories of a configuration.
///
/// # Example
/// ```
/// use terrace::tiers::ManagerBuilder;
/// let config = terrace::Config::constrained().set("memory", "4MiB")?.build()?;
/// let manager = ManagerBuilder::from(&config).build()?;
/// assert_eq!(manager.tiers()[0].view.capacity, 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl From<&Config> for ManagerBuilder {
    fn from(config: &Config) -> Self {
        let builder = Manager::builder().settings(config.settings());
        let add = |builder: Self, directory: &DirectoryConfig| {
            let DirectoryConfig { path, cap, kind } = directory;
            match (kind, cap) {
                (Some(kind), cap) => builder.directory_as(path, tier_kind(*kind), *cap),
                (None, Some(cap)) => builder.directory_of(path, *cap),
                (None, None) => builder.directory(path),
            }
        };
        config.directories().iter().fold(builder, add)
    }
}

fn tier_kind(kind: DirectoryKind) -> TierKind {
    match kind {
        DirectoryKind::Nvme => TierKind::Nvme,
        DirectoryKind::Ssd => TierKind::Ssd,
        DirectoryKind::Hdd => TierKind::Hdd,
    }
}
