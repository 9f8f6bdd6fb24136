//! PyTorch itself: its uses of device memory, and recorded runs and hostile patterns by its own calls, with its own allocator, with
//! expandable segments, and with terrace.
//!
//! ```text
//!   session.py ──▶ PASS lines of each allocator and machine ──▶ tests/data/pytorch_session.txt
//!              └─▶ PyTorch's calls of terrace's hooks ─────────▶ tests/data/pytorch_hooks.txt     replayed by terrace-torch/recorded::
//!   device_calls --steps ──▶ runs.py ──▶ calls, bytes, refusals ▶ tests/data/pytorch_runs.csv      held by device_scenarios::the_models_
//! ```
//!
//! Promises upward: `pytorch::session` and `pytorch::runs` hold when PyTorch still does what is recorded; what it did stands under
//! `target/pytorch/data`, to be copied to `tests/data` where it changed on purpose.
//! Asks from below: wheels of 5 GB; the runtime's stand-in in `tests/simcuda/runtime`.

use super::{Client, build, built, in_words, library};
use crate::command::{cargo, execute, root};
use crate::options::Options;
use crate::report::Report;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const WHEELS: [&str; 2] = ["torch==2.15.0", "numpy==2.4.6"];
const ALLOCATORS: [&str; 3] = ["own", "expandable", "terrace"];
const MACHINES: [&str; 2] = ["two-peers", "two-strangers"];
const DRIVER: &str = "libcuda.so.1";
const RUNTIME: &str = "libterrace_simcudart.so";

/// The step.
pub fn run(options: &Options, report: &mut Report) {
    let folder = root().join("target/pytorch");
    let client = Client { folder, wheels: &WHEELS, modules: "numpy, torch" };
    let names = ["pytorch::session", "pytorch::runs"];
    let stage = match client.python(options) {
        Ok(python) => Stage::set(client.folder, python),
        Err(missing) => return names.iter().for_each(|name| report.skip(name, &missing)),
    };
    match stage {
        Ok(stage) => {
            report.verdict(names[0], stage.session());
            report.verdict(names[1], stage.runs());
        }
        Err(why) => names.iter().for_each(|name| report.fail(name, &why)),
    }
}

/// PyTorch's libraries and ours, where the loader finds them.
struct Stage {
    folder: PathBuf,
    python: PathBuf,
}

impl Stage {
    fn set(folder: PathBuf, python: PathBuf) -> Result<Self, String> {
        library(&folder)?;
        ["terrace-simcudart", "terrace-torch"].iter().try_for_each(|package| build(package))?;
        fs::copy(built("libterrace_simcudart.so"), folder.join(RUNTIME)).map_err(in_words)?;
        let management = folder.join("libnvidia-ml.so.1");
        let _ = fs::remove_file(&management);
        std::os::unix::fs::symlink(RUNTIME, management).map_err(in_words)?;
        fs::create_dir_all(folder.join("data")).map_err(in_words)?;
        Ok(Self { folder, python })
    }

    /// Runs a program of `tests/clients` with an allocator; returns the lines that it said on standard output.
    fn program(&self, name: &str, allocator: &str, words: &[&str]) -> Result<Vec<String>, String> {
        let preload = [DRIVER, RUNTIME].map(|file| self.folder.join(file).display().to_string()).join(":");
        let mut python = Command::new("env");
        // Only the program itself: what starts it stays with the system's libraries.
        python.arg(format!("LD_PRELOAD={preload}")).arg(&self.python);
        python.arg(root().join("tests/clients").join(name)).arg(allocator).args(words);
        python.env("LD_LIBRARY_PATH", &self.folder).env("TERRACE_TORCH_LIBRARY", built("libterrace_torch.so"));
        python.env("PYTHONPATH", root().join("adapters/torch/python")).env("PYTHONWARNINGS", "ignore");
        if allocator == "expandable" {
            python.env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
        }
        let done = execute(&format!("pytorch-{name}-{allocator}"), &mut python);
        let lines = done.output.lines().map(str::to_string).collect();
        done.verdict().map(|()| lines)
    }

