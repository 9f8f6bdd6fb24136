//! Measuring, on the disk that is here.

use terrace_tiers::detect::Machine;
use terrace_tiers::detect::measure::{DiskMeasureError, Phase, disk};

#[test]
fn a_disk_is_measured_and_nothing_is_left() {
    let here = tempfile::tempdir().expect("a folder");
    let mut phases = Vec::new();
    let mut seen = 0;
    let figures = disk(here.path(), |phase| {
        phases.push(phase);
        // Not even while it is measured has the file a name.
        seen += std::fs::read_dir(here.path()).expect("a folder").count();
    });
    let figures = match figures {
        // A machine with less than 1.6 GB free has nothing to measure with.
        Err(DiskMeasureError::Full { free_bytes }) => return assert!(free_bytes < 1600 << 20),
        figures => figures.expect("figures"),
    };
    assert_eq!((phases, seen), (Phase::ALL.to_vec(), 0));
    assert_eq!(std::fs::read_dir(here.path()).expect("a folder").count(), 0);
    assert!(figures.file_bytes >= 1 << 20 && figures.file_bytes <= 256 << 20, "{figures:?}");
    let rates = [figures.write_bytes_per_s, figures.read_bytes_per_s, figures.random_4k_qd16_iops];
    assert!(rates.iter().all(|&rate| rate > 0) && figures.random_4k_read_p50_ns > 100, "{figures:?}");
    let ratio = figures.random_4k_qd1_iops as f64 / figures.sequential_4k_qd1_iops as f64;
    assert!((ratio / figures.random_over_sequential - 1.0).abs() < 0.2, "{figures:?}");
    let depth = figures.random_4k_qd16_iops as f64 / figures.random_4k_qd1_iops as f64;
    assert!((depth / figures.depth_scaling - 1.0).abs() < 0.2, "{figures:?}");
    assert!(["ring", "threads"].contains(&figures.engine));
    // What it says of itself is taken in.
    let mut machine = Machine::detect(Vec::new());
    let (found, _) = machine.disk_of(here.path()).expect("it is there");
    found.record(Ok(figures));
    assert!(found.measured.is_some() && !found.class.reasons.is_empty());
}

#[test]
fn a_directory_that_takes_no_file_says_so() {
    // Not for root either.
    for (path, why) in [("/proc", "no file can be made"), ("/nowhere/at/all", "No such file")] {
        let error = disk(path.as_ref(), |phase| panic!("{phase} was begun")).expect_err("nothing can be written");
        let text = error.to_string();
        assert!(text.starts_with(path) && text.contains(why) && text.contains("give a directory"), "{text}");
    }
}
