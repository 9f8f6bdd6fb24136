//! Memory budgets of tiers: one budget for each physical memory, not for each device that uses it.
//!
//! Promises upward: no byte is counted in two budgets. A GPU that shares the machine's memory shares the CPU's budget.
//! Asks from below: what was read of the CPU, and the GPUs that the caller opened.

use super::cpu::CpuMemory;
use serde::Serialize;

/// A GPU, as described by the caller that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// `cuda:0`.
    pub device: String,
    /// Its model name.
    pub name: String,
    /// Total memory.
    pub total_bytes: u64,
    /// Memory that is free now.
    pub free_bytes: Option<u64>,
    /// Whether it uses the machine's memory as its own.
    pub shares_memory: bool,
}

/// The bytes that tiers may have of one memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// `cpu` and the GPUs that share its memory, or one GPU.
    pub of: Vec<String>,
    /// Whether several devices share it.
    pub joint: bool,
    /// `None` where the system does not report it.
    pub bytes: Option<u64>,
    /// What it was computed from, for people.
    pub reasons: Vec<String>,
}

/// Computes a budget for each memory, the machine's first.
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

/// The budget of the machine's memory: what is available, and at most what is left under the tightest control group. A
/// driver's count of free memory on a device that shares it is ignored: it counts cached files as used, and knows no
/// control groups.
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