    fn session(&self) -> Result<(), String> {
        let mut said = String::new();
        for allocator in ALLOCATORS {
            for machine in MACHINES {
                let lines = self.program("session.py", allocator, &[machine])?;
                let told = lines.iter().filter(|line| line.starts_with("PASS ") || line.starts_with("FAIL "));
                told.for_each(|line| said.push_str(&format!("{allocator}, {machine}: {line}\n")));
            }
        }
        self.same("pytorch_session.txt", &said)?;
        // Addresses and threads differ from run to run, and so do the calls: those that are recorded stay unless they are copied.
        let calls = self.folder.join("data/pytorch_hooks.txt");
        self.program("session.py", "terrace", &[MACHINES[0], &calls.display().to_string()]).map(drop)
    }

    fn runs(&self) -> Result<(), String> {
        let steps = self.folder.join("steps");
        let _ = fs::remove_dir_all(&steps);
        fs::create_dir_all(&steps).map_err(in_words)?;
        let mut example =
            cargo(["run", "--quiet", "--release", "--package", "terrace-tests", "--example", "device_calls"]);
        example.args(["--", "--steps"]).arg(&steps).args(std::env::var_os("TERRACE_TRACES"));
        execute("pytorch-steps", &mut example).verdict()?;
        let mut said = String::from(HEADER);
        for allocator in ALLOCATORS {
            let lines = self.program("runs.py", allocator, &[&steps.display().to_string()])?;
            let mark = format!(",{allocator},");
            lines.iter().filter(|line| line.contains(&mark)).for_each(|line| said.push_str(&format!("{line}\n")));
        }
        self.same("pytorch_runs.csv", &said)
    }

    /// Fails where a file of `tests/data` says something else; what is new is kept beside the step's other files.
    fn same(&self, file: &str, said: &str) -> Result<(), String> {
        let new = self.folder.join("data").join(file);
        fs::write(&new, said).map_err(in_words)?;
        let known = fs::read_to_string(root().join("tests/data").join(file)).unwrap_or_default();
        judge(said, &known).map_err(|why| format!("{}, which is not tests/data/{file}:\n{why}", new.display()))
    }
}

const HEADER: &str = "\
# run,capacity in permille of its peak,allocator,calls of the driver for memory,most bytes reserved,most bytes live,blocks refused
# PyTorch 2.15.0+cu132 on the simulated driver; own: no options; expandable: expandable_segments:True; terrace: terrace_torch.enable()
";

/// Fails for lines that are not known, and for lines that are missing of a run that was at hand (what stands before the first comma).
fn judge(said: &str, known: &str) -> Result<(), String> {
    let of = |text: &str| text.split(',').next().unwrap_or_default().to_string();
    let missing = |from: &str, of: &str| -> Vec<String> {
        from.lines().filter(|line| !of.lines().any(|other| other == *line)).map(str::to_string).collect()
    };
    let ran = |line: &String| said.lines().any(|other| of(other) == of(line));
    let (new, gone) = (missing(said, known), missing(known, said));
    let gone: Vec<String> = gone.into_iter().filter(ran).collect();
    let failed = said.lines().filter(|line| line.contains("FAIL")).count();
    let ran = said.lines().filter(|line| !line.starts_with('#')).count();
    if new.is_empty() && gone.is_empty() && failed == 0 && ran > 0 {
        return Ok(());
    }
    Err(format!("{failed} of {ran} failed; new:\n{}\ngone:\n{}", new.join("\n"), gone.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told() {
        assert_eq!(judge("a\nb\n", "a\nb\n"), Ok(()));
        assert!(judge("a\nc\n", "a\nb\n").is_err_and(|why| why.contains('c')));
        assert!(judge("FAIL a\n", "FAIL a\n").is_err());
        assert!(judge("", "").is_err() && judge("# head\n", "# head\n").is_err(), "nothing ran");
        assert!(judge("a,1\n", "a,1\na,2\n").is_err_and(|why| why.contains("a,2")), "a line of what ran is missing");
        assert_eq!(judge("a,1\n", "a,1\nb,1\n"), Ok(()), "b was not at hand");
    }
}
