//! A real control group with less memory than the manager may have. Skipped where none can be made.

use super::*;
use std::fs;
use std::path::PathBuf;
use terrace_file::{Frame, FramePool};
use terrace_tiers::detect::ControlGroups;

/// Memory of all processes of the group.
const LIMIT: u64 = 128 * MIB;

/// A control group below that of this process. Dropped, it is gone.
struct Group(PathBuf);

impl Group {
    fn new(test: &str) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").expect("Linux says");
        let of = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            let (root, file) = match controllers {
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                "" => ("/sys/fs/cgroup", "memory.max"),
                _ => return None,
            };
            Some((Path::new(root).join(path).join(format!("{}-{}", test.replace(':', "_"), std::process::id())), file))
        };
        let mut why = "no control groups of memory".to_owned();
        for (group, file) in groups.lines().filter_map(of) {
            let group = Self(group);
            match fs::create_dir(&group.0).and_then(|()| fs::write(group.0.join(file), LIMIT.to_string())) {
                Ok(()) => return Some(group),
                Err(error) => why = format!("{}: {error}", group.0.display()),
            }
        }
        println!("SKIP {test}: {why}");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails where it was not made.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs a test again in a control group.
fn passes_in_a_group(test: &str) {
    let Some(group) = Group::new(test) else { return };
    // Not where files may be memory, which would count too.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let enter = format!("echo $$ > '{}/cgroup.procs' && exec \"$@\"", group.0.display());
    passes(again(test, &["sh", "-c", &enter, "sh"], directory.path()));
}

/// The kernel kills the process that runs this if the manager, which may have eight times the group's memory, takes more than
/// the group has.
#[test]
fn a_manager_leaves_a_control_group_its_memory() {
    let test = "group::a_manager_leaves_a_control_group_its_memory";
    let Some(path) = given() else {
        return passes_in_a_group(test);
    };
    let builder = Manager::builder().memory(8 * LIMIT).directory_of(&path, 8 * LIMIT);
    let manager = builder.maintenance_interval(Duration::from_millis(20)).build().expect("it is built");
    let memory = || manager.tiers()[0].view;
    let until = |holds: &dyn Fn() -> bool| {
        in_the_end(|| if holds() { Ok(()) } else { Err(format!("{:?}", memory())) });
    };
    assert!(memory().capacity < LIMIT, "before the first allocation: {:?}", memory());
    let contents = |which: usize| vec![which as u8; MIB as usize];
    let one = |which: usize| {
        let buffer = manager.allocate(MIB).expect("room");
        buffer.write(0, &contents(which)).expect("written");
        buffer
    };
    let buffers: Vec<Buffer> = (0..384).map(one).collect();
    // The manager looks at the machine every 80 ms; what the test took for itself may have made it smaller for a while.
    until(&|| {
        let before = memory().capacity;
        std::thread::sleep(Duration::from_millis(250));
        memory().capacity == before && before > LIMIT / 2
    });
    let full = memory().capacity;
    // A mapping: the system has its memory back as soon as it is dropped.
    let (pool, mut others) = (FramePool::new(32 << 20).expect("addresses"), Vec::new());
    for taken in 1..=32 {
        others.push(pool.take(1 << 20).expect("room"));
        others.iter_mut().for_each(|frame| frame.fill(1));
        let most = full + 8 * MIB - taken * MIB;
        until(&|| memory().used.max(memory().capacity) <= most);
    }
    for (which, buffer) in buffers.iter().enumerate() {
        let mut read = contents(0);
        buffer.read(0, &mut read).expect("read");
        assert!(read == contents(which), "buffer {which} has wrong bytes");
    }
    drop((others, pool));
    until(&|| memory().capacity >= full - 8 * MIB);
    manager.check().expect("sound");
}

/// The kernel charges a group for a huge page until all of it is given back, or it is split.
#[test]
fn memory_of_parts_of_huge_pages_goes_back() {
    let test = "group::memory_of_parts_of_huge_pages_goes_back";
    if given().is_none() {
        return passes_in_a_group(test);
    }
    let used = || ControlGroups::read(Path::new("/")).least_room().expect("a limit").used_bytes;
    let pool = FramePool::sparse(64 << 20).expect("addresses");
    let mut frames: Vec<Frame> = (0..64).map(|_| pool.take(1 << 20).expect("room")).collect();
    frames.iter_mut().for_each(|frame| frame.fill(1));
    let full = used();
    let mut at = 0;
    frames.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    pool.trim();
    let half = used();
    assert!(half + 24 * MIB < full, "{full}, then {half}");
    assert!(frames.iter().all(|frame| frame.iter().all(|byte| *byte == 1)));
}
