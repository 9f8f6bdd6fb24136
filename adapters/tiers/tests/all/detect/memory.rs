//! Memory: what is read of it, limits of groups, and budgets in which no byte is counted twice.

use super::world::World;
use terrace_tiers::detect::{CpuMemory, Gpu, Machine};

const GIB: u64 = 1 << 30;

fn world() -> World {
    World::new().file("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n").file(
        "proc/pressure/memory",
        "some avg10=1.50 avg60=2.00 avg300=3.00 total=4\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    )
}

fn gpu(device: &str, shares_memory: bool) -> Gpu {
    Gpu { device: device.into(), name: "a GPU".into(), total_bytes: 8 * GIB, free_bytes: Some(7 * GIB), shares_memory }
}

fn cpu(world: &World) -> CpuMemory {
    world.machine(Vec::new()).cpu
}

#[test]
fn memory_and_pressure_are_read_and_what_is_not_told_is_none() {
    let told = cpu(&world());
    assert_eq!((told.total_bytes, told.available_bytes), (Some(8 * GIB), Some(6 * GIB)));
    assert_eq!(told.memory_pressure.map(|pressure| pressure.some.avg10_percent), Some(1.5));
    assert_eq!((told.io_pressure, told.groups.limits.len()), (None, 0));
    let silent = World::new().machine(Vec::new());
    assert_eq!((silent.cpu.total_bytes, silent.budgets[0].bytes), (None, None));
    assert!(silent.budgets[0].reasons[0].contains("does not say"));
}

#[test]
fn groups_of_the_second_version_are_read_up_to_the_mount() {
    let group = "sys/fs/cgroup/user/job";
    let told = cpu(&world()
        .mount("0:20 /sys/fs/cgroup cgroup2 cgroup2 rw")
        .file("proc/self/cgroup", "0::/user/job\n")
        .file(&format!("{group}/memory.max"), "4294967296\n")
        .file(&format!("{group}/memory.current"), "2147483648\n")
        .file(&format!("{group}/memory.stat"), "anon 1\ninactive_file 536870912\nactive_file 1073741824\n")
        .file(&format!("{group}/memory.pressure"), "some avg10=9.00 avg60=0.00 avg300=0.00 total=1\n")
        .file("sys/fs/cgroup/user/memory.max", "max\n")
        .file("sys/fs/cgroup/user/memory.high", "5368709120\n")
        .file("sys/fs/cgroup/user/memory.current", "4294967296\n")
        .file("sys/fs/memory.max", "1\n"));
    let groups = &told.groups;
    let limits: Vec<_> =
        groups.limits.iter().map(|limit| (limit.group.as_str(), limit.limit_bytes, limit.room_bytes)).collect();
    // Files that were read once make room; above the mount there is nothing.
    assert_eq!(limits, [("/sys/fs/cgroup/user/job", 4 * GIB, 3 * GIB), ("/sys/fs/cgroup/user", 5 * GIB, GIB)]);
    assert_eq!(groups.lowest_limit().map(|limit| limit.limit_bytes), Some(4 * GIB));
    assert_eq!(groups.least_room().map(|limit| limit.room_bytes), Some(GIB));
    assert_eq!(groups.memory_pressure.map(|pressure| pressure.some.avg10_percent), Some(9.0));
}

#[test]
fn groups_of_the_first_version_are_read_beside_an_empty_second() {
    let memory = "sys/fs/cgroup/memory";
    let world = world()
        .mount("0:31 /sys/fs/cgroup/memory cgroup cgroup rw,memory")
        .mount("0:32 /sys/fs/cgroup/cpu cgroup cgroup rw,cpu")
        .mount("0:33 /sys/fs/cgroup/unified cgroup2 cgroup2 rw")
        .file("proc/self/cgroup", "4:cpu,memory:/a/b\n1:cpu:/x\n0::/\nnonsense\n")
        .file(&format!("{memory}/a/b/memory.limit_in_bytes"), "9223372036854771712\n")
        .file(&format!("{memory}/a/memory.limit_in_bytes"), "3221225472\n")
        .file(&format!("{memory}/a/memory.usage_in_bytes"), "1073741824\n")
        .file(&format!("{memory}/a/memory.stat"), "inactive_file 0\ntotal_inactive_file 536870912\n");
    let room = |world: &World| cpu(world).groups.least_room().map(|limit| (limit.group.clone(), limit.room_bytes));
    assert_eq!(room(&world), Some(("/sys/fs/cgroup/memory/a".into(), 5 * GIB / 2)));
    // A limit of a group above that a container does not show.
    let stat = format!("hierarchical_memory_limit {}\n", 2 * GIB);
    let world = world.file(&format!("{memory}/a/b/memory.stat"), &stat);
    assert_eq!(room(&world), Some(("/sys/fs/cgroup/memory/a/b".into(), 2 * GIB)));
}

#[test]
fn a_containers_path_is_looked_for_under_what_its_mount_shows() {
    let of = |path: &str| {
        let limit = "sys/fs/cgroup/memory.max";
        let world = World::new().file("proc/self/cgroup", &format!("0::{path}\n")).file(limit, "1073741824\n");
        let world = world.file("sys/fs/cgroup/job/memory.max", "1048576\n");
        let mountinfo = "1 1 0:20 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        cpu(&world.file("proc/self/mountinfo", mountinfo)).groups.limits.len()
    };
    assert_eq!([of("/docker/abc"), of("/"), of("/../.."), of("/other")], [1; 4]);
    assert_eq!(of("/docker/abc/job"), 2);
}

#[test]
fn a_gpu_that_shares_memory_shares_the_budget() {
    let machine = world().machine(vec![gpu("cuda:0", true), gpu("cuda:1", false)]);
    let [joint, own] = &machine.budgets[..] else { panic!("{:?}", machine.budgets) };
    assert_eq!(
        (&joint.of[..], joint.joint, joint.bytes),
        (&["cpu".to_owned(), "cuda:0".to_owned()][..], true, Some(6 * GIB))
    );
    assert_eq!((&own.of[..], own.joint, own.bytes), (&["cuda:1".to_owned()][..], false, Some(7 * GIB)));
    let apart = world().machine(vec![gpu("cuda:0", false)]).budgets;
    assert_eq!(apart.iter().map(|budget| (budget.joint, budget.of.len())).collect::<Vec<_>>(), [(false, 1); 2]);
}

#[test]
fn a_group_bounds_the_joint_budget() {
    let mut world = world()
        .mount("0:20 /sys/fs/cgroup cgroup2 cgroup2 rw")
        .file("proc/self/cgroup", "0::/\n")
        .file("sys/fs/cgroup/memory.max", "2147483648\n");
    let budget = &world.machine(vec![gpu("cuda:0", true)]).budgets[0];
    assert_eq!((budget.bytes, budget.joint), (Some(2 * GIB), true));
    assert!(budget.reasons.iter().any(|reason| reason.contains("control group /sys/fs/cgroup")), "{budget:?}");
    // One that leaves more than there is bounds nothing, nor does one that leaves as much.
    for limit in [64 * GIB, 6 * GIB] {
        world = world.file("sys/fs/cgroup/memory.max", &format!("{limit}\n"));
        let budget = &world.machine(Vec::new()).budgets[0];
        assert_eq!((budget.bytes, budget.reasons.len()), (Some(6 * GIB), 1), "{limit}");
    }
}

#[test]
fn this_machine_tells_its_memory() {
    let machine = Machine::detect(Vec::new());
    let (total, available) =
        (machine.cpu.total_bytes.expect("Linux says it"), machine.cpu.available_bytes.expect("so"));
    assert!(0 < available && available <= total);
    assert!(machine.budgets[0].bytes.is_some_and(|bytes| bytes <= available));
    for limit in &machine.cpu.groups.limits {
        assert!(limit.room_bytes <= limit.limit_bytes && limit.limit_bytes < 1 << 62, "{limit:?}");
    }
}
