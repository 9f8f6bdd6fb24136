//! `terrace.h` and `libterrace_embedded.a` as a C programmer gets them: compiled, linked and run, on this computer and on
//! an emulated Cortex-M4.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// Warnings are errors: the header has none under any of these.
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"];

fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether all of these programs are installed; if not, prints what to install.
fn have(test: &str, programs: &[(&str, &str)]) -> bool {
    let missing = programs.iter().find(|(program, _)| !is_there(program));
    if let Some((program, package)) = missing {
        println!("SKIP {test}: {program} is not there: apt-get install {package}");
    }
    missing.is_none()
}

/// Builds the library as the README says, in a folder of its own, without the flags of this test's own build; returns the
/// library's folder.
fn library(name: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--quiet", "--package", "terrace-embedded-c", "--target-dir"]).arg(&folder);
    for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"] {
        cargo.env_remove(flags);
    }
    run(cargo.current_dir(HERE).args(options));
    folder.join("release")
}

/// Compiles `host.c` against a library and runs it.
fn host(name: &str, defines: &[&str], features: &[&str]) -> String {
    compiled("host.c", name, defines, features)
}

/// Compiles a program of this folder against a library and runs it.
fn compiled(source: &str, name: &str, defines: &[&str], features: &[&str]) -> String {
    let library = library(features.last().unwrap_or(&"host"), features);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = Command::new("cc");
    cc.args(STRICT).args(["-std=c11", "-D_GNU_SOURCE"]).args(defines).arg("-I").arg(format!("{HERE}/include"));
    cc.arg(format!("{HERE}/tests/{source}")).arg("-o").arg(&program);
    run(cc.arg("-L").arg(library).args(["-lterrace_embedded", "-lpthread", "-ldl", "-lm"]));
    run(&mut Command::new(program))
}

#[test]
fn a_c_program_uses_every_function() {
    if have("a_c_program_uses_every_function", &[("cc", "gcc")]) {
        assert!(host("plain", &[], &[]).starts_with("good: 0 failed, peak 40000"));
    }
}

#[test]
fn the_programs_own_lock_replaces_the_weak_one() {
    if have("the_programs_own_lock_replaces_the_weak_one", &[("cc", "gcc")]) {
        assert!(host("locked", &["-DOWN_LOCK"], &[]).starts_with("good: 0 failed"));
    }
}

#[test]
fn a_checked_library_refuses_a_double_free() {
    if have("a_checked_library_refuses_a_double_free", &[("cc", "gcc")]) {
        assert!(host("checked_program", &["-DCHECKED"], &["--features", "checked"]).starts_with("good: 0 failed"));
    }
}

#[test]
fn a_wide_library_takes_regions_of_any_size() {
    if have("a_wide_library_takes_regions_of_any_size", &[("cc", "gcc")]) {
        let warnings = ["-DWIDE", "-Wno-unused-function", "-Wno-unused-variable"];
        assert!(host("wide_program", &warnings, &["--features", "wide"]).starts_with("good: 0 failed"));
    }
}

#[test]
fn the_smallest_library_has_the_functions_of_c() {
    if have("the_smallest_library_has_the_functions_of_c", &[("cc", "gcc")]) {
        assert_eq!(compiled("small.c", "small_program", &[], &["--features", "small"]), "good: 0 failed\n");
    }
}

#[test]
fn the_smallest_library_can_be_checked() {
    if have("the_smallest_library_can_be_checked", &[("cc", "gcc")]) {
        let checked = compiled("small.c", "small_checked", &["-DCHECKED"], &["--features", "small,checked"]);
        assert_eq!(checked, "good: 0 failed\n");
    }
}

#[test]
fn the_header_is_cplusplus_too() {
    if have("the_header_is_cplusplus_too", &[("c++", "g++")]) {
        let header = format!("{HERE}/include/terrace.h");
        run(Command::new("c++").args(STRICT).args(["-std=c++11", "-fsyntax-only", "-x", "c++", &header]));
    }
}

/// The names of functions in a text: the word before a bracket, on lines that begin with one of `starts`.
fn functions<'a>(text: &'a str, starts: &[&str]) -> Vec<&'a str> {
    let name = |line: &'a str| {
        let rest = starts.iter().find_map(|start| line.trim_start().strip_prefix(start))?;
        let (before, _) = rest.split_once('(')?;
        before.rsplit([' ', '*']).next().filter(|name| name.starts_with("terrace_"))
    };
    let mut names: Vec<_> = text.lines().filter_map(name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_header_declares_what_the_library_defines() {
    let read = |path: &str| std::fs::read_to_string(Path::new(HERE).join(path)).expect(path);
    let (header, lock, both) = (read("include/terrace.h"), read("src/lock.rs"), read("src/malloc.rs"));
    let declared = |header: &str| {
        let lines: Vec<_> = header.lines().filter(|line| line.ends_with(';') && !line.starts_with(' ')).collect();
        functions(&lines.join("\n"), &["int ", "void ", "uintptr_t "]).into_iter().map(String::from).collect::<Vec<_>>()
    };
    let defined = |library: &str| {
        let library = read(library) + &both;
        let mut defined = functions(&library, &["pub extern \"C\" fn ", "pub unsafe extern \"C\" fn "]);
        defined.extend(functions(&lock, &["safe fn "]));
        defined.sort_unstable();
        defined.into_iter().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(declared(&header), defined("src/full.rs"));
    assert_eq!(declared(&header).len(), 19);
    let mut parts = header.split("#ifndef TERRACE_SMALL\n");
    let mut small = String::from(parts.next().unwrap_or_default());
    small.extend(parts.map(|part| part.split_once("#endif\n").map_or(part, |(_, after)| after)));
    assert_eq!(declared(&small), defined("src/small.rs"));
    assert_eq!(declared(&small).len(), 9);
}

#[test]
fn a_c_firmware_runs_on_an_emulated_cortex_m4() {
    let tools = [("arm-none-eabi-gcc", "gcc-arm-none-eabi"), ("qemu-system-arm", "qemu-system-arm"), ("make", "make")];
    let test = "a_c_firmware_runs_on_an_emulated_cortex_m4";
    if !have(test, &tools) {
        return;
    }
    let target = "thumbv7em-none-eabihf";
    let sysroot = run(Command::new("rustc").current_dir(HERE).args(["--print", "target-libdir", "--target", target]));
    if !Path::new(sysroot.trim()).is_dir() {
        return println!("SKIP {test}: rustup target add {target}");
    }
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("firmware");
    let make = |goals: &[&str]| {
        let mut make = Command::new("make");
        for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "MAKEFLAGS"] {
            make.env_remove(flags);
        }
        let build = format!("BUILD={}", build.display());
        run(make.current_dir(HERE).args(["-s", "-C", "../examples/c", &build]).args(goals))
    };
    assert_eq!(make(&[]), "", "`make` alone builds it, and neither compiler nor linker has a warning");
    for goals in [&["run"][..], &["run", "SMALL=1"]] {
        let text = make(goals);
        assert!(text.contains("good: every check passed"), "{text}");
    }
}
