//! What `terrace top` costs the program that it looks at.
//!
//! ```sh
//! cargo build --release -p terrace-capi && cargo build -p terrace-cli
//! cargo run -p terrace-cli --example top_cost -- target/release/libterrace_malloc.so
//! ```
//!
//! A program that allocates and frees a million blocks a second, under tmux alone and under `terrace top`, by turns: seven rounds of
//! each; the median of the processor time, and the ratio of each round. Needs tmux.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pairs of an allocation and a free in one run, about five seconds.
const PAIRS: u64 = 5_000_000;
const ROUNDS: usize = 7;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("--work") => work(Path::new(&words[2])),
        Some(library) => compare(&std::fs::canonicalize(library).expect("the library")),
        None => eprintln!("give the path of libterrace_malloc.so"),
    }
}

/// Allocates and frees, with some work between, and writes the processor time and the wall time in seconds to a file.
fn work(result: &Path) {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Blocks of 16 bytes to 4 KiB, one in 4096 of 64 KiB: caches run empty and full, and large blocks come and go.
    let mut blocks: Vec<Vec<u8>> = (0..8192).map(|_| Vec::new()).collect();
    let start = Instant::now();
    for pair in 0..PAIRS {
        let bits = random();
        let bytes = if bits % 4096 == 0 { 65536 } else { 16 << (bits >> 20 & 7) | (bits >> 30 & 15) as usize };
        let mut block = Vec::with_capacity(bytes);
        block.push(bits as u8);
        blocks[(bits >> 40) as usize % 8192] = block;
        // The program's own work: a million pairs a second are left.
        let mut sum = pair;
        (0..1000).for_each(|step| sum = std::hint::black_box(sum.wrapping_mul(31) + step));
    }
    let wall = start.elapsed().as_secs_f64();
    std::fs::write(result, format!("{} {wall}", processor_seconds())).expect("the result");
}

/// Processor time of this process, user and system.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("schedstat");
    text.split(' ').next().and_then(|time| time.parse::<f64>().ok()).expect("a number") / 1e9
}

fn compare(library: &Path) {
    let own = std::env::current_exe().expect("this program");
    let terrace = own.parent().and_then(Path::parent).expect("the target folder").join("terrace");
    let (own, library, terrace) = (own.display(), library.display(), terrace.display());
    let result = std::env::temp_dir().join(format!("terrace-top-cost-{}", std::process::id()));
    let alone = format!("LD_PRELOAD={library} {own} --work {}", result.display());
    let under = format!("{terrace} top --library {library} -- {own} --work {}", result.display());
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // The one that begins alternates.
        let mut times = [0.0; 2];
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let (processor, wall) = run([&alone, &under][which], &result);
            times[which] = processor;
            println!(
                "{}: {processor:.3} s, {:.2} million pairs a second",
                ["alone", "top  "][which],
                PAIRS as f64 / wall / 1e6
            );
        }
        rounds.push(times);
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let [alone, under] = [0, 1].map(|which| median(rounds.iter().map(|times| times[which]).collect()));
    let ratio = median(rounds.iter().map(|times| times[1] / times[0]).collect());
    println!("median: alone {alone:.3} s, under top {under:.3} s; median of the rounds' ratios {ratio:.4}");
}

/// Runs a command in a terminal of tmux until it has written its result.
fn run(command: &str, result: &PathBuf) -> (f64, f64) {
    _ = std::fs::remove_file(result);
    // A server of its own: one that was just told to end may still be there.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let server = format!("terrace-top-cost-{}-{}", std::process::id(), RUNS.fetch_add(1, Relaxed));
    let tmux = |words: &[&str]| Command::new("tmux").args(["-L", &server]).args(words).output().expect("tmux");
    let started = tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", command]);
    assert!(started.status.success(), "tmux: {}", String::from_utf8_lossy(&started.stderr));
    let numbers = loop {
        std::thread::sleep(Duration::from_millis(100));
        let text = std::fs::read_to_string(result).unwrap_or_default();
        let numbers: Vec<f64> = text.split(' ').filter_map(|number| number.parse().ok()).collect();
        if let [processor, wall] = numbers[..] {
            break (processor, wall);
        }
    };
    tmux(&["kill-server"]);
    numbers
}
