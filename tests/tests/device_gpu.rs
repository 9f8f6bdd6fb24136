//! The suite of every device, on a CUDA device where there is one. What ran is written down: driver, device, date, each
//! case by name.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;
use terrace_cuda::Cuda;
use terrace_device::{Backend, Device};
use terrace_tests::device::{CASES, World};

/// A CUDA device alone can show this.
#[test]
fn the_suite_on_a_gpu() {
    let description = match Cuda::open(0) {
        Ok(cuda) => cuda.description().clone(),
        Err(error) => {
            println!("SKIP the_suite_on_a_gpu: {}", error.to_string().replace('\n', " "));
            return;
        }
    };
    let open = |options| {
        let cuda = Cuda::open(0).unwrap_or_else(|error| panic!("it opened a moment ago: {error}"));
        Device::open(cuda, options)
    };
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    let mut transcript = format!("{now}\n{description:#?}\n\n");
    let mut failed = Vec::new();
    for (name, case) in CASES {
        let begun = Instant::now();
        let outcome = case(&World { open: &open, bytes: true });
        let said = outcome.as_ref().err().map_or("ok".to_string(), |wrong| format!("FAILED: {wrong}"));
        // Writing to a string cannot fail.
        let _ = writeln!(transcript, "{name}: {said} ({:.1} ms)", begun.elapsed().as_secs_f64() * 1000.0);
        failed.extend(outcome.err().map(|wrong| format!("{name}: {wrong}")));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results/gpu");
    let device: String = description.name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let file = folder.join(format!("{}-{device}-suite.txt", now.replace(':', "")));
    std::fs::create_dir_all(&folder).expect("a folder for results");
    std::fs::write(&file, transcript).expect("the transcript is written");
    println!("transcript: {}", file.display());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
