//! Rows of live counters say what the statistics of their sources say.
#![cfg(target_os = "linux")]

use std::time::Duration;
use terrace::observe::live::{CounterReader, Figure, LiveRow, Publisher, RowKind, device_rows, manager_rows};

/// The rows of a publisher's first write.
fn rows(builder: terrace::observe::live::PublisherBuilder) -> Vec<LiveRow> {
    let folder = tempfile::tempdir().unwrap();
    let publisher = builder.interval(Duration::from_secs(60)).start(folder.path().join("live.sock")).unwrap();
    CounterReader::connect(publisher.path()).unwrap().frame().unwrap().rows
}

#[test]
fn a_device_is_a_pool() {
    let device = terrace::Device::host();
    let stream = device.stream().unwrap();
    let block = device.allocate(&stream, 3 << 20).unwrap();
    let [row] = rows(Publisher::builder().source(device_rows(&device)))[..] else { panic!("one row") };
    assert_eq!((row.kind, row.name()), (RowKind::Pool, device.name()));
    let pool = device.stats().pool;
    let figures = [Figure::InUse, Figure::Reserved, Figure::Allocations, Figure::LiveBlocks, Figure::LargestFree];
    let wanted = [pool.in_use, pool.reserved, pool.allocations, 1, pool.largest_free];
    assert_eq!(figures.map(|figure| row.figures.get(figure)), wanted.map(Some));
    assert!(row.figures.get(Figure::InUse) >= Some(3 << 20));
    drop(block);
}

#[test]
fn a_manager_has_a_row_for_each_tier() {
    let manager = terrace::Manager::builder().memory(8 << 20).build().unwrap();
    let buffer = manager.allocate(1 << 20).unwrap();
    buffer.write(0, &[7; 4096]).unwrap();
    let read = rows(Publisher::builder().source(manager_rows(&manager)));
    let tiers = manager.tiers();
    assert_eq!(read.len(), tiers.len());
    for (row, tier) in read.iter().zip(&tiers) {
        assert_eq!((row.kind, row.name()), (RowKind::Tier, tier.device.as_str()));
        let figures = [Figure::InUse, Figure::Limit, Figure::Pressure].map(|figure| row.figures.get(figure));
        assert_eq!(figures, [tier.view.used, tier.view.capacity, tier.view.level as u64].map(Some));
    }
    assert!(read.iter().any(|row| row.figures.get(Figure::InUse) >= Some(1 << 20)));
    assert!(read.iter().any(|row| row.figures.get(Figure::Hits) > Some(0)), "the write found its bytes");
}

#[test]
fn rows_keep_neither_a_device_nor_a_manager_open() {
    let (device, manager) =
        (terrace::Device::host(), terrace::Manager::builder().memory(8 << 20).build().expect("a manager"));
    let (seen, ended) = (terrace::device::WeakDevice::new(&device), manager.downgrade());
    let folder = tempfile::tempdir().unwrap();
    let builder = Publisher::builder().source(device_rows(&device)).source(manager_rows(&manager));
    let publisher = builder.interval(Duration::from_millis(1)).start(folder.path().join("live.sock")).unwrap();
    let reader = CounterReader::connect(publisher.path()).unwrap();
    assert_eq!(reader.frame().unwrap().rows.len(), 2);
    drop((device, manager));
    // A write that is under way holds them a moment longer.
    while seen.stats().is_some() || ended.stats().is_some() || !reader.frame().unwrap().rows.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(feature = "track")]
#[test]
fn tags_have_rows_while_their_tracker_is_on() {
    use terrace::observe::track::{TrackMode, tag};
    let device = terrace::Device::host();
    let manager = terrace::Manager::builder().memory(8 << 20).build().unwrap();
    let _tag = tag("kv-cache");
    let tags = || {
        let rows = rows(Publisher::builder().source(device_rows(&device)).source(manager_rows(&manager)));
        let tags = rows.iter().filter(|row| row.kind == RowKind::Tag);
        let figures = |row: &LiveRow| [Figure::InUse, Figure::LiveBlocks].map(|figure| row.figures.get(figure));
        let pool =
            rows.iter().find(|row| row.kind == RowKind::Pool).and_then(|row| row.figures.get(Figure::OldestLive));
        (tags.map(|row| (row.name().to_string(), figures(row))).collect::<Vec<_>>(), pool.is_some())
    };
    assert_eq!(tags(), (vec![], false));
    device.tracker().set_mode(TrackMode::Records);
    manager.tracker().set_mode(TrackMode::Counters);
    let stream = device.stream().unwrap();
    let block = device.allocate(&stream, 4096).unwrap();
    let buffer = manager.allocate(100).unwrap();
    let named = |owner: &str, bytes| (format!("kv-cache ({owner})"), [Some(bytes), Some(1)]);
    assert_eq!(tags(), (vec![named("device 0", 4096), named("manager", 100)], true));
    drop((block, buffer));
    let none = |owner: &str| (format!("kv-cache ({owner})"), [Some(0); 2]);
    assert_eq!(tags(), (vec![none("device 0"), none("manager")], false), "nothing is live");
}

#[cfg(feature = "global")]
#[test]
fn a_program_has_one_row() {
    let block = terrace::Heap::new().expect("a heap");
    let [row] = rows(Publisher::builder().source(terrace::observe::live::program_rows()))[..] else {
        panic!("one row")
    };
    assert_eq!(
        (row.kind, row.figures.get(Figure::Reserved)),
        (RowKind::Program, Some(terrace::stats().reserved as u64))
    );
    assert!(row.name().starts_with("live-"), "{row:?}");
    drop(block);
}
