//! A machine's `/proc` and `/sys`, as directories: links, files and mount points as Linux has them.

use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;
use terrace_tiers::detect::{DetectedDisk, Gpu, Machine};

pub struct World {
    root: TempDir,
    mounts: String,
}

impl World {
    pub fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a folder"), mounts: String::new() }
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file.
    pub fn file(self, path: &str, text: &str) -> Self {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("inside the root")).expect("folders");
        std::fs::write(path, text).expect("a file");
        self
    }

    /// A disk at `path` under `/sys/devices`, whose name is the last part, found by number and by name.
    pub fn disk(self, number: &str, path: &str, rotational: u8) -> Self {
        let queue = format!("sys/devices/{path}/queue");
        self.file(&format!("{queue}/rotational"), &format!("{rotational}\n"))
            .file(&format!("{queue}/hw_sector_size"), "512\n")
            .links(number, path)
    }

    /// A partition of the disk at the folder above.
    pub fn partition(self, number: &str, path: &str) -> Self {
        self.file(&format!("sys/devices/{path}/partition"), "1\n").links(number, path)
    }

    /// RAID, a volume or encryption over others, all under `/sys/devices`.
    pub fn stack(self, number: &str, path: &str, over: &[&str]) -> Self {
        let world = self.disk(number, path, 0);
        let slaves = world.root.path().join(format!("sys/devices/{path}/slaves"));
        std::fs::create_dir_all(&slaves).expect("a folder");
        for below in over {
            let name = Path::new(below).file_name().expect("a name");
            symlink(world.root.path().join("sys/devices").join(below), slaves.join(name)).expect("a link");
        }
        world
    }

    fn links(self, number: &str, path: &str) -> Self {
        let name = path.rsplit('/').next().expect("a name");
        for link in [format!("sys/dev/block/{number}"), format!("sys/class/block/{name}")] {
            let link = self.root.path().join(link);
            std::fs::create_dir_all(link.parent().expect("inside the root")).expect("folders");
            symlink(format!("../../devices/{path}"), &link).expect("a link");
        }
        self
    }

    /// A mount: `how` is `NUMBER POINT FILESYSTEM SOURCE OPTIONS`.
    pub fn mount(mut self, how: &str) -> Self {
        let fields: Vec<&str> = how.split(' ').collect();
        let [number, point, file_system, source, options] = fields[..] else { panic!("five fields in {how}") };
        writeln!(self.mounts, "1 1 {number} / {point} rw,relatime shared:1 - {file_system} {source} {options}")
            .expect("text");
        let place = self.root.path().join(point.trim_start_matches('/').replace("\\040", " "));
        std::fs::create_dir_all(place).expect("folders");
        let text = self.mounts.clone();
        self.file("proc/self/mountinfo", &text)
    }

    pub fn machine(&self, gpus: Vec<Gpu>) -> Machine {
        Machine::detect_under(self.root.path(), gpus)
    }

    /// The only disk that is listed.
    pub fn only(&self) -> DetectedDisk {
        let disks = self.machine(Vec::new()).disks;
        assert_eq!(disks.len(), 1, "{disks:?}");
        disks.into_iter().next().expect("one")
    }
}

/// What measuring tells of a disk that behaves so.
pub fn figures(ratio: f64, depth: f64, latency_ns: u64) -> terrace_tiers::detect::measure::DiskFigures {
    terrace_tiers::detect::measure::DiskFigures {
        file_bytes: 256 << 20,
        direct: true,
        engine: "ring",
        write_bytes_per_s: 1 << 30,
        read_bytes_per_s: 1 << 30,
        random_4k_read_p50_ns: latency_ns,
        random_4k_qd1_iops: 1000,
        sequential_4k_qd1_iops: 1000,
        random_4k_qd16_iops: 1000,
        random_over_sequential: ratio,
        depth_scaling: depth,
    }
}
