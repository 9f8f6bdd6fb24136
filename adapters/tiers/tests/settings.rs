//! Each setting of a builder has its effect: each test fails when the setting is ignored.
#![cfg(target_os = "linux")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_core::pressure::Level;
use terrace_tiers::policy::PolicyKind;
use terrace_tiers::{Buffer, Manager, Preset};

const MIB: u64 = 1 << 20;

/// Waits until the condition holds.
fn in_the_end(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a buffer that is read repeatedly stays in memory while twelve others are allocated, each written once.
fn stays(policy: PolicyKind) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(8 * MIB).directory_of(directory.path(), 64 * MIB);
    let manager = builder.policy(policy).maintenance_interval(Duration::ZERO).build().expect("it is built");
    let new = |name: &str| {
        let buffer = manager.allocate_named(name, MIB).expect("room");
        buffer.write(0, name.as_bytes()).expect("written");
        buffer
    };
    let kept = new("kept");
    let mut others: Vec<Buffer> = Vec::new();
    for which in 0..16 {
        others.push(new(&format!("before {which}")));
        kept.read(0, &mut [0]).expect("it is there");
    }
    others.extend((0..12).map(|which| new(&format!("after {which}"))));
    manager.list().iter().any(|listed| listed.tier == 0 && listed.name.as_deref() == Some("kept"))
}

#[test]
fn the_policy_decides_which_buffer_leaves() {
    assert!(!(0..3).any(|_| stays(PolicyKind::Lru)), "it is unused for longest");
    assert!((0..3).all(|_| stays(PolicyKind::S3Fifo)), "others leave before they are used a second time");
}

#[test]
fn a_preset_takes_its_share_of_memory() {
    let capacity = |preset| {
        let manager = Manager::builder().preset(preset).build().expect("it is built");
        manager.tiers()[0].view.capacity as f64
    };
    let shares = capacity(Preset::Inference) / capacity(Preset::Training);
    assert!((1.8..2.2).contains(&shares), "a half and a quarter: {shares}");
}

#[test]
fn a_directory_takes_a_quarter_of_what_is_free_if_nothing_else_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let free = || {
        let told = rustix::fs::statvfs(directory.path()).expect("a directory");
        (told.f_bavail * told.f_frsize) as f64
    };
    let before = free();
    let manager = Manager::builder().memory(8 * MIB).directory(directory.path()).build().expect("it is built");
    let share = manager.tiers()[1].view.capacity as f64 / before.max(free());
    assert!((0.15..=0.25).contains(&share), "others write meanwhile, and stores keep something: {share}");
}

#[test]
fn maintenance_goes_on_by_itself_and_not_where_it_is_by_call() {
    let full = |upkeep| {
        let directory = tempfile::tempdir().expect("a directory");
        let builder =
            Manager::builder().memory(16 * MIB).directory_of(directory.path(), 64 * MIB).maintenance_interval(upkeep);
        let manager = builder.build().expect("it is built");
        let buffers: Vec<Buffer> = (0..15).map(|_| manager.allocate(MIB).expect("room")).collect();
        (manager, buffers, directory)
    };
    let used = |manager: &Manager| manager.tiers()[0].view.used;
    let (by_itself, _buffers, _directory) = full(Duration::from_millis(5));
    in_the_end("above 80 %, it empties memory to 60 %", || used(&by_itself) <= 16 * MIB / 10 * 6);
    let (by_call, _buffers, _directory) = full(Duration::ZERO);
    assert_eq!(used(&by_call), 15 * MIB);
    by_call.tick(1);
    in_the_end("a tick empties it", || used(&by_call) <= 16 * MIB / 10 * 6);
}

#[test]
fn pressure_is_told_as_it_rises_and_falls() {
    let told = Arc::<Mutex<Vec<(u8, Level)>>>::default();
    let tell = Arc::clone(&told);
    let on_pressure = move |tier, level| tell.lock().expect("no panic").push((tier, level));
    let builder = Manager::builder().memory(16 * MIB).maintenance_interval(Duration::ZERO).on_pressure(on_pressure);
    let manager = builder.build().expect("it is built");
    let mut buffers: Vec<Buffer> = (0..16).map(|_| manager.allocate(MIB - 4096).expect("room")).collect();
    let so_far = |told: &Mutex<Vec<_>>| told.lock().expect("no panic").clone();
    assert_eq!(so_far(&told), [(0, Level::Elevated), (0, Level::High), (0, Level::Critical)]);
    buffers.truncate(2);
    assert_eq!(so_far(&told).last(), Some(&(0, Level::Normal)));
}
