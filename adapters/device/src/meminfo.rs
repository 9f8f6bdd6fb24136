//! Sizes of the host's memory, as the system reports them.
//!
//! Promises upward: `MemAvailable` (what programs can still allocate, page cache included), not `MemFree`; `None` where
//! the system does not report it.
//! Asks from below: `/proc/meminfo`.

/// Bytes that can still be allocated without swapping.
pub fn available() -> Option<u64> {
    field(&read()?, "MemAvailable:")
}

/// Total memory in bytes.
pub fn total() -> Option<u64> {
    field(&read()?, "MemTotal:")
}

fn read() -> Option<String> {
    // Miri has no `/proc/meminfo`.
    if cfg!(miri) {
        return None;
    }
    std::fs::read_to_string("/proc/meminfo").ok()
}

/// A value of `/proc/meminfo` (in kB there), in bytes; `name` is that of its line, with the colon.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn lines_are_read_in_kilobytes_and_bad_ones_are_none() {
        let text = "MemTotal:       24737204 kB\nMemFree:  12 kB\nMemAvailable:   23000000 kB\nOdd: 12\nHuge: 99999999999999999999 kB\n";
        assert_eq!(field(text, "MemTotal:"), Some(24_737_204 * 1024));
        assert_eq!(field(text, "MemAvailable:"), Some(23_000_000 * 1024));
        assert_eq!([field(text, "Odd:"), field(text, "Huge:"), field(text, "None:")], [None; 3]);
    }
}
