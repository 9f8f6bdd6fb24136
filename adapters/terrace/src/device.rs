//! Devices: memory of a GPU, or of the host behind the same interface.
//!
//! Promises upward: [`Device`] opens a device by name of its backend; everything else is `terrace-device`'s, which this
//! module re-exports.
//! Asks from below: one backend for each of the crate's features that name one.

mod all;
#[cfg(any(feature = "cuda", feature = "opencl", feature = "vulkan", all(feature = "metal", target_os = "macos")))]
mod drivers;

pub use all::{BestDevice, FoundDevice, NoDeviceFits, PassedBy, PassedByReason, Preference};
pub use terrace_device::*;

#[cfg(feature = "cuda")]
pub use terrace_cuda::{OpenError, OpenErrorReason, SharedSlice, SharedSliceMut, SharedStream};
#[cfg(all(feature = "metal", target_os = "macos"))]
pub use terrace_metal::{Metal, MetalError};
#[cfg(feature = "opencl")]
pub use terrace_opencl::{OpenClBackend, OpenClError, OpenClMemory};
#[cfg(feature = "vulkan")]
pub use terrace_vulkan::{VulkanBackend, VulkanError};

use crate::config::{Builder, Config, ConfigError};
use std::fmt;
use std::io::{self, Write};
use std::ops::Deref;
use std::sync::Once;
use terrace_core::settings::{self, GRANULE, Spec, Surface, Value};

/// One device and its memory: [`terrace_device::Device`], and the ways to open one.
///
/// Clones are handles to the same device.
///
/// # Example
/// ```
/// let device = terrace::Device::host();
/// let stream = device.stream()?;
/// let block = device.allocate(&stream, 1 << 20)?;
/// println!("{} has {block:?}", device.name());
/// # Ok::<(), terrace::device::DeviceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device(terrace_device::Device);

impl Device {
    /// Opens the host's memory as a device. Work is done at once, in order of call.
    pub fn host() -> Self {
        Self(terrace_device::Device::host())
    }

    /// Opens the first device: CUDA's if it works, else HIP's, else the host's memory.
    ///
    /// CUDA and HIP need the features `cuda` and `hip`, and a driver that works. The device's [name](terrace_device::Device::name)
    /// tells which it is; [`Device::cuda`] and [`Device::hip`] tell why one does not work.
    ///
    /// The file that `TERRACE_CONFIG` names and the environment variables of [`config`](crate::config) set the device's options. If
    /// one of them is invalid, none has an effect, and standard error says so once.
    ///
    /// # Example
    /// ```
    /// let device = terrace::Device::first();
    /// println!("{}", device.name());
    /// assert!(device.stream().is_ok());
    /// ```
    pub fn first() -> Self {
        let config = Config::device().load().and_then(Builder::build);
        let options = config.map(|config| DeviceOptions::from(&config)).map_err(|error| error.to_string());
        let device = options.and_then(|options| Self::first_with(options).map_err(|error| error.to_string()));
        device
            .or_else(|error| {
                tell(&error);
                Self::first_with(DeviceOptions::default())
            })
            .unwrap_or_else(|_| Self::host())
    }

    /// Opens the first device with options, ignoring the environment variables.
    ///
    /// # Errors
    /// [`DeviceError::BadOption`].
    pub fn first_with(options: DeviceOptions) -> Result<Self, DeviceError> {
        #[cfg(feature = "cuda")]
        match Self::cuda_with(0, options) {
            Ok(device) => return Ok(device),
            Err(CudaError::Device(error @ DeviceError::BadOption(_))) => return Err(error),
            // No CUDA device works.
            Err(_) => {}
        }
        #[cfg(feature = "hip")]
        match Self::hip_with(0, options) {
            Err(CudaError::Device(error @ DeviceError::BadOption(_))) => return Err(error),
            Ok(device) => return Ok(device),
            Err(_) => {}
        }
        Self::open(HostBackend::new(), options)
    }

