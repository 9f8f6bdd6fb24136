//! The text: each source's numbers are the ones of its statistics, under Prometheus's rules for names.

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};
use terrace::engine::Stats;
use terrace::observe::metrics::{Metrics, MetricsError};
use terrace::{Device, Manager};

/// The value of the sample with a name and labels, as the text has it.
fn value(text: &str, sample: &str) -> f64 {
    let found: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')).collect();
    assert_eq!(found.len(), 1, "{sample} in {text}");
    found[0].parse().expect("a number")
}

fn scratch() -> Stats {
    Stats { in_use: 4096, allocations: 7, allocated_bytes: 9000, capacity: 1 << 20, ..Stats::default() }
}

#[test]
fn each_source_has_its_numbers_under_its_label() {
    let (metrics, device) = (Metrics::new(), Device::host());
    let manager = Manager::builder().memory(16 << 20).build().expect("it is built");
    metrics.host("main").expect("a new label");
    metrics.device("gpu", &device).expect("a new label");
    metrics.manager("cache", &manager).expect("a new label");
    metrics.pool("scratch", || Some(scratch())).expect("a new label");
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 100_000).expect("room");
    let buffer = manager.allocate(1 << 20).expect("room");
    buffer.write(0, &[1; 5000]).expect("written");
    let text = metrics.open_metrics();
    let is = |sample: &str, expected: u64| assert_eq!(value(&text, sample), expected as f64, "{sample}");
    is("terrace_pool_in_use_bytes{pool=\"scratch\"}", 4096);
    is("terrace_pool_capacity_bytes{pool=\"scratch\"}", 1 << 20);
    is("terrace_pool_allocations_total{pool=\"scratch\"}", 7);
    is("terrace_pool_allocated_bytes_total{pool=\"scratch\"}", 9000);
    is("terrace_device_in_use_bytes{device=\"gpu\",memory=\"own\"}", block.bytes());
    is("terrace_device_in_use_bytes{device=\"gpu\",memory=\"pinned\"}", 0);
    is("terrace_device_reserved_bytes{device=\"gpu\",memory=\"own\"}", device.stats().pool.reserved);
    is("terrace_device_streams{device=\"gpu\"}", 1);
    is("terrace_manager_written_bytes_total{manager=\"cache\"}", 5000);
    is("terrace_manager_waits_total{manager=\"cache\",call=\"allocation\"}", manager.stats().allocations.calls);
    is("terrace_manager_evictions_total{manager=\"cache\",cause=\"resize\"}", 0);
    let tier = "{manager=\"cache\",tier=\"0\",kind=\"cpu\",device=\"cpu\"}";
    is(&format!("terrace_tier_limit_bytes{tier}"), 16 << 20);
    is(&format!("terrace_tier_used_bytes{tier}"), 1 << 20);
    is(&format!("terrace_tier_hits_total{tier}"), 1);
    is(&format!("terrace_tier_suspended{tier}"), 0);
    // The allocator of the process is not terrace's here: what it holds is 0, and has a name all the same.
    is("terrace_host_in_use_bytes{process=\"main\"}", terrace::stats().in_use as u64);
    assert!(value(&text, "terrace_manager_uptime_seconds{manager=\"cache\"}") > 0.0);
    assert!(!text.contains("terrace_device_capacity_bytes{device=\"gpu\",memory=\"graphs\"}"), "no limit, no sample");
}

#[test]
fn samples_of_a_name_stand_together_under_one_description() {
    let metrics = Metrics::new();
    for label in ["a", "b", "c"] {
        metrics.pool(label, || Some(scratch())).expect("a new label");
    }
    let text = metrics.open_metrics();
    let mut families = HashSet::new();
    let mut family = "";
    for line in text.lines() {
        match line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            Some((name, help)) => {
                assert!(families.insert(name) && help.ends_with('.'), "{line}");
                family = name;
            }
            None if line.starts_with('#') => {}
            None => assert!(line.starts_with(family), "{line} stands under {family}"),
        }
    }
    assert!(families.len() > 20 && text.ends_with("# EOF\n"), "{text}");
    assert_eq!(text.matches("terrace_pool_in_use_bytes{").count(), 3);
}

#[test]
fn what_was_dropped_is_reported_no_more() {
    let (metrics, device) = (Metrics::new(), Device::host());
    let manager = Manager::builder().memory(4 << 20).build().expect("it is built");
    metrics.device("gpu", &device).expect("a new label");
    metrics.manager("cache", &manager).expect("a new label");
    assert_eq!(metrics.device("gpu", &device), Err(MetricsError::LabelInUse("gpu".into())));
    let both = metrics.open_metrics();
    assert!(both.contains("device=\"gpu\"") && both.contains("manager=\"cache\""), "{both}");
    drop(manager);
    let one = metrics.open_metrics();
    assert!(one.contains("device=\"gpu\"") && !one.contains("manager=\"cache\""), "{one}");
    drop(device);
    let again = Device::host();
    metrics.device("gpu", &again).expect("the label is free again, before any scrape saw that");
    assert!(metrics.remove("gpu") && !metrics.remove("gpu"));
    assert!(!metrics.open_metrics().contains("gpu"));
}

#[test]
fn labels_are_checked_and_escaped() {
    let metrics = Metrics::new();
    assert_eq!(metrics.pool("", || None), Err(MetricsError::EmptyLabel));
    metrics.pool("a \"b\"\n\\", || Some(scratch())).expect("any text is a label");
    let text = metrics.open_metrics();
    assert_eq!(value(&text, r#"terrace_pool_in_use_bytes{pool="a \"b\"\n\\"}"#), 4096.0);
    let error = metrics.pool("a \"b\"\n\\", || None).expect_err("in use").to_string();
    assert!(error.contains("give each source a label of its own"), "{error}");
}

#[test]
fn a_source_that_panics_costs_its_own_samples() {
    let metrics = Metrics::new();
    metrics.pool("bad", || panic!("a source, on purpose")).expect("a new label");
    metrics.pool("good", || Some(scratch())).expect("a new label");
    for scrapes in 1..3 {
        let text = metrics.open_metrics();
        assert_eq!(value(&text, "terrace_pool_in_use_bytes{pool=\"good\"}"), 4096.0);
        assert_eq!(value(&text, "terrace_metrics_source_panics_total"), f64::from(scrapes));
        assert!(!text.contains("bad"), "{text}");
    }
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let (metrics, device) = (Metrics::new(), Device::host());
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(4 << 20).directory_of(directory.path(), 64 << 20);
    let manager = builder.build().expect("it is built");
    metrics.host("main").expect("a new label");
    metrics.device("gpu", &device).expect("a new label");
    metrics.manager("cache", &manager).expect("a new label");
    metrics.pool("scratch", || Some(scratch())).expect("a new label");
    let command = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else {
        println!("SKIP promtool_finds_nothing_to_complain_about: apt-get install prometheus");
        return;
    };
    let text = metrics.prometheus_text();
    let written = child.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(matches!(written, Some(Ok(()))) && output.status.success() && said.is_empty(), "{said}");
}
