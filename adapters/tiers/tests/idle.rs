//! An idle manager takes no processor time and leaves no thread. Alone in its process, as it measures all of it.
#![cfg(target_os = "linux")]

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use terrace_file::EngineKind;
use terrace_tiers::{Buffer, Manager};

const MIB: u64 = 1 << 20;

/// For each engine.
const IDLE: Duration = Duration::from_millis(2500);

/// At most how often the manager's threads wake in that time: ten ticks, and as many times more.
const WAKES: u64 = 20;

/// At most a twentieth of the time. How long a tick takes is the machine's: 0.3 to 3 ms were seen.
const SHARE: u32 = 20;

/// Processor time of this process. Waiting does not count.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How often threads of the manager have gone to sleep.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let states = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let own = states.filter(|state| state.starts_with("Name:\tterrace"));
    let count = |state: &str| {
        state.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    own.map(|state| count(&state).expect("the system counts them")).sum()
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
        let before = (spent(), sleeps());
        std::thread::sleep(IDLE);
        let (took, woke) = (spent() - before.0, sleeps() - before.1);
        println!("{engine:?}: {took:?} of {IDLE:?}, {woke} wakes");
        assert!(took * SHARE <= IDLE && (1..=WAKES).contains(&woke), "{took:?} of {IDLE:?}, {woke} wakes");
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