    /// Opens a CUDA device. The driver is loaded at run time; building needs nothing of CUDA.
    ///
    /// # Errors
    /// [`OpenError`]: no driver, no such device, a driver that is too old or broken; each says what to install or do.
    ///
    /// # Example
    /// ```no_run
    /// let device = terrace::Device::cuda(0)?;
    /// let stream = device.stream()?;
    /// let mut weights = device.allocate(&stream, 1 << 30)?;
    /// weights.fill(0, 1 << 30, 0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Self, CudaError> {
        Self::cuda_with(ordinal, DeviceOptions::default())
    }

    /// Opens a CUDA device with options.
    ///
    /// # Errors
    /// As for [`Device::cuda`]; [`DeviceError::BadOption`].
    #[cfg(feature = "cuda")]
    pub fn cuda_with(ordinal: u32, options: DeviceOptions) -> Result<Self, CudaError> {
        Ok(Self::open(terrace_cuda::Cuda::open(ordinal).map_err(BackendError::Open)?, options)?)
    }

    /// Opens a device of AMD's, by HIP. The library is loaded at run time; building needs nothing of ROCm.
    ///
    /// # Errors
    /// As for [`Device::cuda`], in HIP's words.
    ///
    /// # Example
    /// ```no_run
    /// let device = terrace::Device::hip(0)?;
    /// println!("{}: {:?}", device.name(), device.description().capabilities);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "hip")]
    pub fn hip(ordinal: u32) -> Result<Self, CudaError> {
        Self::hip_with(ordinal, DeviceOptions::default())
    }

    /// Opens a device of AMD's with options.
    ///
    /// # Errors
    /// As for [`Device::hip`]; [`DeviceError::BadOption`].
    #[cfg(feature = "hip")]
    pub fn hip_with(ordinal: u32, options: DeviceOptions) -> Result<Self, CudaError> {
        Ok(Self::open(terrace_hip::Hip::open(ordinal).map_err(BackendError::Open)?, options)?)
    }

    /// Opens the system's Metal device (macOS).
    ///
    /// For a device of your own, or kernels, open a [`Metal`] and give a clone of it to [`Device::open`].
    ///
    /// # Errors
    /// [`MetalError`]: no device, or none that shares the host's memory; each says what to use instead.
    ///
    /// # Example
    /// ```no_run
    /// let device = terrace::Device::metal()?;
    /// println!("{}: {}", device.name(), device.description().driver);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(all(feature = "metal", target_os = "macos"))]
    pub fn metal() -> Result<Self, MetalDeviceError> {
        Self::metal_with(DeviceOptions::default())
    }

    /// Opens the system's Metal device with options.
    ///
    /// # Errors
    /// As for [`Device::metal`]; [`DeviceError::BadOption`].
    #[cfg(all(feature = "metal", target_os = "macos"))]
    pub fn metal_with(options: DeviceOptions) -> Result<Self, MetalDeviceError> {
        Ok(Self::open(Metal::open().map_err(BackendError::Open)?, options)?)
    }

    /// Opens a device of OpenCL, by its number among those of all platforms.
    ///
    /// The library is loaded at run time. Its blocks are parts of buffers; for shared virtual memory, or a context of your own, give an
    /// [`OpenClBackend`] to [`Device::open`].
    ///
    /// # Errors
    /// [`OpenClError`]: no library, no driver, no such device; each says what to install or do.
    ///
    /// # Example
    /// ```no_run
    /// let device = terrace::Device::opencl(0)?;
    /// println!("{}: {}", device.name(), device.description().driver);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "opencl")]
    pub fn opencl(ordinal: u32) -> Result<Self, OpenClDeviceError> {
        Self::opencl_with(ordinal, DeviceOptions::default())
    }

    /// Opens a device of OpenCL with options; the granule is at least what its sub-buffers are aligned to.
    ///
    /// # Errors
    /// As for [`Device::opencl`]; [`DeviceError::BadOption`].
    #[cfg(feature = "opencl")]
    pub fn opencl_with(ordinal: u32, options: DeviceOptions) -> Result<Self, OpenClDeviceError> {
        let backend = OpenClBackend::open(ordinal).map_err(BackendError::Open)?;
        Ok(Self::open(backend, options)?)
    }

    /// Opens a device of Vulkan, with an instance and a logical device of its own.
    ///
    /// A program that has its own takes [`VulkanAllocator`](terrace_vulkan::VulkanAllocator).
    ///
    /// # Errors
    /// [`VulkanError`]: no library, no driver, no such device; each says what to install or do.
    ///
    /// # Example
    /// ```no_run
    /// let device = terrace::Device::vulkan(0)?;
    /// println!("{}: {}", device.name(), device.description().driver);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "vulkan")]
    pub fn vulkan(ordinal: u32) -> Result<Self, VulkanDeviceError> {
        Self::vulkan_with(ordinal, DeviceOptions::default())
    }

    /// Opens a device of Vulkan with options.
    ///
    /// # Errors
    /// As for [`Device::vulkan`]; [`DeviceError::BadOption`].
    #[cfg(feature = "vulkan")]
    pub fn vulkan_with(ordinal: u32, options: DeviceOptions) -> Result<Self, VulkanDeviceError> {
        let backend = VulkanBackend::open(ordinal).map_err(BackendError::Open)?;
        Ok(Self::open(backend, options)?)
    }

    /// Changes `capacity` or `fallback` while the device is open, to a text such as `4GiB` or `on`.
    ///
    /// As [`set_capacity`](terrace_device::Device::set_capacity) and [`set_fallback`](terrace_device::Device::set_fallback).
    ///
    /// # Errors
    /// An unknown name, a value that the setting does not accept, a setting that is fixed once a device is open.
    ///
    /// # Example
    /// ```
    /// let device = terrace::Device::host();
    /// device.set("capacity", "64MiB")?;
    /// assert_eq!(device.stats().pool.capacity, 64 << 20);
    /// let error = device.set("granule", "4KiB").unwrap_err().to_string();
    /// assert!(error.starts_with("granule is `4KiB`; allowed: no change while a device is open"), "{error}");
    /// # Ok::<(), terrace::ConfigError>(())
    /// ```
    pub fn set(&self, name: &str, value: &str) -> Result<(), ConfigError> {
        match Config::parse_of(Surface::Device, name, value)? {
            ("capacity", Value::Number(bytes)) => self.set_capacity(bytes),
            ("fallback", Value::Switch(on)) => self.set_fallback(on),
            (name, _) => return Err(Config::fixed(name, value)),
        }
        Ok(())
    }

    /// Opens a device over a backend of your own.
    ///
    /// # Errors
    /// As [`terrace_device::Device::open`].
    pub fn open(backend: impl Backend, options: DeviceOptions) -> Result<Self, DeviceError> {
        terrace_device::Device::open(backend, options).map(Self)
    }
}

