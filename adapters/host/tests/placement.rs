//! Where memory is placed, in which pages, and up to which limit: settings of the whole process, so they
//! stand in one test, one after the other.

use std::alloc::{GlobalAlloc, Layout};
use terrace_host::{Background, Global, HugePages, Numa, Setting, check, stats, trim};

#[global_allocator]
static A: Global = Global::new();

/// Flags of the mapping that an address lies in.
fn flags(address: usize) -> String {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let mut inside = false;
    for line in text.lines() {
        let bounds = line.split(' ').next().and_then(|range| range.split_once('-'));
        let hex = |digits| usize::from_str_radix(digits, 16).ok();
        if let Some((Some(first), Some(end))) = bounds.map(|(first, end)| (hex(first), hex(end))) {
            inside = (first..end).contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return flags.into();
        }
    }
    String::new()
}

/// The policy of the mapping that an address lies in, as the kernel writes it; none where it knows no nodes.
fn policy(address: usize) -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/numa_maps").ok().filter(|text| !text.is_empty())?;
    let mapping = |line: &str| {
        let mut words = line.split(' ');
        Some((usize::from_str_radix(words.next()?, 16).ok()?, words.next()?.to_string()))
    };
    text.lines().filter_map(mapping).filter(|(first, _)| *first <= address).max().map(|(_, policy)| policy)
}

/// Allocates so much that the page heap maps more; an address in the new mapping.
fn grow(by: usize) -> usize {
    let (mapped, layout) = (stats().mapped, Layout::from_size_align(by, 16).expect("a layout"));
    // SAFETY: the size is not 0.
    let block = unsafe { A.alloc(layout) };
    assert!(!block.is_null() && stats().mapped > mapped, "{}", stats());
    // SAFETY: so many bytes are ours.
    unsafe { block.write_bytes(1, by) };
    block.addr() + by - 1
}

#[test]
fn settings_are_followed_or_counted_as_fallbacks() {
    assert_eq!(stats().fallbacks, 0);
    // Huge pages, where the kernel has them; otherwise a fallback is counted.
    Setting::HugePages(HugePages::Always).apply().expect("a setting");
    let address = grow(64 << 20);
    let there = std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists();
    // An emulator takes the advice and does nothing with it.
    let kept = there && std::env::var_os("TERRACE_EMULATED").is_none();
    assert_eq!((flags(address).contains(" hg"), stats().fallbacks > 0), (kept, !there), "{}", flags(address));
    Setting::HugePages(HugePages::Never).apply().expect("a setting");
    let address = grow(80 << 20);
    assert_eq!(flags(address).contains(" nh"), kept, "{}", flags(address));
    Setting::HugePages(HugePages::Default).apply().expect("a setting");

    // A node that no machine here has: the allocation succeeds, and a fallback is counted.
    let before = stats().fallbacks;
    Setting::Numa(Numa::Bind(1 << 63)).apply().expect("a setting");
    grow(96 << 20);
    assert!(stats().fallbacks > before, "{}", stats());
    let emulated = std::env::var_os("TERRACE_EMULATED").is_some();
    for (setting, name) in [
        (Numa::Local, "local"),
        (Numa::Interleave, "interleave"),
        (Numa::Bind(1), "bind:0"),
        (Numa::Default, "default"),
    ] {
        Setting::Numa(setting).apply().expect("a setting");
        let address = grow(200 << 20);
        if let Some(found) = policy(address).filter(|_| !emulated) {
            assert!(found.starts_with(name), "{setting:?}: {found}");
        }
    }

    // Beyond a limit allocations fail; free memory counts too.
    trim();
    let reserved = stats().reserved;
    Setting::Limit(reserved + (40 << 20)).apply().expect("a setting");
    let layout = |bytes| Layout::from_size_align(bytes, 16).expect("a layout");
    // SAFETY: the size is not 0.
    assert!(unsafe { A.alloc(layout(64 << 20)) }.is_null());
    for _ in 0..3 {
        // SAFETY: the size is not 0.
        let block = unsafe { A.alloc(layout(30 << 20)) };
        assert!(!block.is_null());
        // SAFETY: so many bytes are ours.
        unsafe { block.write_bytes(1, 30 << 20) };
        // SAFETY: our block, of this layout.
        unsafe { A.dealloc(block, layout(30 << 20)) };
    }
    assert!(stats().dirty <= reserved + (40 << 20), "{}", stats());
    assert!(Setting::Limit(1000).apply().is_err() && Setting::Cache(1 << 20).apply().is_err());
    assert!(stats().limit <= reserved + (40 << 20));
    Setting::Limit(usize::MAX).apply().expect("a setting");
    check().expect("every structure agrees");
}

#[test]
fn settings_are_read_as_people_write_them() {
    let parse = |name, value| Setting::parse(name, value).ok();
    assert_eq!(parse("TERRACE_PURGE_DELAY", "2s"), Some(Setting::PurgeDelay(Some(2000))));
    assert_eq!(parse("TERRACE_PURGE_DELAY", "10ms"), parse("TERRACE_PURGE_DELAY", "10"));
    assert_eq!(parse("TERRACE_PURGE_DELAY", "never"), Some(Setting::PurgeDelay(None)));
    assert_eq!(parse("TERRACE_LIMIT", "2G"), Some(Setting::Limit(2 << 30)));
    assert_eq!(parse("TERRACE_LIMIT", "none"), Some(Setting::Limit(usize::MAX)));
    assert_eq!(parse("TERRACE_NUMA", "bind:0,2"), Some(Setting::Numa(Numa::Bind(5))));
    assert_eq!(parse("TERRACE_HUGE_PAGES", "always"), Some(Setting::HugePages(HugePages::Always)));
    assert_eq!(parse("TERRACE_BACKGROUND", "1"), Some(Setting::Background(Background::Always)));
    assert_eq!(parse("TERRACE_CACHE", "16K"), Some(Setting::Cache(16 << 10)));
    assert_eq!(parse("TERRACE_STATS", "0"), Some(Setting::Stats(false)));
    assert_eq!(parse("TERRACE_CHECK", "1"), Some(Setting::Check(true)));
    for (name, value) in [
        ("TERRACE_PURGE_DELAY", "soon"),
        ("TERRACE_PURGE_DELAY", "-1"),
        ("TERRACE_PURGE_DELAY", "99999999999s"),
        ("TERRACE_LIMIT", "1M"),
        ("TERRACE_LIMIT", "99999999T"),
        ("TERRACE_CACHE", "1M"),
        ("TERRACE_NUMA", "bind:64"),
        ("TERRACE_NUMA", "bind:"),
        ("TERRACE_BACKGROUND", "yes"),
        ("TERRACE_HUGE_PAGES", ""),
    ] {
        let bad = Setting::parse(name, value).expect_err(value);
        assert_eq!(bad.name, name);
        assert!(bad.to_string().starts_with(name), "{bad}");
    }
    check().expect("every structure agrees");
}
