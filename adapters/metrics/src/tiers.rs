//! What a manager of tiers is as samples.
//!
//! Promises upward: numbers of a tier have the labels `tier`, `kind` and `device`; causes, outcomes and directions are labels.
//! Asks from below: statistics of managers and their tiers.

use crate::families::{Families, Labels, MetricDescription};
use std::time::Duration;
use terrace_tiers::ledger::EvictionCause;
use terrace_tiers::manager::{ManagerStats, TierInfo, WaitStats};

/// Samples of a manager.
pub(crate) fn manager(families: &mut Families, labels: &Labels, stats: &ManagerStats, tiers: &[TierInfo]) {
    let counter = |name: &str, help| MetricDescription::counter(format!("terrace_manager_{name}"), help);
    let with = |name, value: &str| [&labels[..], &[(name, value.to_string())]].concat();
    let uptime = MetricDescription::gauge("terrace_manager_uptime", "Time since the manager was built.").seconds();
    families.add(uptime, labels, stats.elapsed.as_secs_f64());
    families.add(counter("read", "Bytes that calls have read.").bytes(), labels, stats.bytes_read);
    families.add(counter("written", "Bytes that calls have written.").bytes(), labels, stats.bytes_written);
    let moves = stats.moves;
    for (direction, copies, bytes) in [("up", moves.up, moves.bytes_up), ("down", moves.down, moves.bytes_down)] {
        let labels = with("direction", direction);
        families.add(counter("moves", "Copies between tiers, to better ones or to lower ones."), &labels, copies);
        families.add(counter("moved", "Bytes copied between tiers.").bytes(), &labels, bytes);
    }
    families.add(counter("dropped_copies", "Redundant copies that were dropped."), labels, moves.dropped);
    families.add(counter("failed_moves", "Copies between tiers that failed or found no room."), labels, moves.failed);
    let prefetches = stats.prefetches;
    let outcomes = [("met", prefetches.met), ("late", prefetches.late), ("wasted", prefetches.wasted)];
    for (outcome, value) in outcomes.into_iter().chain([("unmet", prefetches.unmet)]) {
        let description = counter("prefetches", "Prefetches that have ended, by what became of them.");
        families.add(description, &with("outcome", outcome), value);
    }
    for cause in EvictionCause::ALL {
        let ((number, bytes), labels) = (stats.evictions.of(cause), with("cause", cause.name()));
        families.add(counter("evictions", "Buffers evicted from a tier, by cause."), &labels, number);
        families.add(counter("evicted", "Bytes evicted from a tier, by cause.").bytes(), &labels, bytes);
    }
    let calls = [("lease", stats.leases), ("read", stats.reads), ("write", stats.writes)];
    for (call, waits) in calls.into_iter().chain([("allocation", stats.allocations)]) {
        self::waits(families, &with("call", call), &waits);
    }
    for (info, uses) in tiers.iter().zip(&stats.tiers) {
        let labels = tier(families, labels, info);
        let counter = |name: &str, help| MetricDescription::counter(format!("terrace_tier_{name}"), help);
        families.add(counter("hits", "Uses that found the newest bytes in this tier."), &labels, uses.hits);
        families.add(counter("misses", "Uses that found the newest bytes in lower tiers only."), &labels, uses.misses);
    }
}

/// Samples of the calls that waited.
fn waits(families: &mut Families, labels: &Labels, waits: &WaitStats) {
    let calls =
        MetricDescription::counter("terrace_manager_waits", "Calls that did not find at once what they needed.");
    families.add(calls, labels, waits.calls);
    // Not `quantile`, which is for summaries: those have a sum too, which no histogram here keeps.
    let percentiles =
        [("50", waits.p50), ("90", waits.p90), ("99", waits.p99), ("99.9", waits.p999), ("100", waits.max)];
    for (percentile, wait) in percentiles {
        let labels = [&labels[..], &[("percentile", percentile.to_string())]].concat();
        let description =
            MetricDescription::gauge("terrace_manager_wait", "How long calls waited that did, since the start.");
        families.add(description.seconds(), &labels, Duration::as_secs_f64(&wait));
    }
}

/// Samples of one tier; returns its labels.
fn tier(families: &mut Families, labels: &Labels, info: &TierInfo) -> Labels {
    let kind = info.kind.map_or("unknown", |kind| kind.name());
    let own = [("tier", info.tier.to_string()), ("kind", kind.into()), ("device", info.device.clone())];
    let labels = [&labels[..], &own].concat();
    let gauge = |name: &str, help| MetricDescription::gauge(format!("terrace_tier_{name}"), help);
    let view = info.view;
    let mut level = |name: &str, help, value: u64| families.add(gauge(name, help).bytes(), &labels, value);
    level("capacity", "Bytes that the tier may hold now.", view.capacity);
    level("limit", "The tier's configured capacity.", view.limit);
    level("used", "Bytes of the tier's copies, and of copies in progress to it.", view.used);
    level("leaving", "Bytes of copies that migrations in progress will remove.", view.leaving);
    if let Some(files) = info.files {
        level("files", "Bytes of the tier's files on the disk.", files.disk);
        level("files_reserved", "Bytes reserved for the next logs.", files.reserved);
        level("files_live", "Bytes of live pieces in files.", files.live);
        level("files_limit", "The most bytes that the files may take.", files.cap);
        families.add(gauge("durable_objects", "Durable objects in the tier's files."), &labels, files.objects);
    }
    let pressure = gauge("pressure_level", "Pressure: 0 normal, 1 elevated, 2 high, 3 critical.");
    families.add(pressure, &labels, view.level as u64);
    let suspended = gauge("suspended", "1 while the tier is suspended after failures, else 0.");
    families.add(suspended, &labels, u64::from(view.suspended_until.is_some()));
    labels
}
