//! Devices: what they are.

use crate::abi::attributes::device as attribute;
use crate::abi::codes::INVALID_VALUE;

use crate::abi::{Out, Outcome, Uuid, c_char, c_int, put_text};
use crate::gate::exports;
use crate::machine::Profile;

/// Attributes count up to here in CUDA 13; higher numbers are refused, unknown lower ones are 0.
const LAST_ATTRIBUTE: c_int = 150;

/// Multiprocessors of a device.
pub(super) const MULTIPROCESSORS: u32 = 16;

exports! {
    /// A device by its ordinal.
    Driver fn cuDeviceGet(world, here, device: Out<c_int>, ordinal: c_int) {
        world.ordinal(ordinal)?;
        device.put(ordinal)
    }

    /// How many there are.
    Driver fn cuDeviceGetCount(world, here, count: Out<c_int>) {
        count.put(world.devices.len() as c_int)
    }

    /// Its name, cut to the caller's buffer.
    Driver fn cuDeviceGetName(world, here, name: Out<c_char>, room: c_int, device: c_int) {
        let device = world.ordinal(device)?;
        name.check()?;
        let room = usize::try_from(room).map_err(|_| INVALID_VALUE)?;
        put_text(name, room, &format!("{} {device}", world.profile.name));
        Ok(())
    }

    /// Sixteen bytes that name the device.
    Driver fn cuDeviceGetUuid(world, here, uuid: Out<Uuid>, device: c_int) {
        uuid.put(name_of(world.ordinal(device)?))
    }

    /// The same: what differs only matters where a GPU is cut into instances.
    Driver fn cuDeviceGetUuid_v2(world, here, uuid: Out<Uuid>, device: c_int) {
        uuid.put(name_of(world.ordinal(device)?))
    }

    /// Its place on the bus.
    Driver fn cuDeviceGetPCIBusId(world, here, name: Out<c_char>, room: c_int, device: c_int) {
        let device = world.ordinal(device)?;
        name.check()?;
        let room = usize::try_from(room).map_err(|_| INVALID_VALUE)?;
        put_text(name, room, &format!("0000:{:02x}:00.0", device + 1));
        Ok(())
    }

    /// Bytes of its memory.
    Driver fn cuDeviceTotalMem_v2(world, here, bytes: Out<usize>, device: c_int) {
        world.ordinal(device)?;
        bytes.put(world.profile.total as usize)
    }

    /// What it can do.
    Driver fn cuDeviceGetAttribute(world, here, value: Out<c_int>, attribute: c_int, device: c_int) {
        let device = world.ordinal(device)?;
        value.put(attribute_of(&world.profile, attribute, device)?)
    }

    /// Its compute capability.
    Driver fn cuDeviceComputeCapability(world, here, major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        world.ordinal(device)?;
        major.put(world.profile.capability[0])?;
        minor.put(world.profile.capability[1])
    }
}

fn name_of(device: usize) -> Uuid {
    let mut bytes = *b"simulated GPU  \0";
    bytes[15] = device as u8;
    Uuid(bytes)
}

fn attribute_of(profile: &Profile, number: c_int, device: usize) -> Outcome<c_int> {
    if !(1..=LAST_ATTRIBUTE).contains(&number) {
        return Err(INVALID_VALUE);
    }
    Ok(match number {
        attribute::MAX_THREADS_PER_BLOCK | attribute::MAX_BLOCK_DIM_X | attribute::MAX_BLOCK_DIM_Y => 1024,
        attribute::MAX_BLOCK_DIM_Z => 64,
        attribute::MAX_GRID_DIM_X => c_int::MAX,
        attribute::MAX_GRID_DIM_Y | attribute::MAX_GRID_DIM_Z => 65535,
        attribute::MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
        attribute::WARP_SIZE | attribute::TEXTURE_PITCH_ALIGNMENT => 32,
        attribute::MAX_PITCH => super::plane::MAX_PITCH as c_int,
        attribute::TEXTURE_ALIGNMENT => 512,
        attribute::MULTIPROCESSOR_COUNT => MULTIPROCESSORS as c_int,
        attribute::ASYNC_ENGINE_COUNT => 2,
        attribute::PCI_BUS_ID => device as c_int + 1,
        attribute::COMPUTE_CAPABILITY_MAJOR => profile.capability[0],
        attribute::COMPUTE_CAPABILITY_MINOR => profile.capability[1],
        attribute::CAN_MAP_HOST_MEMORY
        | attribute::CONCURRENT_KERNELS
        | attribute::IPC_EVENT_SUPPORTED
        | attribute::UNIFIED_ADDRESSING
        | attribute::STREAM_PRIORITIES_SUPPORTED
        | attribute::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM => 1,
        attribute::INTEGRATED => profile.integrated.into(),
        attribute::MANAGED_MEMORY => profile.managed.into(),
        attribute::CONCURRENT_MANAGED_ACCESS => profile.concurrent_managed.into(),
        attribute::PAGEABLE_MEMORY_ACCESS | attribute::PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES => {
            profile.pageable.into()
        }
        attribute::HOST_REGISTER_SUPPORTED => profile.register.into(),
        attribute::VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED | attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => {
            profile.vmm.into()
        }
        attribute::MEMORY_POOLS_SUPPORTED => profile.pools.into(),
        _ => 0,
    })
}
