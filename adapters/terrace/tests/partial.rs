//! Files that are whole or absent: no file that was there before is written, whatever its name.

use std::fs;
use std::io::{Read, Write};
use terrace::recording::Partial;

fn read(path: &std::path::Path) -> String {
    let mut text = String::new();
    fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)).expect("it can be read");
    text
}

#[test]
fn two_that_are_written_at_once_do_not_write_one_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.csv");
    let (first, mut one) = Partial::create(&path).expect("room");
    let (second, mut other) = Partial::create(&path).expect("room");
    one.write_all(b"the first").expect("written");
    other.write_all(b"the second").expect("written");
    assert!(!path.exists());
    first.keep().expect("kept");
    assert_eq!(read(&path), "the first");
    second.keep().expect("kept");
    assert_eq!(read(&path), "the second");
    drop(Partial::create(&path).expect("room"));
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing else is left");
}

#[cfg(unix)]
#[test]
fn a_link_under_a_name_that_was_foreseen_is_not_followed() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().expect("a directory");
    let victim = directory.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    let out = directory.path().join("out");
    fs::create_dir(&out).expect("made");
    let names = || fs::read_dir(&out).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    // The name that one has is not the name of the next.
    let partial = Partial::create(&out.join("trace.csv")).expect("room").0;
    let seen: Vec<_> = names().collect();
    drop(partial);
    let foreseen = format!(".trace.csv.{}.partial", std::process::id());
    for name in seen.into_iter().chain([foreseen.into()]) {
        symlink(&victim, out.join(name)).expect("a link");
    }
    let (partial, mut file) = Partial::create(&out.join("trace.csv")).expect("room");
    file.write_all(b"bytes").expect("written");
    partial.keep().expect("kept");
    assert_eq!((read(&victim), read(&out.join("trace.csv"))), ("precious".into(), "bytes".into()));
}

#[cfg(unix)]
#[test]
fn a_file_has_the_rights_of_any_other_and_keeps_those_it_had() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let mode = |name: &str| fs::metadata(directory.path().join(name)).expect("there").permissions().mode() & 0o777;
    fs::write(directory.path().join("usual"), "").expect("written");
    let make = |name: &str| Partial::create(&directory.path().join(name)).and_then(|(partial, _)| partial.keep());
    make("new").expect("kept");
    assert_eq!(mode("new"), mode("usual"));
    fs::set_permissions(directory.path().join("new"), fs::Permissions::from_mode(0o640)).expect("set");
    make("new").expect("kept");
    assert_eq!(mode("new"), 0o640);
    let long = "n".repeat(255);
    make(&long).expect("a name as long as names may be");
    assert!(directory.path().join(long).exists());
}

/// Syncs, as the kernel is asked for them: of the file before it has its name, and of the directory after.
#[cfg(target_os = "linux")]
#[test]
fn a_file_and_its_name_are_durable_once_it_is_kept() {
    use std::process::Command;
    const KEPT: &str = "TERRACE_TEST_OF_KEEPING";
    if let Some(path) = std::env::var_os(KEPT) {
        let (partial, mut file) = Partial::create(path.as_ref()).expect("room");
        file.write_all(b"bytes").expect("written");
        return partial.keep().expect("kept");
    }
    if !Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success()) {
        return println!("SKIP a_file_and_its_name_are_durable_once_it_is_kept: strace cannot trace here");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("a path").join("trace.csv");
    let told = tempfile::NamedTempFile::new().expect("a file");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-e", "trace=fsync,renameat2,renameat,rename", "-o"]).arg(told.path());
    command.arg(std::env::current_exe().expect("this test"));
    command.args(["--exact", "a_file_and_its_name_are_durable_once_it_is_kept"]).env(KEPT, &path);
    assert!(command.output().expect("it runs").status.success());
    let calls = read(told.path());
    let at = |what: &str| calls.find(what).unwrap_or_else(|| panic!("no {what} in:\n{calls}"));
    let parent = format!("{}>)", path.parent().expect("a directory").display());
    assert!(at(".partial>)") < at("rename") && at("rename") < at(&parent), "{calls}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_in_shared_memory_is_replaced_as_any_other() {
    use std::os::unix::fs::MetadataExt;
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = directory.path().join("page");
    fs::write(&path, "before").expect("written");
    let inode = || fs::metadata(&path).expect("there").ino();
    let old = inode();
    let (partial, mut file) = Partial::create(&path).expect("room");
    file.write_all(b"half").expect("written");
    assert_eq!(read(&path), "before");
    partial.keep().expect("kept");
    assert_eq!((read(&path), inode() == old), ("half".into(), false));
}
