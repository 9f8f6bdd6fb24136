//! What is behind a pointer.

use super::valid;
use crate::abi::attributes::pointer as attribute;
use crate::abi::codes::{INVALID_VALUE, NOT_SUPPORTED};
use crate::abi::{In, Out, Outcome, c_int, c_uint};
use crate::gate::exports;
use crate::machine::World;
use crate::memory::{Block, Holder};

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

exports! {
    /// One attribute; a pointer that the driver does not know is refused.
    Context fn cuPointerGetAttribute(world, here, data: Out<u8>, attribute: c_int, pointer: u64) {
        data.check()?;
        put(world, data, attribute, pointer)
    }

    /// Several attributes; of a pointer that the driver does not know all are 0.
    Context fn cuPointerGetAttributes(
        world, here, count: c_uint, attributes: In<c_int>, data: In<Out<u8>>, pointer: u64,
    ) {
        for at in 0..count as usize {
            let (attribute, place) = (attributes.at(at)?, data.at(at)?);
            if put(world, place, attribute, pointer).is_err() {
                zero(place, attribute)?;
            }
        }
        Ok(())
    }
}

/// What all kinds of memory have.
struct Found {
    start: u64,
    bytes: u64,
    device: usize,
    context: u64,
    id: u64,
    kind: c_uint,
    managed: bool,
    pool: u64,
}

fn find(world: &World, pointer: u64) -> Option<Found> {
    let block = world.block_at(pointer).filter(|(_, block)| block.freed.is_none());
    let of_block = |(start, block): (u64, &Block)| Found {
        start,
        bytes: block.bytes,
        device: block.device,
        // Memory of a pool is the device's.
        context: if matches!(block.holder, Holder::Pool(_)) { 0 } else { block.context },
        id: block.id,
        kind: if block.is_host() { HOST } else { DEVICE },
        managed: block.holder == Holder::Managed,
        pool: if let Holder::Pool(pool) = block.holder { pool } else { 0 },
    };
    let mapped = || {
        let (start, mapping) = world.mapping_at(pointer)?;
        let (bytes, device, id) = (mapping.bytes, mapping.device, mapping.handle);
        Some(Found { start, bytes, device, context: 0, id, kind: DEVICE, managed: false, pool: 0 })
    };
    block.map(of_block).or_else(mapped)
}

fn put(world: &World, data: Out<u8>, number: c_int, pointer: u64) -> Outcome {
    let found = find(world, pointer).ok_or(INVALID_VALUE)?;
    match number {
        attribute::CONTEXT => data.of().put(found.context),
        attribute::MEMORY_TYPE => data.of().put(found.kind),
        attribute::DEVICE_POINTER => data.of().put(pointer),
        attribute::HOST_POINTER => {
            valid(found.kind == HOST || found.managed)?;
            data.of().put(pointer)
        }
        attribute::BUFFER_ID => data.of().put(found.id),
        attribute::IS_MANAGED => data.of().put(c_uint::from(found.managed)),
        attribute::DEVICE_ORDINAL => data.of().put(found.device as c_int),
        attribute::RANGE_START_ADDR => data.of().put(found.start),
        attribute::RANGE_SIZE => data.of().put(found.bytes as usize),
        attribute::MAPPED => data.of().put(1_u8),
        attribute::MEMPOOL_HANDLE => data.of().put(found.pool),
        _ => Err(NOT_SUPPORTED),
    }
}

/// A zero of the attribute's size.
fn zero(data: Out<u8>, number: c_int) -> Outcome {
    match number {
        attribute::MEMORY_TYPE | attribute::IS_MANAGED => data.of().put(0_u32),
        // No device.
        attribute::DEVICE_ORDINAL => data.of().put(-2_i32),
        attribute::MAPPED => data.put(0),
        _ => data.of().put(0_u64),
    }
}
