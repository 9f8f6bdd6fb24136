//! `terrace shm`: named buffers, who holds them, and what dead holders left.

use crate::common::{Sandbox, stderr, stdout};
use serde_json::Value;
use terrace_shm::{SharedBuffer, Way};

fn name(what: &str) -> String {
    format!("cli-{what}-{}", std::process::id())
}

#[test]
fn every_holder_of_a_buffer_is_shown_with_its_lease() {
    let here = Sandbox::new();
    let (sealed, file) = (name("sealed"), name("file"));
    let buffer = SharedBuffer::create(&sealed, 3 << 20).unwrap();
    let other = SharedBuffer::open(&sealed).unwrap();
    let _in_shm = SharedBuffer::options().way(Way::File).create(&file, 100).unwrap();
    let lease = other.read::<u8>(..).unwrap();
    let output = here.run(&["shm", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| {
        let mut found = report["buffers"].as_array().unwrap().iter().filter(|buffer| buffer["name"] == name);
        found.next().unwrap_or_else(|| panic!("{name} in {report}")).clone()
    };
    let row = of(&sealed);
    assert_eq!((&row["way"], &row["state"], row["bytes"].as_u64()), (&"memfd".into(), &"held".into(), Some(3 << 20)));
    let holders = row["holders"].as_array().unwrap();
    let told: Vec<_> = holders.iter().map(|holder| (holder["creator"].as_bool(), holder["lease"].as_str())).collect();
    assert_eq!(told, [(Some(true), Some("-")), (Some(false), Some("read"))]);
    assert!(holders.iter().all(|holder| holder["pid"] == std::process::id() && holder["alive"] == true));
    assert_eq!((&of(&file)["way"], of(&file)["bytes"].as_u64()), (&"file".into(), Some(100)));
    let one = here.run(&["shm", &sealed]);
    let text = stdout(&one);
    assert!(text.contains("(creator)") && text.contains("3.00 MiB") && !text.contains(&file), "{text}");
    drop(lease);
    drop((buffer, other));
}

#[test]
fn a_name_that_no_buffer_has_is_an_error() {
    let output = Sandbox::new().run(&["shm", "no such buffer"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("no such buffer") && stderr(&output).contains("terrace shm"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_dead_holders_left_is_shown_and_stays() {
    let here = Sandbox::new();
    let name = name("left");
    let buffer = SharedBuffer::options().way(Way::File).create(&name, 10).unwrap();
    let user = buffer.owner();
    let path = format!("/dev/shm/terrace-shm.{user}.{name}");
    // A copy is a file that no process holds, as one that was killed leaves it.
    let copy = format!("{path}.copy");
    std::fs::copy(&path, &copy).unwrap();
    let output = here.run(&["shm", &format!("{name}.copy")]);
    let text = stdout(&output).to_owned();
    let stays = std::fs::remove_file(&copy).is_ok();
    assert!(text.contains("left") && stays, "{text}{}", stderr(&output));
}
