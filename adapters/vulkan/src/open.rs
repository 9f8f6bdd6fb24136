//! Opens devices.
//!
//! Promises upward: a working [`VulkanBackend`], or an [`VulkanError`] after everything was released.
//! Asks from below: the Vulkan library; the table of the device's memory.

use crate::driver::AshDriver;
use crate::error::VulkanError;
use crate::fault::fault;
use crate::library::{NEEDED, OwnedDevice};
use crate::objects::Objects;
use crate::regions::{buffer_usage, usage};
use crate::sparse::{PAGE, SparseProbe, binding_family, features as features_for_pages};
use crate::table::{MemoryTable, MemoryUse};
use crate::vulkan::{Shared, VulkanBackend};
use ash::vk;
use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use terrace_device::{Capabilities, Description, MemoryKind};
use terrace_guard::Process;

/// Queues that streams share, at most.
const QUEUES: u32 = 8;

fn devices(instance: &ash::Instance) -> Result<Vec<vk::PhysicalDevice>, VulkanError> {
    // SAFETY: the instance is live.
    unsafe { instance.enumerate_physical_devices() }.map_err(|code| match code {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => VulkanError::NoDriver,
        code => fault("vkEnumeratePhysicalDevices", code).into(),
    })
}

/// What was found out about a physical device.
struct DeviceProbe {
    name: String,
    driver: String,
    kind: vk::PhysicalDeviceType,
    family: u32,
    queues: u32,
    device_address: bool,
    /// Whether the driver is one over another interface, which leaves parts out.
    portability: bool,
    /// Of memory that is imported, in bytes; 0 without the extension.
    import_atom: u64,
    /// What it says about sparse binding, or what is missing.
    sparse: Result<SparseProbe, &'static str>,
}

impl VulkanBackend {
    /// Opens a device, with an instance and a logical device of its own.
    ///
    /// The first call of a process loads the library and its drivers: tens of milliseconds.
    ///
    /// # Errors
    /// [`VulkanError`] names what is missing and what to do about it.
    pub fn open(ordinal: u32) -> Result<Self, VulkanError> {
        let mut own = OwnedDevice::new()?;
        let instance = own.instance.clone();
        let devices = devices(&instance)?;
        let found = devices.len() as u32;
        let physical = *devices.get(ordinal as usize).ok_or(VulkanError::NoDevice { ordinal, found })?;
        let found = DeviceProbe::look(&instance, physical)?;
        // SAFETY: the instance is of version 1.2, and so is the device: `look` refuses others.
        let table = unsafe { MemoryTable::of(&instance, physical) };
        let device = found.create_device(&instance, physical, table.budget)?;
        let importing = (found.import_atom > 0).then_some(c"vkGetMemoryHostPointerPropertiesEXT");
        let binding = found.sparse.is_ok().then_some(c"vkQueueBindSparse");
        own.add(device.clone(), importing.into_iter().chain(binding))?;
        let imports = importing.map(|_| ash::ext::external_memory_host::Device::new(&instance, &device));
        let queues = (0..found.queues).map(|at| {
            // SAFETY: the device was created with this many queues of the family.
            let queue = unsafe { device.get_device_queue(found.family, at) };
            Arc::new(Mutex::new(queue))
        });
        let queues = queues.collect();
        let (budget, device_address, process) = (table.budget, found.device_address, Process::current());
        let description = found.describe(ordinal, &table);
        let driver = AshDriver { instance, physical, device, budget, device_address, process };
        let objects = Objects::new(table, Box::new(driver.clone()));
        let (family, atom) = (found.family, found.import_atom);
        let shared = Shared::new(own, driver, objects, description, family, queues, imports, atom);
        let patterns: Vec<u8> = (0..=u8::MAX).flat_map(|value| [value; 4]).collect();
        let region = shared.make_region(MemoryKind::Pinned, patterns.len() as u64)?;
        shared.write_region(&region, &patterns);
        let _ = shared.patterns.set(region);
        let mut opened = Self { shared: Arc::new(shared) };
        let tried = match found.sparse.map(|sparse| opened.add_pages(sparse)) {
            Ok(Err(fault)) if fault.is_fatal() => return Err(fault.into()),
            Ok(tried) => tried.map_err(|fault| fault.to_string()),
            Err(lacks) => Err(lacks.into()),
        };
        if let Some(shared) = Arc::get_mut(&mut opened.shared) {
            let description = &mut shared.description;
            match tried {
                Ok(()) => {
                    description.page_bytes = PAGE;
                    description.capabilities |= Capabilities::PAGES;
                }
                Err(why) => description.notes.push(format!("no pages: memory comes in segments: {why}")),
            }
        }
        Ok(opened)
    }

