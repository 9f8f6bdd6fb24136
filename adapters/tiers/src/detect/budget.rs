//! How much memory tiers may have: one budget for each memory there is, not for each device that uses it.
//!
//! Promises upward: a byte is in one budget only. A GPU that shares the machine's memory has one together with the CPU.
//! Asks from below: what was read of the CPU, and the GPUs that the caller opened.

use super::cpu::CpuMemory;
use serde::Serialize;

/// A GPU, as the caller that opened it describes it: detection asks no driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// `cuda:0`.
    pub device: String,
    /// What its maker calls it.
    pub name: String,
    /// Memory in all.
    pub total_bytes: u64,
    /// What could be had now.
    pub free_bytes: Option<u64>,
    /// Whether its memory is the machine's.
    pub shares_memory: bool,
}

/// What one memory may be used for in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// `cpu` and the GPUs that share its memory, or one GPU.
    pub of: Vec<String>,
    /// Whether it is for more than one.
    pub joint: bool,
    /// `None` where the system does not say.
    pub bytes: Option<u64>,
    /// What it was computed from, in words.
    pub reasons: Vec<String>,
}

/// A budget for each memory, the machine's first.
pub fn budgets(cpu: &CpuMemory, gpus: &[Gpu]) -> Vec<Budget> {
    let (shared, own): (Vec<&Gpu>, Vec<&Gpu>) = gpus.iter().partition(|gpu| gpu.shares_memory);
    let mut budgets = vec![machine(cpu, &shared)];
    budgets.extend(own.into_iter().map(|gpu| Budget {
        of: vec![gpu.device.clone()],
        joint: false,
        bytes: gpu.free_bytes.map(|free| free.min(gpu.total_bytes)),
        reasons: vec!["what the driver says is free".into()],
    }));
    budgets
}

/// The machine's: what is available, and no more than the tightest group drives. What a driver says is free on a device
/// that shares it is not asked: it counts files in memory as used, and knows no groups.
fn machine(cpu: &CpuMemory, shared: &[&Gpu]) -> Budget {
    let mut reasons = Vec::new();
    let mut bytes = cpu.available_bytes;
    if bytes.is_some() {
        reasons.push("MemAvailable".into());
    }
    if let Some(limit) = cpu.groups.least_room().filter(|limit| bytes.is_none_or(|bytes| limit.room_bytes < bytes)) {
        bytes = Some(limit.room_bytes);
        reasons.push(format!("less is left in the control group {}", limit.group));
    }
    if bytes.is_none() {
        reasons.push("the system does not say what is available".into());
    }
    let mut of = vec!["cpu".to_owned()];
    of.extend(shared.iter().map(|gpu| gpu.device.clone()));
    if !shared.is_empty() {
        reasons.push("the GPU's memory is the machine's: one budget for both".into());
    }
    Budget { joint: of.len() > 1, of, bytes, reasons }
}
