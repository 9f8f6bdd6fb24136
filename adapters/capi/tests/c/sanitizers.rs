//! The library and a C program together under ThreadSanitizer and AddressSanitizer.
//!
//! ThreadSanitizer sees the program's writes into its blocks, and the atomics by which the library passes blocks from thread
//! to thread: if no ordering connects two owners of a block, their writes race. One test weakens an ordering on purpose, to show
//! that ThreadSanitizer finds it.
//!
//! How: nightly's `-Zsanitizer` builds the library; objcopy adds a prefix to its names, since the sanitizer has a malloc of its
//! own; cc compiles the program with the same sanitizer and with macros for those names; both are linked with Rust's copy of
//! the sanitizer's runtime, which is newer than gcc's. Under `--cfg terrace_sanitizer` the library places its address range
//! where the sanitizer allows memory, and skips the last round of a thread's destructors, when the sanitizer's records of the
//! thread are gone.

use crate::compile::CC;
use crate::job::{Job, Run, find, fresh_folder};
use crate::{have, library, number, skip};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Functions that the sanitizer defines too.
const NAMES: [&str; 17] = [
    "malloc",
    "free",
    "cfree",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "malloc_trim",
    "mallinfo",
    "mallinfo2",
    "malloc_stats",
    "mallopt",
];
/// Their prefix in the renamed library.
const PREFIX: &str = "terrace_";

/// A sanitizer, by its compiler option and the file of its runtime.
struct Sanitizer {
    name: &'static str,
    runtime: &'static str,
}

const THREAD: Sanitizer = Sanitizer { name: "thread", runtime: "librustc-nightly_rt.tsan.a" };
const ADDRESS: Sanitizer = Sanitizer { name: "address", runtime: "librustc-nightly_rt.asan.a" };

/// A program of the nightly toolchain.
fn nightly(program: &str) -> Option<Job> {
    let job = Job::new(&find("rustup")?).args(["run", "nightly", program]);
    Some(["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"].iter().fold(job, |job, name| job.without(name)))
}

/// The sanitizer's runtime; `None` where this test cannot run: it prints why.
fn runtime(test: &str, sanitizer: &Sanitizer) -> Option<PathBuf> {
    if number("TERRACE_SANITIZERS", 0) == 0 {
        skip(test, "set TERRACE_SANITIZERS=1: builds the library once for each sanitizer");
        return None;
    }
    if !have(test, &[CC, ("objcopy", "binutils")]) {
        return None;
    }
    let folder = nightly("rustc").map(|job| job.args(["--print", "target-libdir"]).run());
    let folder = folder.filter(|run| run.status.success()).map(|run| PathBuf::from(run.out().trim()));
    let runtime = folder.map(|folder| folder.join(sanitizer.runtime)).filter(|file| file.is_file());
    if runtime.is_none() {
        skip(test, "a nightly toolchain for this computer: rustup toolchain install nightly");
    }
    runtime
}

/// Builds the archive with the sanitizer and renames its functions.
fn renamed_archive(sanitizer: &Sanitizer, folder: &Path, cfg: &str) -> PathBuf {
    let flags =
        format!("-Zsanitizer={} -Cunsafe-allow-abi-mismatch=sanitizer --cfg terrace_sanitizer{cfg}", sanitizer.name);
    // A folder for each test: their flags differ, and they run in parallel.
    let target = folder.with_extension("target");
    // With `--target`, build scripts and macros are built without these flags.
    let host = nightly("rustc").expect("asked for before").args(["-vV"]).run().succeeded().out();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc -vV names the host").to_owned();
    let cargo = nightly("cargo").expect("asked for before").within(Path::new(env!("CARGO_MANIFEST_DIR")));
    let cargo = cargo.without("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", &flags);
    let cargo = cargo.args(["build", "--release", "--quiet", "--package", library::PACKAGE, "--target", &host]);
    cargo.args(["--target-dir".as_ref(), target.as_os_str()]).seconds(1800).run().succeeded();
    let built = target.join(&host).join("release").join(library::ARCHIVE);
    let nm = Job::new(&find("nm").expect("binutils")).args(["--defined-only"]).args([&built]).run();
    let text = nm.out();
    // The C++ operators are renamed too.
    let operators = text
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .filter(|name| ["_Znw", "_Zna", "_Zdl", "_Zda"].iter().any(|start| name.starts_with(start)));
    let mut table = String::new();
    for name in NAMES.into_iter().chain(operators) {
        _ = writeln!(table, "{name} {PREFIX}{name}");
    }
    let (list, archive) = (folder.join("names"), folder.join(library::ARCHIVE));
    std::fs::write(&list, table).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
    let objcopy = Job::new(&find("objcopy").expect("binutils"));
    objcopy.args([format!("--redefine-syms={}", list.display())]).args([&built, &archive]).run().succeeded();
    archive
}

/// Runs `threads.c` with the library under a sanitizer; `cfg` extends the library's flags.
fn threads(test: &str, sanitizer: &Sanitizer, short_threads: &str, cfg: &str) -> Option<Run> {
    let runtime = runtime(test, sanitizer)?;
    let folder = fresh_folder(&test.replace("::", "-"));
    let archive = renamed_archive(sanitizer, &folder, cfg);
    let cc = find(CC.0).expect("asked for before");
    let (object, program) = (folder.join("threads.o"), folder.join("threads"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/threads.c");
    let names = NAMES.map(|name| format!("-D{name}={PREFIX}{name}"));
    let compile = Job::new(&cc).args(["-std=gnu11", "-O1", "-g", "-DSTATIC_PROGRAM", "-c"]).args(names);
    let compile = compile.args([format!("-fsanitize={}", sanitizer.name)]).args([&source]);
    compile.args(["-o".as_ref(), object.as_os_str()]).run().succeeded();
    // Whole archive: no object refers to the runtime's interceptors, and libraries look symbols up by name.
    let link = Job::new(&cc).args([&object, &archive]).args(["-Wl,--whole-archive"]).args([&runtime]);
    let link = link.args(["-Wl,--no-whole-archive", "-rdynamic", "-pthread", "-ldl", "-lm", "-lrt", "-lstdc++"]);
    link.args(["-o".as_ref(), program.as_os_str()]).run().succeeded();
    let job = Job::new(&program).args([short_threads]).env("TSAN_OPTIONS", "halt_on_error=1");
    Some(job.env("ASAN_OPTIONS", "detect_leaks=0").seconds(600).run())
}

#[test]
fn threads_without_races() {
    if let Some(run) = threads("sanitizers::threads_without_races", &THREAD, "500", "") {
        run.passed();
    }
}

#[test]
fn a_weak_ordering_is_found() {
    let cfg = " --cfg terrace_seeded_bug=\"exchange_give_relaxed\"";
    if let Some(run) = threads("sanitizers::a_weak_ordering_is_found", &THREAD, "500", cfg) {
        let text = run.err();
        assert!(!run.status.success() && text.contains("ThreadSanitizer: data race"), "{}", run.report());
    }
}

#[test]
fn addresses() {
    if let Some(run) = threads("sanitizers::addresses", &ADDRESS, "2000", "") {
        run.passed();
    }
}
