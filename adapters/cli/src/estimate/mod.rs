//! `terrace estimate`: how much memory a model needs, and where this machine has it.
//!
//! ```text
//!   preset, config.json, safetensors, GGUF ──► source ──► terrace_estimate ──► fit: devices, tiers ──► text, JSON
//! ```
//!
//! Promises upward: nothing is written, and no device is opened without `--fit`; with `--json` standard output has only
//! JSON, whose keys are stable.
//! Asks from below: `terrace-estimate` for every number.

mod args;
mod fit;
mod source;

pub use args::EstimateArgs;

use crate::failure::Failure;
use crate::output::{escape, format_bytes, format_thousands, json, print};
use fit::FitReport;
use serde::Serialize;
use std::fmt::Write;
use terrace_estimate::Estimate;

/// Positions that are counted at most, where the user gives none.
const USUAL_CONTEXT: u64 = 4096;

/// The report. The field names are the JSON keys.
#[derive(Debug, Serialize)]
struct EstimateReport {
    /// Version of this command.
    terrace: &'static str,
    /// The preset or the file.
    model: String,
    batch: u64,
    context: u64,
    #[serde(flatten)]
    estimate: Estimate,
    /// What was assumed or left out.
    notes: Vec<String>,
    /// Where it fits; `null` without `--fit`.
    fit: Option<FitReport>,
}

/// Estimates and prints.
pub fn run(args: &EstimateArgs) -> Result<(), Failure> {
    let source = source::load(args)?;
    let known = source.facts.shape.as_ref().and_then(|shape| shape.positions);
    let usual = || known.filter(|positions| *positions > 0).map_or(USUAL_CONTEXT, |most| most.min(USUAL_CONTEXT));
    let work = args.workload(args.context.unwrap_or_else(usual));
    let estimate = source.facts.estimate(&source.name, &work).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut notes = source.notes;
    if let Some(most) = known.filter(|most| work.context > *most) {
        notes.push(format!("the model was made for at most {most} positions"));
    }
    let fit = if args.fit {
        args.driver.load()?;
        Some(fit::fit(estimate.total_bytes))
    } else {
        None
    };
    let (model, terrace) = (source.name, env!("CARGO_PKG_VERSION"));
    let report = EstimateReport { terrace, model, batch: work.batch, context: work.context, estimate, notes, fit };
    if args.json { print(&json(&report)?) } else { print(&text(&report)) }
}

fn text(report: &EstimateReport) -> String {
    let mut text = String::new();
    let estimate = &report.estimate;
    let active = match estimate.active_parameters.filter(|active| *active != estimate.parameters) {
        Some(active) => format!(", {} of them for each token", format_thousands(active)),
        None => String::new(),
    };
    let dtype = estimate.dtype.map_or("types of the file".into(), |dtype| dtype.to_string());
    let parameters = format_thousands(estimate.parameters);
    let _ = writeln!(text, "{}: {parameters} parameters{active}; {dtype}", escape(&report.model));
    let _ = writeln!(text, "batch {}, context {}\n", report.batch, report.context);
    let known = |bytes: Option<u64>| bytes.map_or("unknown".into(), format_bytes);
    let mut rows = vec![
        ("weights", format_bytes(estimate.weights_bytes)),
        ("KV cache", known(estimate.kv_cache_bytes)),
        ("activations", known(estimate.activation_bytes)),
    ];
    if estimate.trained_parameters > 0 {
        rows.push(("gradients", format_bytes(estimate.gradient_bytes)));
        rows.push(("optimizer", format_bytes(estimate.optimizer_bytes)));
        rows.push(("a step", format_bytes(estimate.step_bytes)));
    }
    rows.push(("at the peak", format_bytes(estimate.total_bytes)));
    rows.iter().for_each(|(name, size)| _ = writeln!(text, "  {name:12} {size:>12}"));
    report.notes.iter().for_each(|note| _ = writeln!(text, "note: {}", escape(note)));
    if let Some(fit) = &report.fit {
        describe(fit, &mut text);
    }
    text
}

/// Writes where it fits.
fn describe(fit: &FitReport, text: &mut String) {
    let needed = format_bytes(fit.needed_bytes);
    let _ = match (&fit.device, fit.device_room_bytes) {
        (Some(device), Some(room)) => {
            writeln!(text, "\n{device} has room for all of it: {}", format_bytes(room))
        }
        _ => writeln!(text, "\nno device has room for {needed}"),
    };
    fit.passed_by.iter().for_each(|other| _ = writeln!(text, "  {}", escape(&other.why)));
    let all = if fit.tiers_hold_all { "hold all of it" } else { "do not hold all of it" };
    let _ = writeln!(text, "tiers of this machine {all}:");
    for tier in &fit.tiers {
        let (holds, free) = (format_bytes(tier.holds_bytes), format_bytes(tier.free_bytes));
        let _ = writeln!(text, "  {:5} {}: {holds} of {free} free", tier.tier, escape(&tier.name));
    }
}
