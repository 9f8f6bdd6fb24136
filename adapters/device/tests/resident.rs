//! What a device takes of the machine's memory before it is used. Alone in its process, whose resident set it reads.
#![cfg(target_os = "linux")]

use terrace_device::Device;

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib = line.trim().trim_end_matches("kB").trim();
    kib.parse::<u64>().expect("a number") << 10
}

/// Records for a quarter of a million blocks in each area are lent to the device's arena alone: 16 MiB, were they touched.
#[test]
fn records_are_resident_once_they_are_used() {
    let before = resident();
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    let blocks: Vec<_> = (0..100).map(|_| device.allocate(&stream, 32 << 10).expect("a block")).collect();
    let taken = resident() - before;
    assert!(taken < 1 << 20, "{} KiB for {} blocks", taken >> 10, blocks.len());
}
