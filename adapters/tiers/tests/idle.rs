//! An idle manager takes no processor time and leaves no thread. Alone in its process, as it measures all of it.
#![cfg(target_os = "linux")]

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use terrace_file::EngineKind;
use terrace_tiers::{Buffer, Manager};

const MIB: u64 = 1 << 20;

/// For each engine.
const IDLE: Duration = Duration::from_millis(2500);

/// At most a five-hundredth of the time: 0.01 s of 5 s.
const SHARE: u32 = 500;

/// Processor time of this process. Waiting does not count.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Names of threads, as far as the system keeps them.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().into()).filter(|name: &String| name.starts_with("terrace")).collect()
}

#[test]
fn an_idle_manager_takes_no_time_and_the_last_handle_takes_all_threads_with_it() {
    for engine in [EngineKind::Best, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = Manager::builder().memory(4 * MIB).directory_of(directory.path(), 64 * MIB).engine(engine);
        let manager = manager.build().expect("it is built");
        let buffers: Vec<Buffer> = (0..8).map(|_| manager.allocate(MIB).expect("room")).collect();
        buffers.iter().for_each(|buffer| buffer.write(0, &[1; 5000]).expect("written"));
        let named = manager.allocate_named("one", MIB).expect("room");
        manager.sync(&named).expect("durable");
        assert!(threads().len() >= 2, "{:?}", threads());
        // Operations in progress end.
        std::thread::sleep(Duration::from_millis(600));
        // One of three is enough: beside a busy program each look at the machine takes longer.
        let looks = (0..3).map(|_| {
            let before = spent();
            std::thread::sleep(IDLE);
            spent() - before
        });
        let mut looks = looks.inspect(|took| println!("{engine:?}: {took:?} of {IDLE:?}"));
        assert!(looks.any(|took| took * SHARE <= IDLE), "it took more than 1/{SHARE} three times");
        drop((named, manager));
        assert!(!threads().is_empty(), "buffers keep what they need");
        drop(buffers);
        let begun = Instant::now();
        while !threads().is_empty() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(threads(), [""; 0]);
    }
}
