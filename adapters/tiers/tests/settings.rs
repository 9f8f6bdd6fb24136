//! Each setting of a builder has its effect: each test fails when the setting is ignored.
#![cfg(target_os = "linux")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_core::pressure::Level;
use terrace_file::EngineKind;
use terrace_tiers::policy::PolicyKind;
use terrace_tiers::{Buffer, Manager, ManagerBuilder, Preset};

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
    let shares = capacity(Preset::Training) / capacity(Preset::Constrained);
    assert!((1.8..2.2).contains(&shares), "a quarter and an eighth: {shares}");
    let set = Manager::builder().memory(8 * MIB).preset(Preset::Training).build().expect("it is built");
    assert_eq!(set.tiers()[0].view.capacity, 8 * MIB, "a preset changes nothing that was set");
}

#[test]
fn what_is_out_of_bounds_is_refused_before_anything_is_opened() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("not made");
    let refused = |builder: ManagerBuilder| {
        let error = builder.directory(&path).build().map(drop).expect_err("out of bounds").to_string();
        assert!(!path.exists(), "{error}");
        error
    };
    assert!(refused(Manager::builder().chunk(5000)).starts_with("chunk takes a multiple of 4KiB"));
    let share = refused(Manager::builder().share_of_disk(1.5));
    assert_eq!(share, "share_of_disk takes a number above 0, at most 1");
}

#[test]
fn a_share_of_the_disk_may_be_chosen() {
    let directory = tempfile::tempdir().expect("a directory");
    let capacity = |builder: ManagerBuilder, name: &str| {
        let manager = builder.memory(8 * MIB).directory(directory.path().join(name)).build().expect("it is built");
        manager.tiers()[1].view.capacity as f64
    };
    let usual = capacity(Manager::builder(), "usual");
    let tenth = capacity(Manager::builder().preset(Preset::Constrained), "constrained") / usual;
    assert!((0.3..0.5).contains(&tenth), "a tenth and a quarter, others write meanwhile: {tenth}");
    let half = capacity(Manager::builder().share_of_disk(0.05), "chosen") / usual;
    assert!((0.15..0.25).contains(&half), "a twentieth and a quarter: {half}");
}

#[test]
fn the_engine_is_the_one_that_was_chosen() {
    let threads = |engine: EngineKind| {
        let directory = tempfile::tempdir().expect("a directory");
        let manager =
            Manager::builder().memory(8 * MIB).directory_of(directory.path(), 64 * MIB).engine(engine).build();
        let names = std::fs::read_dir("/proc/self/task")
            .expect("threads")
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        let names: Vec<String> = names.collect();
        drop(manager);
        names.iter().filter(|name| name.trim() == "terrace-file").count()
    };
    assert!(threads(EngineKind::Threads) > 0, "a pool of threads, also where io_uring works");
}

#[test]
fn settings_that_can_change_do_and_others_say_that_they_cannot() {
    let manager = Manager::builder().memory(8 * MIB).build().expect("it is built");
    let refused = |name: &str, value: &str| manager.set(name, value).expect_err("refused").to_string();
    let buffers: Vec<Buffer> = (0..4).map(|_| manager.allocate(MIB).expect("room")).collect();
    manager.set("pinned_cap", "2MiB").expect("it can be changed");
    let leases: Vec<_> = buffers.iter().map(Buffer::lease_best).collect();
    assert_eq!(leases.iter().filter(|lease| lease.is_ok()).count(), 2);
    drop(leases);
    drop(buffers);
    manager.set("memory", " 4 MiB ").expect("it can be changed");
    assert_eq!(manager.tiers()[0].view.capacity, 4 * MIB);
    assert_eq!(refused("memory", "9MiB"), "memory can be at most the 8388608 bytes that the manager was built with");
    assert_eq!(refused("memory", "lots"), "memory takes whole bytes below 2^64, such as 512MiB or 12G");
    assert_eq!(refused("memry", "1MiB"), "`memry` is no setting of a manager; `memory` is");
    let fixed = "`policy` is fixed once a manager is built; memory, min_free and pinned_cap can be changed";
    assert_eq!(refused("policy", "lru"), fixed);
    assert_eq!(manager.tiers()[0].view.capacity, 4 * MIB, "a bad value changes nothing");
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
