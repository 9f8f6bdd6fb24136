//! A device's properties, as the runtime's structure has them.
//!
//! Promises upward: [`DeviceProperties`], laid out as `cudaDeviceProp` of CUDA 13.
//! Asks from below: the driver's attributes.

use crate::call::{Code, driver, result};
use crate::device::cuDeviceGetAttribute;
use std::ffi::c_char;

driver! {
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32);
    fn cuDeviceTotalMem_v2(bytes: &mut usize, device: i32);
}

/// Bytes of `name`, the first field.
const NAME: usize = 256;

/// Where `totalGlobalMem` is.
const TOTAL: usize = 288;

/// Where an `int` is, and the attribute of the driver that it has.
const NUMBERS: [(usize, i32); 15] = [
    (308, 10), // warpSize
    (320, 1),  // maxThreadsPerBlock
    (324, 2),  // maxThreadsDim
    (328, 3),  //
    (332, 4),  //
    (336, 5),  // maxGridSize
    (340, 6),  //
    (344, 7),  //
    (360, 75), // major
    (364, 76), // minor
    (384, 16), // multiProcessorCount
    (388, 18), // integrated
    (588, 41), // unifiedAddressing
    (636, 83), // managedMemory
    (656, 89), // concurrentManagedAccess
];

/// Where a number is that the simulated driver has no attribute for, and what PyTorch divides by.
const CONSTANTS: [(usize, u32); 5] = [
    (296, 48 << 10), // sharedMemPerBlock
    (304, 64 << 10), // regsPerBlock
    (596, 4 << 20),  // l2CacheSize
    (604, 1536),     // maxThreadsPerMultiProcessor
    (672, 48 << 10), // sharedMemPerBlockOptin
];

/// `cudaDeviceProp`; what nothing here says is 0.
#[repr(C, align(8))]
pub struct DeviceProperties([u8; 1008]);

impl DeviceProperties {
    /// A device's.
    ///
    /// # Errors
    /// The driver's.
    pub fn of(device: i32) -> Result<DeviceProperties, Code> {
        let mut properties = DeviceProperties([0; 1008]);
        result(cuDeviceGetName(properties.0.as_mut_ptr().cast(), NAME as i32, device))?;
        let mut total = 0;
        result(cuDeviceTotalMem_v2(&mut total, device))?;
        properties.put(TOTAL, &total.to_ne_bytes());
        for (place, attribute) in NUMBERS {
            let mut value = 0;
            result(cuDeviceGetAttribute(Some(&mut value), attribute, device))?;
            properties.put(place, &value.to_ne_bytes());
        }
        CONSTANTS.iter().for_each(|(place, value)| properties.put(*place, &value.to_ne_bytes()));
        Ok(properties)
    }

    fn put(&mut self, place: usize, bytes: &[u8]) {
        self.0[place..place + bytes.len()].copy_from_slice(bytes);
    }
}
