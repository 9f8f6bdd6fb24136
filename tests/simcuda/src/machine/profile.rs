//! What kind of machine is simulated.
//!
//! Upward: [`Profile::parse`] reads `{"profile": name, field: value, ...}`: a named machine, with any field replaced.
//! From below: `profiles.rs` names the machines; serde reads the text and refuses fields that do not exist.

use super::profiles;
use serde::{Deserialize, Serialize};

/// A machine. All its devices are alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub profile: String,
    /// What `cuDeviceGetName` says.
    pub name: String,
    /// How many devices. With none `cuInit` gives `CUDA_ERROR_NO_DEVICE`.
    pub devices: usize,
    /// Bytes of a device's memory.
    pub total: u64,
    /// Bytes that a context takes for itself.
    pub overhead: u64,
    /// What `cuDriverGetVersion` says: 1000 times the major plus 10 times the minor version.
    pub driver: i32,
    /// Compute capability.
    pub capability: [i32; 2],
    /// The device uses the host's memory.
    pub integrated: bool,
    /// Free memory is what `/proc/meminfo` calls MemFree, times `total` over MemTotal.
    pub shared_memory: bool,
    /// The file to read in place of `/proc/meminfo`.
    pub meminfo: String,
    /// `cuMemAddressReserve` and its family work.
    pub vmm: bool,
    /// Least size of physical memory, bytes, a power of two.
    pub granularity: u64,
    /// Size of physical memory that is best.
    pub recommended_granularity: u64,
    /// Bytes of address space that may be reserved at once; 0 for no limit.
    pub reservation_limit: u64,
    /// `cuMemAllocAsync` and its family work.
    pub pools: bool,
    /// `cuMemAllocManaged` works.
    pub managed: bool,
    /// Host and device may use managed memory at the same time.
    pub concurrent_managed: bool,
    /// The device reads memory that nobody registered.
    pub pageable: bool,
    /// Bytes of pinned host memory there may be at once; 0 for no limit.
    pub pinned_limit: u64,
    /// `cuMemHostRegister` works.
    pub register: bool,
    /// Devices reach each other's memory.
    pub peers: bool,
    /// Handles of destroyed streams and events come again.
    pub reuse_handles: bool,
    /// Milliseconds after which whoever waits for held streams is told that it waits for ever.
    pub patience: u64,
}

impl Profile {
    /// Reads a profile. Empty text is the default.
    pub fn parse(text: &str) -> Result<Profile, String> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let asked: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("profile {text}: {error}"))?;
        let asked =
            asked.as_object().ok_or_else(|| format!("profile {text}: give an object, {{\"profile\": name}}"))?;
        let name = match asked.get("profile") {
            None => "discrete",
            Some(name) => name.as_str().ok_or("the field `profile` is the name of one, in quotes")?,
        };
        let base =
            profiles::named(name).ok_or_else(|| format!("no profile `{name}`; there are {}", profiles::names()))?;
        let mut fields = serde_json::to_value(base).map_err(|error| error.to_string())?;
        let all = fields.as_object_mut().ok_or("a profile is an object")?;
        all.extend(asked.iter().map(|(key, value)| (key.clone(), value.clone())));
        let profile: Profile = serde_json::from_value(fields).map_err(|error| format!("profile {text}: {error}"))?;
        profile.check()
    }

    fn check(self) -> Result<Profile, String> {
        let granular = [self.granularity, self.recommended_granularity];
        if !granular.iter().all(|size| size.is_power_of_two() && *size >= 4096) {
            return Err(format!("granularities {granular:?}: give powers of two from 4096 on"));
        }
        if self.devices > 16 || self.total > 1 << 42 {
            return Err("at most 16 devices of 4 TiB".into());
        }
        Ok(self)
    }
}

impl Default for Profile {
    fn default() -> Profile {
        profiles::discrete()
    }
}
