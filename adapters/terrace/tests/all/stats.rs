//! Statistics as JSON: each type is written with stable keys, and read again as it was.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The value as JSON, after checking that the JSON is read as the same value.
fn through_json<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> serde_json::Value {
    let text = serde_json::to_string(value).expect("numbers and words");
    assert_eq!(&serde_json::from_str::<T>(&text).expect("it was written so"), value, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[cfg(feature = "device")]
#[test]
fn statistics_of_a_device_are_json() {
    let device = terrace::Device::host();
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 10_000).expect("room");
    let stats = device.stats();
    let json = through_json(&stats);
    assert_eq!(json["pool"]["in_use"], stats.pool.in_use);
    assert_eq!((json["pool"]["allocated_bytes"].as_u64(), json["streams"].as_u64()), (Some(block.bytes()), Some(1)));
    let some: terrace::device::DeviceStats = serde_json::from_str(r#"{"held": 3, "of_later": 1}"#).expect("older");
    assert_eq!((some.held, some.streams), (3, 0), "keys that are missing are 0");
}

#[cfg(feature = "device")]
#[test]
fn a_moment_is_written_as_its_age() {
    use terrace::device::TransferStats;
    let mut stats = TransferStats::default();
    assert_eq!(through_json(&stats)["up"]["last_age"], serde_json::Value::Null);
    let ended = Instant::now().checked_sub(Duration::from_secs(5)).expect("the machine runs for longer");
    stats.up.last = Some(ended);
    stats.up.busy = Duration::from_millis(1500);
    let text = serde_json::to_string(&stats).expect("numbers");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(json["up"]["last_age"]["secs"].as_u64() >= Some(5), "{text}");
    assert_eq!(json["up"]["busy"], serde_json::json!({"secs": 1, "nanos": 500_000_000}));
    let read: TransferStats = serde_json::from_str(&text).expect("it was written so");
    assert!(read.up.last >= Some(ended) && read.up.last <= Some(Instant::now()), "{read:?}");
    assert_eq!((read.up.busy, read.down), (stats.up.busy, stats.down));
}

#[cfg(feature = "global")]
#[test]
fn statistics_of_the_host_s_allocator_are_json() {
    let stats = terrace::stats();
    assert_eq!(through_json(&stats)["limit"], stats.limit);
}
