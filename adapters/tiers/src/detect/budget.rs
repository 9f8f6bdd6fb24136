//! Memory budgets of tiers: one budget for each physical memory, not for each device that uses it.
//!
//! Promises upward: no byte is counted in two budgets. A GPU that shares the machine's memory shares the CPU's budget.
//! Asks from below: what was read of the CPU, and the GPUs that the caller opened.

use super::cpu::CpuMemory;
use serde::Serialize;

/// A GPU, as described by the caller that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Name of the device, such as `cuda:0`.
    pub device: String,
    /// Its model name.
    pub name: String,
    /// Total bytes of memory.
    pub total_bytes: u64,
    /// Bytes of memory that are free now.
    pub free_bytes: Option<u64>,
    /// Whether the GPU uses the machine's memory instead of memory of its own.
    pub shares_memory: bool,
}

/// How many bytes of one physical memory tiers may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// The devices that use this memory: `cpu` and the GPUs that share its memory, or one GPU.
    pub of: Vec<String>,
    /// Whether several devices share this memory.
    pub joint: bool,
    /// Bytes that tiers may have; `None` where the system does not report how much memory is available.
    pub bytes: Option<u64>,
    /// What the budget was computed from, in words for users.
    pub reasons: Vec<String>,
}

/// Computes a budget for each physical memory, the machine's first.
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

/// Computes the budget of the machine's memory: the bytes available, or the bytes left under the tightest control group
/// limit if those are fewer. What a driver reports as free on a GPU that shares this memory is ignored: the driver
/// counts cached files as used and knows no control groups.
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
