//! Parts of a device, and green contexts, which run on them.

use super::context::{end_default_streams, release_primary, retain_primary};
use super::device::MULTIPROCESSORS;
use super::valid;
use crate::abi::codes::{INVALID_CONTEXT, INVALID_RESOURCE_CONFIGURATION, INVALID_RESOURCE_TYPE, INVALID_VALUE};
use crate::abi::{DeviceResource, In, Out, Outcome, c_int, c_uint};
use crate::gate::exports;
use crate::machine::{Context, Fault, GreenContext, GreenPart, Held, Multiprocessors, World, current};
use crate::order::Lane;
use crate::streams::wait_for;

/// `CU_DEV_RESOURCE_TYPE_SM`.
const SM: c_int = 1;

/// How what this driver writes into a resource for itself begins.
const MARK: c_uint = 0x51A0_DA5E;

/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`, and all flags of a split.
const IGNORE_COSCHEDULING: c_uint = 1;
const SPLIT_FLAGS: c_uint = 3;

/// `CU_GREEN_CTX_DEFAULT_STREAM`: every green context has one here.
const DEFAULT_STREAM: c_uint = 1;

/// `CU_STREAM_NON_BLOCKING`, which streams of green contexts must be.
const NON_BLOCKING: c_uint = 1;

exports! {
    /// All multiprocessors of a device. There is no other kind of resource.
    Driver fn cuDeviceGetDevResource(world, here, device: c_int, resource: Out<DeviceResource>, kind: c_int) {
        resource.check()?;
        let device = world.ordinal(device)?;
        put(world, resource, whole(device), kind)
    }

    /// Those that a context has; the thread's for null.
    Driver fn cuCtxGetDevResource(world, here, context: u64, resource: Out<DeviceResource>, kind: c_int) {
        resource.check()?;
        let context = if context == 0 { current::top(world.generation) } else { context };
        let device = world.contexts.get(context).ok_or(INVALID_CONTEXT)?.device;
        let green = world.green_of(context).and_then(|green| world.green.all.get(green));
        put(world, resource, green.map_or(whole(device), |green| green.part), kind)
    }

    /// Those that a green context has.
    Driver fn cuGreenCtxGetDevResource(world, here, green: u64, resource: Out<DeviceResource>, kind: c_int) {
        resource.check()?;
        let part = find(world, green, "cuGreenCtxGetDevResource")?.part;
        put(world, resource, part, kind)
    }

    /// Splits multiprocessors into groups of one size, as many as there is room for.
    ///
    /// What is left is no group. Null in place of groups asks how many there would be.
    Driver fn cuDevSmResourceSplitByCount(
        world, here, groups: Out<DeviceResource>, count: Out<c_uint>, input: In<DeviceResource>,
        rest: Out<DeviceResource>, flags: c_uint, least: c_uint,
    ) {
        count.check()?;
        valid(flags & !SPLIT_FLAGS == 0)?;
        let whole = part_of(input.get()?)?;
        let (minimum, alignment) = granularity(world, flags);
        valid(least <= whole.count)?;
        let size = least.max(minimum).next_multiple_of(alignment);
        let room = whole.count / size;
        // What a split gave is split again when a green context has it.
        if whole.split != 0 || room == 0 {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        if groups.is_null() {
            return count.put(room);
        }
        let made = count.now()?.min(room);
        valid(made > 0)?;
        world.green.splits += 1;
        let split = world.green.splits;
        for at in 0..made {
            let group = Multiprocessors { first: whole.first + at * size, count: size, split, ..whole };
            groups.after(at as usize).put(resource_of(group, minimum, alignment))?;
        }
        let used = made * size;
        let left = Multiprocessors { first: whole.first + used, count: whole.count - used, split, ..whole };
        rest.put_if_wanted(match left.count {
            0 => DeviceResource::NONE,
            _ => resource_of(left, minimum, alignment),
        });
        count.put(made)
    }

    /// A descriptor of multiprocessors of one split. It never ends.
    Driver fn cuDevResourceGenerateDesc(
        world, here, descriptor: Out<u64>, resources: In<DeviceResource>, count: c_uint,
    ) {
        descriptor.check()?;
        valid(count > 0)?;
        let parts = resources.all(count as usize)?.into_iter().map(part_of).collect::<Outcome<Vec<_>>>()?;
        let first = parts[0];
        let same = |part: &Multiprocessors| (part.device, part.split) == (first.device, first.split);
        let twice = |at: usize| parts[..at].iter().any(|earlier| earlier.first == parts[at].first);
        if !parts.iter().all(same) || (0..parts.len()).any(twice) {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        let all = parts.iter().map(|part| part.count).sum();
        descriptor.put(world.green.descriptors.insert(Multiprocessors { count: all, split: 0, ..first }))
    }

    /// A green context, which holds the device's primary context. It becomes no thread's.
    Driver fn cuGreenCtxCreate(world, here, green: Out<u64>, descriptor: u64, device: c_int, flags: c_uint) {
        green.check()?;
        valid(flags & !DEFAULT_STREAM == 0)?;
        let device = world.ordinal(device)?;
        let part = *world.green.descriptors.get(descriptor).ok_or(INVALID_VALUE)?;
        valid(part.device == device)?;
        let primary = retain_primary(world, device);
        let context = world.contexts.insert(Context::new(device, None));
        let handle = world.green.all.insert(GreenContext { context, part });
        let stands = GreenPart { primary, handle };
        world.contexts.get_mut(context).into_iter().for_each(|context| context.green = Some(stands));
        green.put(handle)
    }

    /// Ends a green context once its work is done. Its streams stay, and can only be destroyed.
    Driver fn cuGreenCtxDestroy(world, here, green: u64) {
        let context = find(world, green, "cuGreenCtxDestroy")?.context;
        destroy(world, green, context)
    }

    /// The context that stands for a green one.
    Driver fn cuCtxFromGreenCtx(world, here, context: Out<u64>, green: u64) {
        context.check()?;
        context.put(find(world, green, "cuCtxFromGreenCtx")?.context)
    }

    /// A stream of a green context, whichever context is the thread's.
    Driver fn cuGreenCtxStreamCreate(world, here, stream: Out<u64>, green: u64, flags: c_uint, priority: c_int) {
        stream.check()?;
        valid(flags == NON_BLOCKING)?;
        let context = find(world, green, "cuGreenCtxStreamCreate")?.context;
        let device = world.here(context)?.device;
        stream.put(world.streams.create(context, device, flags, priority.clamp(-5, 0)))
    }

    /// The green context of a stream; null for none.
    Context fn cuStreamGetGreenCtx(world, here, stream: u64, green: Out<u64>) {
        let lane = world.lane(here, stream, "cuStreamGetGreenCtx")?;
        let context = world.streams.all.get(&lane).map_or(0, |stream| stream.context);
        green.put(world.green_of(context).unwrap_or(0))
    }
}

fn whole(device: usize) -> Multiprocessors {
    Multiprocessors { device, first: 0, count: MULTIPROCESSORS, split: 0 }
}

/// The least group, and what groups are multiples of. Flags may ask for any group.
fn granularity(world: &World, flags: c_uint) -> (u32, u32) {
    match world.profile.capability[0] {
        _ if flags & IGNORE_COSCHEDULING != 0 => (2, 2),
        ..8 => (2, 2),
        8 => (4, 2),
        _ => (8, 8),
    }
}

fn put(world: &World, resource: Out<DeviceResource>, part: Multiprocessors, kind: c_int) -> Outcome {
    if kind != SM {
        return Err(INVALID_RESOURCE_TYPE);
    }
    let (minimum, alignment) = granularity(world, 0);
    resource.put(resource_of(part, minimum, alignment))
}

/// A resource: multiprocessors, of which groups are at least `minimum` and a multiple of `alignment`.
fn resource_of(part: Multiprocessors, minimum: u32, alignment: u32) -> DeviceResource {
    let Multiprocessors { device, first, count, split } = part;
    let own = [MARK, device as c_uint, first, count, split as c_uint, (split >> 32) as c_uint];
    let mut made = DeviceResource { kind: SM, sm: [count, minimum, alignment, 0, 0], ..DeviceResource::NONE };
    made.hidden[..own.len()].copy_from_slice(&own);
    made
}

/// The multiprocessors that a resource stands for.
fn part_of(resource: DeviceResource) -> Outcome<Multiprocessors> {
    if resource.kind != SM {
        return Err(INVALID_RESOURCE_TYPE);
    }
    let [mark, device, first, count, low, high, ..] = resource.hidden;
    valid(mark == MARK)?;
    let split = u64::from(low) | u64::from(high) << 32;
    Ok(Multiprocessors { device: device as usize, first, count, split })
}

fn find<'a>(world: &'a mut World, green: u64, call: &str) -> Outcome<&'a GreenContext> {
    if world.green.all.get(green).is_none() {
        let text = format!("{call} of {}", world.green.all.fate(green));
        world.report.add(Fault::BadHandle, text);
    }
    world.green.all.get(green).ok_or(INVALID_CONTEXT)
}

fn destroy(held: &mut Held, green: u64, context: u64) -> Outcome {
    let targets = held.targets_of_context(context);
    wait_for(held, &targets, "cuGreenCtxDestroy")?;
    let device = held.contexts.get(context).ok_or(INVALID_CONTEXT)?.device;
    let lanes = held.streams.all.iter().filter(|(_, stream)| stream.context == context);
    let lanes: Vec<Lane> = lanes.map(|(lane, _)| *lane).collect();
    for lane in lanes {
        // It spoils the capture that the stream takes part in.
        let _ = held.not_capturing(lane);
    }
    end_default_streams(held, context);
    held.contexts.remove(context);
    held.green.all.remove(green);
    release_primary(held, device, "cuGreenCtxDestroy")
}
