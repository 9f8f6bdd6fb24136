//! Stream-ordered memory.

use super::memory::find_to_free;
use super::vmm::shareable;
use super::{offered, valid};
use crate::abi::attributes::{ALLOCATION_PINNED, LOCATION_DEVICE, pool as attribute};
use crate::abi::codes::{INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, STREAM_CAPTURE_UNSUPPORTED};
use crate::abi::{Access, In, Location, Out, Outcome, PoolProperties, c_int};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Fault, World};
use crate::memory::{Holder, Pool};
use crate::order::{Lane, Touch};
use crate::streams::{Node, Work};

/// `CU_MEM_HANDLE_TYPE_NONE`, and a pool that belongs to no locality domain.
const NO_HANDLES: c_int = 0;
const NO_DOMAIN: c_int = -1;

exports! {
    /// The pool a device has had from the start.
    Driver fn cuDeviceGetDefaultMemPool(world, here, pool: Out<u64>, device: c_int) {
        offered(world.profile.pools)?;
        let device = world.ordinal(device)?;
        let found = world.default_pool(device);
        pool.put(found)
    }

    /// The pool `cuMemAllocAsync` takes from.
    Driver fn cuDeviceGetMemPool(world, here, pool: Out<u64>, device: c_int) {
        offered(world.profile.pools)?;
        let device = world.ordinal(device)?;
        let found = world.current_pool(device);
        pool.put(found)
    }

    /// Sets it.
    Driver fn cuDeviceSetMemPool(world, here, device: c_int, pool: u64) {
        let device = world.ordinal(device)?;
        let of = find(world, pool, "cuDeviceSetMemPool")?.device;
        valid(of == device)?;
        world.devices[device].pool = Some(pool);
        Ok(())
    }

    /// A pool of one's own. Pools cannot be shared, as `cuDeviceGetAttribute` says.
    Driver fn cuMemPoolCreate(world, here, pool: Out<u64>, properties: In<PoolProperties>) {
        offered(world.profile.pools)?;
        let asked = properties.get()?;
        valid(asked.kind == ALLOCATION_PINNED && asked.location.kind == LOCATION_DEVICE)?;
        pool.check()?;
        let device = world.ordinal(asked.location.id)?;
        shareable(asked.handle_types, NO_HANDLES)?;
        let handle = world.memory.pools.insert(Pool::new(device, asked.max_size as u64));
        pool.put(handle)
    }

    /// Ends a pool. Blocks in use stay until they are freed; here that is a mistake.
    Driver fn cuMemPoolDestroy(world, here, pool: u64) {
        let used = find(world, pool, "cuMemPoolDestroy")?.used;
        valid(world.devices.iter().all(|device| device.default_pool != Some(pool)))?;
        if used > 0 {
            let text = format!("cuMemPoolDestroy of {pool:#x}, {used} bytes of which are in use");
            world.report.add(Fault::FreeWhilePending, text);
            return Err(INVALID_VALUE);
        }
        world.trim_pool(pool, 0);
        world.devices.iter_mut().filter(|device| device.pool == Some(pool)).for_each(|device| device.pool = None);
        world.memory.pools.remove(pool);
        Ok(())
    }

    /// Gives kept memory back.
    Driver fn cuMemPoolTrimTo(world, here, pool: u64, keep: usize) {
        find(world, pool, "cuMemPoolTrimTo")?;
        world.trim_pool(pool, keep as u64);
        Ok(())
    }

    /// Sets an attribute.
    Driver fn cuMemPoolSetAttribute(world, here, pool: u64, number: c_int, value: In<u8>) {
        set(find(world, pool, "cuMemPoolSetAttribute")?, number, value)
    }

    /// Reads one that the driver knows.
    Driver fn cuMemPoolGetAttribute(world, here, pool: u64, number: c_int, value: Out<u8>) {
        let known = world.profile.driver >= first_driver(number);
        let pool = find(world, pool, "cuMemPoolGetAttribute")?;
        valid(known)?;
        get(pool, number, value)
    }

    /// Lets other devices use the pool's memory.
    Driver fn cuMemPoolSetAccess(world, here, pool: u64, access: In<Access>, count: usize) {
        let device = find(world, pool, "cuMemPoolSetAccess")?.device;
        for wanted in access.all(count)? {
            let other = world.ordinal(wanted.location.id)?;
            valid(wanted.location.kind == LOCATION_DEVICE && matches!(wanted.flags, 0 | 1 | 3))?;
            if other != device && !world.profile.peers {
                return Err(INVALID_DEVICE);
            }
            find(world, pool, "cuMemPoolSetAccess")?.access.insert(other, wanted.flags);
        }
        Ok(())
    }

    /// What a device may do with it.
    Driver fn cuMemPoolGetAccess(world, here, flags: Out<c_int>, pool: u64, location: In<Location>) {
        let device = world.ordinal(location.get()?.id)?;
        let pool = find(world, pool, "cuMemPoolGetAccess")?;
        let own = if pool.device == device { 3 } else { 0 };
        flags.put(pool.access.get(&device).copied().unwrap_or(own))
    }

    /// A block that a stream allocates.
    Context fn cuMemAllocAsync(world, here, pointer: Out<u64>, bytes: usize, stream: u64) {
        offered(world.profile.pools)?;
        let pool = world.current_pool(here.device);
        allocate(world, here, pointer, bytes, pool, stream)
    }

    /// A block that a stream allocates from a pool.
    Context fn cuMemAllocFromPoolAsync(world, here, pointer: Out<u64>, bytes: usize, pool: u64, stream: u64) {
        find(world, pool, "cuMemAllocFromPoolAsync")?;
        allocate(world, here, pointer, bytes, pool, stream)
    }

    /// A stream frees a block.
    Context fn cuMemFreeAsync(world, here, pointer: u64, stream: u64) {
        let lane = world.lane_here(here, stream, "cuMemFreeAsync")?;
        not_in_graph(world, lane)?;
        find_to_free(world, pointer, "cuMemFreeAsync", |holder| matches!(holder, Holder::Pool(_)))?;
        free(world, pointer, lane)
    }
}

