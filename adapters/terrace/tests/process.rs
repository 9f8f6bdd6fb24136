//! The manager of the whole process: made once, ended once. A program of its own, since there is one in a process.
#![cfg(target_os = "linux")]

mod again;

use again::{is_again, said};
use terrace::Manager;
use terrace::process::{end_manager, manager, set_manager};

const MIB: u64 = 1 << 20;

#[test]
fn all_callers_share_one_manager_until_it_is_ended() {
    let first = manager().expect("it is built");
    let buffer = first.allocate(100).expect("room");
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(|| manager().expect("it is there").list().len())).collect();
    assert!(threads.into_iter().all(|thread| thread.join().expect("no panic") == 1), "each sees the buffer");
    let own = Manager::builder().memory(MIB).build().expect("it is built");
    let own = set_manager(own).expect_err("there is one");
    assert!(end_manager() && !end_manager());
    buffer.write(0, b"it lives on").expect("its manager is still there");
    set_manager(own).expect("there is none");
    let second = manager().expect("it is there");
    assert_eq!((second.list().len(), second.tiers()[0].view.capacity), (0, MIB));
    assert!(end_manager());
}

/// The same program, with variables: what a manager of the process is made of.
fn program(variables: &[(&str, &str)]) -> String {
    said("prints_its_manager", variables)
}

#[test]
fn prints_its_manager() {
    if !is_again() {
        return;
    }
    match manager() {
        Ok(made) => println!("SAID {:?}", made.tiers().iter().map(|tier| tier.view.capacity).collect::<Vec<_>>()),
        Err(error) => println!("SAID {error}"),
    }
    // A failure made none: the next call tries again, with what holds then.
    assert!(manager().is_ok() == end_manager());
}

#[test]
fn it_is_made_of_the_configuration_that_is_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let tier = folder.path().join("tier");
    let directory = tier.to_str().expect("a path");
    let made =
        program(&[("TERRACE_MEMORY", "8MiB"), ("TERRACE_DIRECTORIES", directory), ("TERRACE_SHARE_OF_DISK", "0.01")]);
    assert!(made.starts_with("[8388608, ") && tier.exists(), "{made}");
    let bad = program(&[("TERRACE_MEMORY", "lots")]);
    assert!(bad.starts_with("the process's manager: TERRACE_MEMORY is `lots`; allowed: whole bytes"), "{bad}");
    let absent = program(&[("TERRACE_DIRECTORIES", "/proc/nowhere")]);
    assert!(absent.starts_with("the process's manager: "), "{absent}");
}
