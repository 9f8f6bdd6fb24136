//! How much memory a device has left.
//!
//! Upward: [`World::free_memory`], [`World::charge`], [`World::occupy_before`].

use crate::abi::Outcome;
use crate::abi::codes::OUT_OF_MEMORY;
use crate::functions::Function;
use crate::machine::World;

impl World {
    /// Bytes of a device that `cuMemGetInfo` calls free. On devices that use the host's memory that is the host's
    /// MemFree, which leaves out what the page cache would give back.
    pub fn free_memory(&self, device: usize) -> u64 {
        let left = self.left(device);
        if !self.profile.shared_memory {
            return left;
        }
        let text = std::fs::read_to_string(&self.profile.meminfo).unwrap_or_default();
        let (Some(free), Some(total)) = (field(&text, "MemFree"), field(&text, "MemTotal")) else {
            return left;
        };
        let free = (u128::from(free) * u128::from(self.profile.total) / u128::from(total.max(1))) as u64;
        free.saturating_sub(self.devices.get(device).map_or(0, |device| device.occupied))
    }

    /// Bytes of a device that can still be allocated.
    pub fn left(&self, device: usize) -> u64 {
        let Some(found) = self.devices.get(device) else { return 0 };
        let overhead =
            self.profile.overhead * self.contexts.count(|context| context.device == device && context.green.is_none());
        self.profile.total.saturating_sub(overhead + found.used + found.occupied)
    }

    /// Takes bytes of a device's memory; where there are not enough, pools give back what they keep.
    pub fn charge(&mut self, device: usize, bytes: u64) -> Outcome {
        if self.left(device) < bytes {
            self.trim_pools(device, bytes);
        }
        if self.left(device) < bytes {
            return Err(OUT_OF_MEMORY);
        }
        self.devices[device].used += bytes;
        Ok(())
    }

    /// Other programs take what they should take just before a call, as far as it is free.
    pub fn occupy_before(&mut self, function: Function) {
        for (device, bytes) in self.tally.occupied(function) {
            let taken = bytes.min(self.left(device));
            self.devices.get_mut(device).into_iter().for_each(|device| device.occupied += taken);
        }
    }

    /// Gives them back.
    pub fn discharge(&mut self, device: usize, bytes: u64) {
        if let Some(device) = self.devices.get_mut(device) {
            device.used = device.used.saturating_sub(bytes);
        }
    }
}

/// A line of `/proc/meminfo`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}
