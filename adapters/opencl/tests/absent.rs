//! Machines without OpenCL, with a broken library, a wrong one, one that lacks a function, without a driver; forked children. Each is
//! a child process, which prints what it was told: it ends well, and nothing panics.

#![cfg(unix)]

mod common;

use common::opened;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_device::{Backend, Device, DeviceBuffer, DeviceOptions, MemoryKind};
use terrace_opencl::{OpenClBackend, OpenClError, OpenClMemory, functions};

#[allow(dead_code, reason = "its `main` is the example's")]
#[path = "../examples/kernel.rs"]
mod kernel;

/// Set in the child.
const CHILD: &str = "TERRACE_TEST_OPENCL_ABSENT";

/// The library's file, of which copies are made.
const NAME: &str = "libOpenCL.so.1";

/// In a child: opens a device with each kind of memory, and prints what came of it. Elsewhere: that the answer holds.
#[test]
fn what_is_told_is_told_again() {
    let told = |memory| {
        let backend = OpenClBackend::open_with(0, memory)?;
        Ok::<_, OpenClError>(format!("opened {:?}, {:?}", backend.memory_kind(), backend.description().capabilities))
    };
    let (first, again) = (told(OpenClMemory::Buffers), told(OpenClMemory::Buffers));
    assert_eq!(first, again);
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for memory in common::ALL {
        match told(memory) {
            Ok(opened) => println!("told: {opened}"),
            Err(error) => println!("told: {error} <{error:?}>"),
        }
    }
    println!("devices: {:?}", OpenClBackend::devices().map(|devices| devices.len()));
    let mut said = Vec::new();
    kernel::run(&mut said).expect("the example ends well");
    println!("example: {}", String::from_utf8_lossy(&said));
}

/// One child or copy at a time: a program that is still open for writing, in a child between its fork and its start, cannot be
/// started.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a child says, of this program or a copy.
fn child(program: &Path, variables: &[(&str, &Path)]) -> String {
    let mut command = Command::new(program);
    command.args(["--exact", "what_is_told_is_told_again", "--nocapture"]).env(CHILD, "1");
    command.envs(variables.iter().copied());
    let output = {
        let _alone = alone();
        command.output().expect("it runs")
    };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !errors.contains("panicked"), "{text}{errors}");
    text.into_owned()
}

fn own() -> PathBuf {
    std::env::current_exe().expect("our own path")
}

/// A folder of this test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("terrace-opencl-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder of our own");
        Self(path)
    }

    /// A copy of a file in which one text stands for another, as long.
    fn copy(&self, of: &Path, name: &str, from: &[u8], to: &[u8]) -> PathBuf {
        let mut bytes = fs::read(of).expect("it is read");
        let places: Vec<usize> = (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from)).collect();
        assert!(!places.is_empty() && from.len() == to.len(), "{} in {}", from.escape_ascii(), of.display());
        places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
        let path = self.0.join(name);
        let _alone = alone();
        fs::write(&path, bytes).expect("it is written");
        fs::set_permissions(&path, fs::metadata(of).expect("it is there").permissions()).expect("executable");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The program itself, asking for a library of another name: absent on every machine.