    /// The number of devices.
    ///
    /// # Errors
    /// [`VulkanError`] if there is no library or no driver.
    pub fn count() -> Result<u32, VulkanError> {
        Ok(devices(&OwnedDevice::new()?.instance)?.len() as u32)
    }
}

impl DeviceProbe {
    fn look(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<Self, VulkanError> {
        // SAFETY: a device of the live instance.
        let properties = unsafe { instance.get_physical_device_properties(physical) };
        let name = properties.device_name_as_c_str().map(CStr::to_string_lossy).unwrap_or_default().into_owned();
        let too_old = |lacks| VulkanError::TooOld { device: name.clone(), lacks };
        if properties.api_version < NEEDED {
            return Err(too_old("Vulkan 1.2"));
        }
        let mut features = vk::PhysicalDeviceVulkan12Features::default();
        let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut features);
        // SAFETY: as above; the structures live through the call.
        unsafe { instance.get_physical_device_features2(physical, &mut all) };
        let oldest = all.features;
        if features.timeline_semaphore == vk::FALSE {
            return Err(too_old("timeline semaphores"));
        }
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let computes = |(_, of): &(u32, &vk::QueueFamilyProperties)| of.queue_flags.contains(vk::QueueFlags::COMPUTE);
        let family = (0..).zip(&families).filter(computes).max_by_key(|(_, of)| of.queue_count.min(QUEUES));
        let (family, of) = family.ok_or_else(|| too_old("a queue that computes"))?;
        let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut more = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
        let device_address = features.buffer_device_address == vk::TRUE;
        let imports = has_extension(instance, physical, ash::ext::external_memory_host::NAME)
            && can_import(instance, physical, device_address);
        if imports {
            more = more.push_next(&mut host);
        }
        let mut buffers = vk::PhysicalDeviceMaintenance4Properties { max_buffer_size: u64::MAX, ..Default::default() };
        if has_extension(instance, physical, ash::khr::maintenance4::NAME) {
            more = more.push_next(&mut buffers);
        }
        // SAFETY: as above.
        unsafe { instance.get_physical_device_properties2(physical, &mut more) };
        let (space, largest) = (properties.limits.sparse_address_space_size, buffers.max_buffer_size);
        let sparse = binding_family(&oldest, &families, family).map(|family| SparseProbe { family, space, largest });
        let text = |text: &[std::ffi::c_char]| {
            let bytes: Vec<u8> = text.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let version = properties.api_version;
        let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
        Ok(Self {
            driver: format!("Vulkan {major}.{minor}, {} {}", text(&driver.driver_name), text(&driver.driver_info)),
            name,
            kind: properties.device_type,
            family,
            queues: of.queue_count.min(QUEUES),
            device_address,
            portability: has_extension(instance, physical, ash::khr::portability_subset::NAME),
            sparse,
            import_atom: if imports { host.min_imported_host_pointer_alignment } else { 0 },
        })
    }

    fn create_device(
        &self,
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        budget: bool,
    ) -> Result<ash::Device, VulkanError> {
        let priorities = vec![1.0; self.queues as usize];
        let of = |family, queues| {
            vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities[..queues])
        };
        let mut queues = vec![of(self.family, priorities.len())];
        // The queue that binds, unless it is one of the streams'.
        queues
            .extend(self.sparse.ok().filter(|sparse| sparse.family != self.family).map(|sparse| of(sparse.family, 1)));
        let mut features = vk::PhysicalDeviceVulkan12Features::default()
            .timeline_semaphore(true)
            .buffer_device_address(self.device_address);
        let budget = budget.then_some(ash::ext::memory_budget::NAME.as_ptr());
        let imports = (self.import_atom > 0).then_some(ash::ext::external_memory_host::NAME.as_ptr());
        // Where a device lists it, it must be enabled.
        let portability = self.portability.then_some(ash::khr::portability_subset::NAME.as_ptr());
        let extensions: Vec<_> = budget.into_iter().chain(imports).chain(portability).collect();
        let oldest = self.sparse.map_or_else(|_| vk::PhysicalDeviceFeatures::default(), |_| features_for_pages());
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
        let info = info.enabled_features(&oldest);
        // SAFETY: family, features and extensions are those that the device has; the structures live through the call.
        let made = unsafe { instance.create_device(physical, &info.push_next(&mut features), None) };
        made.map_err(|code| fault("vkCreateDevice", code).into())
    }

