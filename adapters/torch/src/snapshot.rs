//! Writes the live blocks in the format of `torch.cuda.memory._snapshot()`, so that the same tools read them.
//!
//! Promises upward: valid JSON with ascending addresses; each byte of a live block belongs to one block of one segment.
//! Asks from below: `block_table`.
//!
//! A segment here is a run of adjacent live blocks of one stream and pool, not a region that the pool reserved from the
//! driver: streams share regions. Totals of regions are under the key `terrace`. Traces and frames are empty.

use crate::block_table::{self, TorchBlock};
use crate::device::TorchDevice;
use crate::pools::PoolId;
use serde_json::{Value, json};
use std::sync::Arc;

/// The largest block in bytes for which PyTorch uses its small pool: 1 MiB.
const SMALL: u64 = 1 << 20;

/// A copy of a live block's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SnapshotBlock {
    device: usize,
    address: u64,
    bytes: u64,
    requested: u64,
    stream: u64,
    pool: Option<PoolId>,
}

/// The snapshot of these devices, as JSON text.
pub fn of(opened: &[Arc<TorchDevice>]) -> String {
    let mut blocks = block_table::collect(|live: &TorchBlock| {
        opened.iter().any(|device| Arc::ptr_eq(device, &live.device)).then(|| SnapshotBlock {
            device: live.device.ordinal,
            address: live.block.address(),
            bytes: live.block.bytes(),
            requested: live.requested,
            stream: live.stream,
            pool: live.pool,
        })
    });
    blocks.sort_unstable_by_key(|block| (block.device, block.address));
    let devices: Vec<Value> = opened.iter().map(|device| device_totals(device)).collect();
    let traces = opened.iter().map(|device| device.ordinal + 1).max().unwrap_or(0);
    json!({
        "segments": blocks.chunk_by(touch).map(segment).collect::<Vec<Value>>(),
        "device_traces": vec![json!([]); traces],
        "allocator_settings": { "backend": "terrace" },
        "external_annotations": [],
        "terrace": devices,
    })
    .to_string()
}

/// Whether two blocks belong to one segment: adjacent, on the same device, stream and pool.
fn touch(left: &SnapshotBlock, right: &SnapshotBlock) -> bool {
    let of = |block: &SnapshotBlock| (block.device, block.stream, block.pool);
    of(left) == of(right) && left.address + left.bytes == right.address
}

/// The JSON of a segment: a run of adjacent blocks.
fn segment(run: &[SnapshotBlock]) -> Value {
    let first = run[0];
    let bytes: u64 = run.iter().map(|block| block.bytes).sum();
    let PoolId(high, low) = first.pool.unwrap_or(PoolId(0, 0));
    let blocks = run.iter().map(|block| {
        json!({
            "address": block.address,
            "size": block.bytes,
            "requested_size": block.requested,
            "state": "active_allocated",
            "frames": [],
        })
    });
    json!({
        "device": first.device,
        "address": first.address,
        "total_size": bytes,
        "allocated_size": bytes,
        "active_size": bytes,
        "requested_size": run.iter().map(|block| block.requested).sum::<u64>(),
        "stream": first.stream,
        "segment_type": if run.iter().all(|block| block.bytes <= SMALL) { "small" } else { "large" },
        "segment_pool_id": [high, low],
        "is_expandable": false,
        "frames": [],
        "blocks": blocks.collect::<Vec<Value>>(),
    })
}

fn device_totals(device: &TorchDevice) -> Value {
    let stats = device.inner.stats();
    json!({
        "device": device.ordinal,
        "name": device.inner.name(),
        "reserved": stats.pool.reserved,
        "in_use": stats.pool.in_use,
        "pooled": stats.pool.pooled,
        "largest_free": stats.pool.largest_free,
        "pools_reserved": stats.graphs.reserved,
        "pools_in_use": stats.graphs.in_use,
    })
}

#[cfg(test)]
mod tests {
    use super::{SnapshotBlock, segment, touch};
    use crate::pools::PoolId;

    fn seen(address: u64, bytes: u64, stream: u64) -> SnapshotBlock {
        SnapshotBlock { device: 0, address, bytes, requested: bytes - 1, stream, pool: None }
    }

    #[test]
    fn a_segment_is_what_touches_and_belongs_together() {
        let first = seen(4096, 512, 7);
        assert!(touch(&first, &seen(4608, 256, 7)));
        assert!(!touch(&first, &seen(4864, 256, 7)), "a gap");
        assert!(!touch(&first, &seen(4608, 256, 8)), "another stream");
        assert!(!touch(&first, &SnapshotBlock { pool: Some(PoolId(0, 1)), ..seen(4608, 256, 7) }), "a pool");
        assert!(!touch(&first, &SnapshotBlock { device: 1, ..seen(4608, 256, 7) }), "another device");
    }

    #[test]
    fn a_segment_adds_its_blocks_up() {
        let value = segment(&[seen(4096, 512, 7), seen(4608, 2 << 20, 7)]);
        assert_eq!(value["total_size"], 512 + (2 << 20));
        assert_eq!(value["requested_size"], 512 + (2 << 20) - 2);
        assert_eq!((&value["segment_type"], value["blocks"].as_array().map(Vec::len)), (&"large".into(), Some(2)));
        assert_eq!(value["blocks"][1]["address"], 4608);
    }
}