/// Reports once per process that the environment variables have no effect.
fn tell(error: &str) {
    static TOLD: Once = Once::new();
    // The result is dropped: without standard error there is nowhere to report to.
    TOLD.call_once(|| _ = writeln!(io::stderr(), "terrace: {error}; no TERRACE_* variable or file acts"));
}

impl Deref for Device {
    type Target = terrace_device::Device;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Why a device of a driver could not be opened.
#[derive(Clone, Debug, PartialEq)]
pub enum BackendError<E> {
    /// The driver or the device could not be opened.
    Open(E),
    /// The pool on the device could not be opened.
    Device(DeviceError),
}

/// Why a device of CUDA or HIP could not be opened.
#[cfg(feature = "cuda")]
pub type CudaError = BackendError<OpenError>;

/// Why the device of Metal could not be opened.
#[cfg(all(feature = "metal", target_os = "macos"))]
pub type MetalDeviceError = BackendError<MetalError>;

/// Why a device of OpenCL could not be opened.
#[cfg(feature = "opencl")]
pub type OpenClDeviceError = BackendError<OpenClError>;

/// Why a device of Vulkan could not be opened.
#[cfg(feature = "vulkan")]
pub type VulkanDeviceError = BackendError<VulkanError>;

impl<E: fmt::Display> fmt::Display for BackendError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for BackendError<E> {}

impl<E> From<DeviceError> for BackendError<E> {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Converts a configuration.
impl From<&Config> for DeviceOptions {
    fn from(config: &Config) -> Self {
        let of = |spec: Spec| config.settings().of(&spec);
        // A device has a granule of its own where none was chosen.
        let granule = config.settings().get(&GRANULE).map_or_else(|| Self::default().granule, Value::number);
        Self {
            origin: PoolOrigin::ALL[of(settings::ORIGIN).word()],
            capacity: config.capacity,
            device_fraction: config.device_fraction,
            min_free: config.min_free,
            granule,
            small_threshold: config.small_threshold,
            pooled_per_bucket: config.pooled_per_bucket,
            segment: config.segment,
            zero_fresh: config.zero_fresh,
            pressure: config.pressure,
            strategy: config.strategy,
            fallback: config.fallback,
            stream_cache: of(settings::STREAM_CACHE).number(),
            coalesce: of(settings::COALESCE).number(),
            adapt: of(settings::ADAPT).is_on(),
            keep: of(settings::KEEP).number(),
            idle: of(settings::IDLE).number() as u32,
            largest_handle: of(settings::LARGEST_HANDLE).number(),
            move_above: of(settings::MOVE_ABOVE).share(),
            peer_access: of(settings::PEER_ACCESS).is_on(),
            blocks: of(settings::BLOCKS).number() as usize,
            debug: of(settings::DEBUG).switches(),
        }
    }
}