    fn describe(&self, ordinal: u32, table: &MemoryTable) -> Description {
        let has = |kind| usage(kind).is_some_and(|usage| !table.candidates(u32::MAX, usage).is_empty());
        let shares = matches!(self.kind, vk::PhysicalDeviceType::INTEGRATED_GPU | vk::PhysicalDeviceType::CPU);
        let mut capabilities = Capabilities::STREAM_NAMES | Capabilities::BATCHES;
        let mut notes = Vec::new();
        let mut add = |there, capability, note: &str| {
            if there { capabilities |= capability } else { notes.push(note.into()) }
        };
        add(
            has(MemoryKind::Pinned),
            Capabilities::PINNED,
            "no pinned memory: no memory type is host-visible and coherent",
        );
        add(
            has(MemoryKind::Managed),
            Capabilities::MANAGED,
            "no managed memory: no memory type is also the device's own",
        );
        add(
            self.import_atom > 0,
            Capabilities::REGISTRATION,
            "no registration: VK_EXT_external_memory_host is missing, or imports no buffers",
        );
        if shares {
            capabilities |= Capabilities::INTEGRATED;
        }
        if self.kind == vk::PhysicalDeviceType::CPU {
            capabilities |= Capabilities::PROCESSOR;
        }
        let own = table.candidates(u32::MAX, MemoryUse::Device).first().map(|&at| table.types[at as usize].heap);
        Description {
            backend: "vulkan",
            ordinal,
            name: self.name.clone(),
            driver: self.driver.clone(),
            total: own.map_or(0, |heap| table.heaps[heap as usize].bytes),
            page_bytes: 0,
            peers: Vec::new(),
            strangers: Vec::new(),
            capabilities,
            notes,
        }
    }
}

fn has_extension(instance: &ash::Instance, physical: vk::PhysicalDevice, name: &CStr) -> bool {
    // SAFETY: a device of the live instance.
    let all = unsafe { instance.enumerate_device_extension_properties(physical) }.unwrap_or_default();
    all.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
}

/// Whether memory of the process can back a buffer as this crate makes them.
fn can_import(instance: &ash::Instance, physical: vk::PhysicalDevice, device_address: bool) -> bool {
    use vk::ExternalMemoryFeatureFlags as Flags;
    let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(buffer_usage(device_address));
    let info = info.handle_type(vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT);
    let mut properties = vk::ExternalBufferProperties::default();
    // SAFETY: a device of the live instance, which is of version 1.1 at least; the structures live through the call.
    unsafe { instance.get_physical_device_external_buffer_properties(physical, &info, &mut properties) };
    let features = properties.external_memory_properties.external_memory_features;
    features.contains(Flags::IMPORTABLE) && !features.contains(Flags::DEDICATED_ONLY)
}
