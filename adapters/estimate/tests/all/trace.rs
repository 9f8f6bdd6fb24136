//! Recorded runs of PyTorch: memory by step, from the events alone.

use std::collections::HashMap;
use std::path::Path;

/// A step, or a micro-batch of one: from its input's allocation up to the next one's.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedStep {
    /// Bytes of the input's token numbers, 8 for each.
    pub input: u64,
    /// Bytes that were live before it: weights, and what earlier steps left.
    pub before: u64,
    /// Of those, bytes that optimizer and backward pass allocated: its state, and gradients.
    pub optimizer: u64,
    pub gradients: u64,
    /// The most bytes live before the optimizer's first event, beyond those before the step.
    pub activations: u64,
    /// The most bytes live at all.
    pub peak: u64,
}

/// All steps of a recording.
pub fn steps(path: &Path) -> Vec<RecordedStep> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = String::from_utf8(zstd::decode_all(&file[..]).unwrap()).unwrap();
    let (mut live, mut total) = (HashMap::new(), 0);
    let mut by_phase: HashMap<String, u64> = HashMap::new();
    let mut steps: Vec<RecordedStep> = Vec::new();
    let (mut phase_before, mut optimizing) = (String::new(), false);
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, op, id, size, _, _, tag] = fields[..] else { panic!("seven columns in {line}") };
        let phase = tag.split(':').next().unwrap_or("").to_owned();
        if op == "a" && phase == "data" && phase_before != "data" {
            let of = |phase: &str| by_phase.get(phase).copied().unwrap_or(0);
            let (optimizer, gradients) = (of("opt"), of("bwd"));
            let input = size.parse().unwrap();
            steps.push(RecordedStep { input, before: total, optimizer, gradients, ..RecordedStep::default() });
            optimizing = false;
        }
        optimizing |= phase == "opt";
        if op == "a" {
            let size: u64 = size.parse().unwrap();
            total += size;
            *by_phase.entry(phase.clone()).or_default() += size;
            live.insert(id.to_owned(), (size, phase.clone()));
        } else {
            let (size, phase) = live.remove(id).unwrap();
            total -= size;
            *by_phase.get_mut(&phase).unwrap() -= size;
        }
        if let Some(step) = steps.last_mut() {
            step.peak = step.peak.max(total);
            if !optimizing {
                step.activations = step.activations.max(total.saturating_sub(step.before));
            }
        }
        if op == "a" {
            phase_before = phase;
        }
    }
    steps
}