#[test]
#[cfg(target_os = "linux")]
fn no_library_is_an_error_that_says_what_to_install() {
    let folder = Folder::new("absent");
    // Made of `NAME` at run time: as a literal it would stand in the copied program already.
    let absent = NAME.replace("Open", "None");
    let said = child(&folder.copy(&own(), "program", NAME.as_bytes(), absent.as_bytes()), &[]);
    assert_eq!(said.matches("told: no OpenCL: libNoneCL.so.1 cannot be loaded (").count(), 3, "{said}");
    assert!(said.contains("cannot open shared object file") && said.contains("pocl-opencl-icd"), "{said}");
    assert!(said.contains("<NoLibrary {") && said.contains("devices: Err(NoLibrary"), "{said}");
    assert!(said.contains("example: No kernel was launched: no OpenCL: "), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_broken_library_is_an_error_that_says_why() {
    let folder = Folder::new("broken");
    for content in ["", "not a library at all, though longer than the header of one would be: 64 bytes or so"] {
        fs::write(folder.0.join(NAME), content).expect("it is written");
        let said = child(&own(), &[("LD_LIBRARY_PATH", &folder.0)]);
        assert_eq!(said.matches("told: no OpenCL: libOpenCL.so.1 cannot be loaded (").count(), 3, "{said}");
        assert!(said.contains("file too short") || said.contains("invalid ELF header"), "{said}");
        assert!(said.contains("example: No kernel was launched: no OpenCL: "), "{said}");
    }
}

/// A file of this process by a part of its name.
#[cfg(target_os = "linux")]
fn mapped(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").expect("it is read");
    let path = maps.lines().find(|line| line.contains(name))?.split_whitespace().last()?;
    Some(path.into())
}

#[test]
#[cfg(target_os = "linux")]
fn a_wrong_library_is_an_error_that_names_it() {
    let wrong = mapped("libc.so").expect("the C library");
    let said = child(&own(), &[("OPENCL_DYLIB_PATH", &wrong)]);
    let told = format!("told: {} is not OpenCL 1.2: it has no function clGetPlatformIDs", wrong.display());
    assert_eq!(said.matches(&told).count(), 3, "{said}");
    // Its own, not the next in the list: what is named and wrong is told.
    assert!(said.contains("<MissingSymbol {") && said.contains("example: No kernel was launched: /"), "{said}");
}

/// Copies of the library, each without one function.
#[test]
#[cfg(target_os = "linux")]
fn a_library_without_a_function_is_told_or_does_without() {
    const TEST: &str = "a_library_without_a_function_is_told_or_does_without";
    if opened(TEST, OpenClMemory::FineSvm).is_none() {
        return;
    }
    let (library, folder) = (mapped("libOpenCL.so").expect("it is loaded"), Folder::new("without"));
    assert!(functions().count() > 35, "a table of functions");
    for function in functions() {
        let name = format!("\0{}\0", function.symbol);
        let copy = folder.copy(&library, "libCopy.so", name.as_bytes(), name.replace("\0cl", "\0xx").as_bytes());
        let said = child(&own(), &[("OPENCL_DYLIB_PATH", &copy)]);
        if function.required {
            let told = format!("told: {} is not OpenCL 1.2: it has no function {};", copy.display(), function.symbol);
            assert_eq!(said.matches(&told).count(), 3, "{}: {said}", function.symbol);
        } else {
            // Prefetches are ignored; without shared virtual memory there are buffers.
            let svm = function.symbol == "clEnqueueSVMMigrateMem";
            assert!(said.contains("told: opened Buffers"), "{}: {said}", function.symbol);
            assert_eq!(said.contains("told: opened FineSvm"), svm, "{}: {said}", function.symbol);
            assert!(!said.contains("CONCURRENT_MANAGED"), "it could not be prefetched: {said}");
            assert_eq!(said.contains("MANAGED"), svm, "{}: {said}", function.symbol);
            assert_eq!(said.contains("has no fine-grained shared virtual memory"), !svm, "{}: {said}", function.symbol);
        }
    }
}

#[test]
fn no_driver_is_an_error_that_says_where_to_look() {
    const TEST: &str = "no_driver_is_an_error_that_says_where_to_look";
    if opened(TEST, OpenClMemory::Buffers).is_none() {
        return;
    }
    let folder = Folder::new("no-driver");
    let said = child(&own(), &[("OCL_ICD_VENDORS", &folder.0)]);
    assert_eq!(said.matches("told: OpenCL sees no device: look at `clinfo -l`").count(), 3, "{said}");
    assert!(said.contains("devices: Ok(0)") && said.contains("example: No kernel was launched"), "{said}");
}

#[test]
fn there_is_no_device_behind_the_last() {
    let Some(backend) = opened("there_is_no_device_behind_the_last", OpenClMemory::Buffers) else { return };
    let devices = OpenClBackend::devices().expect("it opened a moment ago");
    assert_eq!(devices[0].name, backend.description().name);
    let found = devices.len() as u32;
    let error = OpenClBackend::open(found).expect_err("behind the last");
    assert!(error.to_string().contains(&format!("the last one is {}", found - 1)), "{error}");
}

/// A child is refused before it waits for what another thread of its parent held: here the library, while it is loaded.
#[test]
#[cfg(target_os = "linux")]
fn a_child_forked_while_the_library_is_loaded_is_refused() {
    const TEST: &str = "a_child_forked_while_the_library_is_loaded_is_refused";
    let Some(pipe) = std::env::var_os(CHILD) else {
        let folder = Folder::new("pipe");
        let (path, mut command) = (folder.0.join("libPipe.so"), Command::new(own()));
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: a text that lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        command.args(["--exact", TEST, "--nocapture"]).env("OPENCL_DYLIB_PATH", &path).env(CHILD, &path);
        let output = {
            let _alone = alone();
            command.output().expect("it runs")
        };
        let text = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success() && text.contains("the child ended with 0"), "{text}");
    };
    let loads = std::thread::spawn(|| OpenClBackend::devices().map(|_| ()));
    // Opened once the other thread reads the library, which it does until this end is closed.
    let writer = fs::OpenOptions::new().write(true).open(pipe).expect("the other end is read");
    // SAFETY: the child ends by `_exit`, or by the alarm.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: without a handler it ends the process.
        unsafe { libc::alarm(20) };
        let refused = OpenClBackend::devices().is_err_and(|error| error.to_string().contains("child of the process"));
        // SAFETY: ends the child without the parent's handlers.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: the child was made above; the out parameter lives through the call.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    println!("the child ended with {status}");
    drop(writer);
    _ = loads.join().expect("no panic");
}

/// A child has none of the driver's threads: no call of it reaches the driver, and its copies are dropped quietly.
#[test]
fn a_forked_child_is_refused() {
    const TEST: &str = "a_forked_child_is_refused";
    if std::env::var_os(CHILD).is_none() {
        if opened(TEST, OpenClMemory::Buffers).is_some() {
            let (mut command, _alone) = (Command::new(own()), alone());
            let output = command.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("the child ended with 0"), "{text}");
        }
        return;
    }
    let backend = OpenClBackend::open(0).expect("it opened a moment ago");
    let device = Device::open(backend.clone(), DeviceOptions::default()).expect("a device");
    let stream = device.stream().expect("a stream");
    let buffer = DeviceBuffer::from_slice(&device, &stream, &[1_u8; 1000]).expect("room");
    // SAFETY: the child ends by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let forked = |told: String| told.contains("child of the process");
        let mut right = backend.take(MemoryKind::Device, 4096).is_err_and(|fault| fault.is_fatal());
        right &= backend.create_stream().is_err_and(|fault| fault.is_fatal());
        right &= buffer.to_vec().is_err_and(|error| forked(error.to_string()));
        right &= OpenClBackend::open(0).is_err_and(|error| forked(error.to_string()));
        drop((buffer, stream, device, backend));
        // SAFETY: ends the child without the parent's handlers.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = -1;
    // SAFETY: the child was made above; the out parameter lives through the call.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    println!("the child ended with {status}");
    assert_eq!(buffer.to_vec().expect("the parent's works on"), [1; 1000]);
}