fn find<'a>(world: &'a mut World, pool: u64, call: &str) -> Outcome<&'a mut Pool> {
    if world.memory.pools.get(pool).is_none() {
        let text = format!("{call} of {}", world.memory.pools.fate(pool));
        world.report.add(Fault::BadHandle, text);
    }
    world.memory.pools.get_mut(pool).ok_or(INVALID_HANDLE)
}

/// For calls that a graph cannot repeat; graphs with memory of their own are not simulated.
pub(super) fn not_in_graph(world: &mut World, lane: Lane) -> Outcome {
    let Some(capture) = world.streams.all.get(&lane).and_then(|stream| stream.capture) else { return Ok(()) };
    world.captures.invalidate(capture);
    Err(STREAM_CAPTURE_UNSUPPORTED)
}

fn allocate(world: &mut World, here: Here, pointer: Out<u64>, bytes: usize, pool: u64, stream: u64) -> Outcome {
    pointer.check()?;
    let lane = world.lane_here(here, stream, "cuMemAllocAsync")?;
    not_in_graph(world, lane)?;
    let start = world.pool_allocate(pool, here, bytes as u64, lane)?;
    let sequence = world.submit(lane, Node::mark("cuMemAllocAsync", Work::Nothing))?;
    let block = world.memory.blocks.get_mut(&start);
    block.into_iter().for_each(|block| block.allocated = Some((lane, sequence)));
    pointer.put(start)
}

/// The free touches the whole block last: what is not ordered before it is a mistake.
fn free(world: &mut World, pointer: u64, lane: Lane) -> Outcome {
    let Some(block) = world.memory.blocks.get(&pointer) else { return Err(INVALID_VALUE) };
    let (bytes, allocated) = (block.bytes, block.allocated);
    let sequence = world.submit(lane, Node::mark("cuMemFreeAsync", Work::Nothing))?;
    let clock = world.races.clock(lane);
    let early = allocated.is_some_and(|(by, count)| clock.of(by) < count);
    let conflict = world.races.ledger.unordered(Touch::write(pointer, bytes), &clock);
    if let Some(conflict) = conflict {
        let mark = conflict.mark;
        let text = format!(
            "cuMemFreeAsync of {pointer:#x}+{bytes} on stream {lane}, not ordered after {} #{} of stream {}",
            mark.operation, mark.count, mark.lane
        );
        world.report.add(Fault::FreeWhilePending, text);
    } else if early {
        let text = format!("cuMemFreeAsync of {pointer:#x} on stream {lane}, not ordered after its allocation");
        world.report.add(Fault::UseBeforeAllocation, text);
    }
    world.pool_free(pointer, lane, sequence, format!("cuMemFreeAsync #{sequence} of stream {lane}"));
    Ok(())
}

fn set(pool: &mut Pool, number: c_int, value: In<u8>) -> Outcome {
    match number {
        attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES..=attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            pool.reuse[number as usize - 1] = value.of().get()?;
        }
        attribute::RELEASE_THRESHOLD => pool.threshold = value.of().get()?,
        // Marks of the most there ever was can be set back, and to nothing but 0.
        attribute::RESERVED_MEM_HIGH | attribute::USED_MEM_HIGH => {
            valid(value.of::<u64>().get()? == 0)?;
            let (reserved, used) = (pool.reserved, pool.used);
            let high = if number == attribute::USED_MEM_HIGH { &mut pool.used_high } else { &mut pool.reserved_high };
            *high = if number == attribute::USED_MEM_HIGH { used } else { reserved };
        }
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// The first driver that has an attribute; of numbers that are none, any.
fn first_driver(number: c_int) -> i32 {
    match number {
        attribute::ALLOCATION_TYPE..=attribute::HW_DECOMPRESS_ENABLED => 13020,
        attribute::LOCALITY_DOMAIN_ID => 13040,
        _ => 11020,
    }
}

fn get(pool: &Pool, number: c_int, value: Out<u8>) -> Outcome {
    match number {
        attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES..=attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            value.of().put(pool.reuse[number as usize - 1])
        }
        attribute::RELEASE_THRESHOLD => value.of().put(pool.threshold),
        attribute::RESERVED_MEM_CURRENT => value.of().put(pool.reserved),
        attribute::RESERVED_MEM_HIGH => value.of().put(pool.reserved_high),
        attribute::USED_MEM_CURRENT => value.of().put(pool.used),
        attribute::USED_MEM_HIGH => value.of().put(pool.used_high),
        attribute::ALLOCATION_TYPE => value.of().put(ALLOCATION_PINNED),
        attribute::EXPORT_HANDLE_TYPES => value.of().put(NO_HANDLES),
        attribute::LOCATION_ID => value.of().put(pool.device as c_int),
        attribute::LOCATION_TYPE => value.of().put(LOCATION_DEVICE),
        attribute::MAX_POOL_SIZE => value.of().put(pool.max),
        attribute::HW_DECOMPRESS_ENABLED => value.of().put(c_int::from(false)),
        attribute::LOCALITY_DOMAIN_ID => value.of().put(NO_DOMAIN),
        _ => Err(INVALID_VALUE),
    }
}
