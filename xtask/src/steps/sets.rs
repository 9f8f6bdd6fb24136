//! Feature sets: each package as a user takes it who names that package alone, without its default features.
//!
//! Promises upward: `sets::PACKAGE` holds when all targets of the package compile so and, with `--all`, its unit tests pass. The
//! workspace's own run has all features of all packages at once, `cuda` among them.
//! Asks from below: cargo's metadata, which say which packages there are.

use super::metadata;
use crate::command::{cargo, execute};
use crate::options::Options;
use crate::report::Report;
use serde_json::Value;

/// What only this workspace uses: its tests, its peers, this command.
const INTERNAL: [&str; 3] = ["tests", "benches", "xtask"];

/// What a package cannot be built without, and its default is one of many: cudarc wants one version of CUDA.
const CHOSEN: [(&str, &str); 1] = [("terrace-cuda", "cuda-12080")];

/// Every package that a user can name.
pub fn run(options: &Options, report: &mut Report) {
    let packages = match metadata(&["--no-deps"]) {
        Ok(about) => packages(&about),
        Err(error) => return report.fail("sets::packages", &error),
    };
    for (package, library) in &packages {
        report.verdict(&format!("sets::{package}"), alone(package, options.all.then_some(*library)));
    }
}

/// The package's targets checked, and its unit tests run where it is known whether there is a `library`: cargo refuses `--lib`
/// without one.
fn alone(package: &str, library: Option<bool>) -> Result<(), String> {
    let tests = library.map(|library| if library { &["test", "--lib", "--bins"][..] } else { &["test", "--bins"] });
    for words in [Some(&["check", "--all-targets"][..]), tests].into_iter().flatten() {
        let mut command = cargo(words.iter().copied());
        command.args(["--package", package, "--no-default-features"]);
        let chosen = CHOSEN.iter().filter(|(of, _)| *of == package);
        command.args(chosen.flat_map(|(_, feature)| ["--features", feature]));
        // Here the build is most of the time.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0").env("PROPTEST_CASES", "16");
        execute(&format!("sets-{package}-{}", words[0]), &mut command).verdict()?;
    }
    Ok(())
}

/// The names of packages in folders for users, and whether each has a library.
fn packages(about: &Value) -> Vec<(String, bool)> {
    let root = about["workspace_root"].as_str().unwrap_or_default();
    let package = |package: &Value| {
        let folder =
            package["manifest_path"].as_str()?.strip_prefix(root)?.trim_start_matches('/').split('/').next()?;
        let kinds = package["targets"].as_array().into_iter().flatten().filter_map(|target| target["kind"][0].as_str());
        let library = kinds.into_iter().any(|kind| kind.ends_with("lib"));
        (!INTERNAL.contains(&folder)).then(|| package["name"].as_str().map(|name| (name.into(), library))).flatten()
    };
    about["packages"].as_array().into_iter().flatten().filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_for_users_are_taken_and_others_left() {
        let about = serde_json::json!({"workspace_root": "/w", "packages": [
            {"name": "terrace-core", "manifest_path": "/w/core/Cargo.toml", "targets": [{"kind": ["lib"]}]},
            {"name": "terrace-simcuda", "manifest_path": "/w/tests/simcuda/Cargo.toml"},
            {"name": "terrace-cli", "manifest_path": "/w/adapters/cli/Cargo.toml", "targets": [{"kind": ["bin"]}]},
        ]});
        assert_eq!(packages(&about), [("terrace-core".to_string(), true), ("terrace-cli".to_string(), false)]);
    }
}
