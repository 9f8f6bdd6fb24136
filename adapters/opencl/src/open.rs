//! Lists and opens devices, and finds their capabilities by using each once.
//!
//! Promises upward: opening returns a working [`OpenClBackend`], or an [`OpenClError`] after releasing everything. A capability is
//! set when the device says so and its first use succeeded; for each other capability a note says why not.
//! Asks from below: the library's functions, a connection, regions and fills.

use crate::connection::{Connection, as_number, devices, handle, number, property};
use crate::copies::{copy, fill, prefetch};
use crate::describe::{OpenClDevice, describe};
use crate::error::OpenClError;
use crate::functions::{Functions, loaded};
use crate::layouts::{CL_CONTEXT_DEVICES, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, ClHandle};
use crate::memory::OpenClMemory;
use crate::opencl::{OpenClBackend, OpenClState};
use crate::queues::Queues;
use crate::regions;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use terrace_device::{Capabilities, Description, Fault, FaultReason, MemoryKind, ObjectSpace, PrefetchTarget, insist};

impl OpenClBackend {
    /// All devices of all platforms, but those that refuse to say what they are.
    ///
    /// # Errors
    /// [`OpenClError`] if there is no OpenCL, or it does not work; the first refusal if no device answers. No device is no error.
    pub fn devices() -> Result<Vec<OpenClDevice>, OpenClError> {
        Self::devices_by(loaded()?)
    }

    /// As [`Self::devices`], by these functions.
    pub(crate) fn devices_by(functions: &'static Functions) -> Result<Vec<OpenClDevice>, OpenClError> {
        let (mut all, mut failed) = (Vec::new(), None);
        for (ordinal, device) in (0..).zip(devices(functions)?) {
            // SAFETY: a device that the driver listed, which lives as long as the driver.
            match unsafe { describe(functions, device, ordinal) } {
                Ok(device) => all.push(device),
                Err(fault) => _ = failed.get_or_insert(fault),
            }
        }
        if all.is_empty() { failed.map_or(Ok(all), |fault| Err(fault.into())) } else { Ok(all) }
    }

    /// Opens a device, whose memory is buffers, with a context of its own.
    ///
    /// # Errors
    /// [`OpenClError`] names what failed and what to do about it.
    pub fn open(ordinal: u32) -> Result<Self, OpenClError> {
        Self::open_with(ordinal, OpenClMemory::Buffers)
    }

    /// Opens a device with a context of its own.
    ///
    /// # Errors
    /// As [`Self::open`]; [`OpenClError::NoMemory`] if the device lacks this kind of memory.
    pub fn open_with(ordinal: u32, memory: OpenClMemory) -> Result<Self, OpenClError> {
        Self::open_by(loaded()?, ordinal, memory)
    }

    /// As [`Self::open_with`], by these functions.
    pub(crate) fn open_by(
        functions: &'static Functions,
        ordinal: u32,
        memory: OpenClMemory,
    ) -> Result<Self, OpenClError> {
        let devices = devices(functions)?;
        let found = devices.len() as u32;
        let device = *devices.get(ordinal as usize).ok_or(OpenClError::NoDevice { ordinal, found })?;
        // SAFETY: a device that the driver listed.
        let about = unsafe { describe(functions, device, ordinal) }?;
        check(&about, memory)?;
        open(Connection::create(functions, device)?, &about, memory)
    }

    /// Opens a device of a context (`cl_context`) that the program made.
    ///
    /// The context is retained. Kernels and queues of the program work on terrace's memory.
    ///
    /// # Errors
    /// As [`Self::open_with`]; [`OpenClError::OtherContext`] if the device (`cl_device_id`) is not one of the context's.
    ///
    /// # Safety
    /// The context must be live.
    pub unsafe fn from_context(context: ClHandle, device: ClHandle, memory: OpenClMemory) -> Result<Self, OpenClError> {
        let functions = loaded()?;
        let (all, device) = (devices(functions)?, number(device));
        let bytes = property("clGetContextInfo", |room, into, size| {
            // SAFETY: the caller promises a live context; `property` lends `room` bytes.
            unsafe { (functions.core.clGetContextInfo)(context, CL_CONTEXT_DEVICES, room, into, size) }
        })?;
        if !bytes.chunks(size_of::<usize>()).any(|one| as_number(one) == device) {
            return Err(OpenClError::OtherContext);
        }
        // A part of a device is none of the list: it has the number behind all.
        let ordinal = all.iter().position(|&one| one == device).unwrap_or(all.len()) as u32;
        // SAFETY: a device of a live context.
        let about = unsafe { describe(functions, device, ordinal) }?;
        check(&about, memory)?;
        // SAFETY: as above.
        open(unsafe { Connection::share(functions, context, device) }?, &about, memory)
    }
}

/// Whether a device has what is asked for, by its own words.
fn check(about: &OpenClDevice, memory: OpenClMemory) -> Result<(), OpenClError> {
    if about.numbers() < (1, 2) {
        return Err(OpenClError::TooOld { version: about.version.clone() });
    }
    if !about.memory.contains(&memory) {
        return Err(OpenClError::NoMemory { memory, reason: "it says so (CL_DEVICE_SVM_CAPABILITIES)".into() });
    }
    Ok(())
}

fn open(connection: Connection, about: &OpenClDevice, memory: OpenClMemory) -> Result<OpenClBackend, OpenClError> {
    let queues = Queues::default();
    let queue = queues.create(&connection)?;
    // From here on, an early return drops `inner`, which releases everything.
    let mut inner = OpenClState {
        connection,
        memory,
        version: about.numbers(),
        fine: CL_MEM_SVM_FINE_GRAIN_BUFFER | if about.atomics { CL_MEM_SVM_ATOMICS } else { 0 },
        largest: about.largest,
        align: about.align,
        queue,
        queues,
        space: ObjectSpace::new(),
        taken: AtomicU64::new(0),
        description: first_description(about),
    };
    if let Err(fault) = try_memory(&inner, MemoryKind::Device) {
        return Err(match fault.reason {
            FaultReason::OutOfMemory | FaultReason::Unsupported => {
                OpenClError::NoMemory { memory, reason: fault.to_string() }
            }
            _ => OpenClError::Driver(fault),
        });
    }
    for CapabilityProbe { capability, without, run } in &PROBES {
        match run(&inner, about) {
            Ok(()) => inner.description.capabilities |= *capability,
            Err(NotThere::Refused(fault)) if fault.is_fatal() => return Err(OpenClError::Driver(fault)),
            Err(NotThere::Refused(fault)) => inner.description.notes.push(format!("{without}: {fault}")),
            Err(NotThere::Said(words)) => inner.description.notes.push(format!("{without}: {words}")),
        }
    }
    Ok(OpenClBackend { inner: Arc::new(inner) })
}

/// The description before anything is tried.
fn first_description(about: &OpenClDevice) -> Description {
    let version = about.version.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Description {
        backend: "opencl",
        ordinal: about.ordinal,
        name: about.name.clone(),
        driver: format!("{version}, {} {}", about.platform, about.driver),
        total: about.total,
        page_bytes: 0,
        peers: Vec::new(),
        strangers: Vec::new(),
        capabilities: Capabilities::STREAM_NAMES,
        notes: vec!["no pages: OpenCL maps none, memory comes in segments".into()],
    }
}

/// Why a capability is not there.
enum NotThere {
    Refused(Fault),
    Said(&'static str),
}

impl From<Fault> for NotThere {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

/// A capability, the note's first words without it, and its first use.
struct CapabilityProbe {
    capability: Capabilities,
    without: &'static str,
    run: fn(&OpenClState, &OpenClDevice) -> Result<(), NotThere>,
}

/// `Ok` when the device says so.
fn said(says: bool, words: &'static str) -> Result<(), NotThere> {
    if says { Ok(()) } else { Err(NotThere::Said(words)) }
}

/// In the order in which they run: some depend on those before.
const PROBES: [CapabilityProbe; 8] = [
    CapabilityProbe {
        capability: Capabilities::PINNED,
        without: "there is no pinned memory",
        run: |inner, _| Ok(try_memory(inner, MemoryKind::Pinned)?),
    },
    CapabilityProbe {
        capability: Capabilities::MANAGED,
        without: "there is no managed memory",
        run: |inner, about| {
            said(about.memory.contains(&OpenClMemory::FineSvm), "it has no fine-grained shared virtual memory")?;
            Ok(try_memory(inner, MemoryKind::Managed)?)
        },
    },
    CapabilityProbe {
        capability: Capabilities::CONCURRENT_MANAGED,
        without: "host and device must take turns with managed memory",
        run: |inner, about| {
            said(inner.description.capabilities.contains(Capabilities::MANAGED), "there is none")?;
            said(about.atomics, "it has no atomics on it")?;
            Ok(try_prefetch(inner)?)
        },
    },
    CapabilityProbe {
        capability: Capabilities::HOST_ATOMICS,
        without: "atomics of host and device are not atomic to each other",
        run: |inner, about| {
            said(inner.description.capabilities.contains(Capabilities::MANAGED), "there is no managed memory")?;
            said(about.atomics, "it says so (CL_DEVICE_SVM_ATOMICS)")
        },
    },
    CapabilityProbe {
        capability: Capabilities::INTEGRATED,
        without: "the device has memory of its own",
        run: |_, about| said(about.unified, "it says so (CL_DEVICE_HOST_UNIFIED_MEMORY)"),
    },
    CapabilityProbe {
        capability: Capabilities::PROCESSOR,
        without: "the device is none of the host's processors",
        run: |_, about| said(about.processor, "it says so (CL_DEVICE_TYPE)"),
    },
    CapabilityProbe {
        capability: Capabilities::FREE_IS_AVAILABLE,
        without: "free memory is the total less what terrace has",
        run: |_, about| said(about.unified, "OpenCL does not say what other programs have"),
    },
    CapabilityProbe {
        capability: Capabilities::PAGEABLE,
        without: "the device cannot use any host address",
        run: |_, about| said(about.system, "it has no fine-grained system sharing"),
    },
];

/// Moves managed memory there and back.
fn try_prefetch(inner: &OpenClState) -> Result<(), Fault> {
    const BYTES: u64 = 4096;
    let address = regions::allocate(inner, MemoryKind::Managed, BYTES)?;
    let moved = [PrefetchTarget::Device, PrefetchTarget::Host].into_iter().try_for_each(|to| {
        // SAFETY: a fresh region, freed below after its work is done; the device's own queue.
        unsafe { prefetch(inner, address, BYTES, to, inner.queue) }
    });
    // SAFETY: the device's own queue.
    let done = unsafe { inner.queues.finish(&inner.connection, inner.queue) };
    if done.is_ok() {
        // SAFETY: allocated above; the queue that used it is done.
        insist(|| unsafe { regions::free(inner, MemoryKind::Managed, address, BYTES) })?;
    }
    moved.and(done)
}

/// Allocates a region, fills it, reads it by a copy and what the host reaches at its address, and frees it.
fn try_memory(inner: &OpenClState, kind: MemoryKind) -> Result<(), Fault> {
    const BYTES: u64 = 4096;
    let address = regions::allocate(inner, kind, BYTES)?;
    // SAFETY: a fresh region, freed below after its work is done; the device's own queue.
    let filled = unsafe { fill(inner, address, 0x5a, BYTES, inner.queue) };
    let mut read = vec![0_u8; BYTES as usize];
    let to = read.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: as above; the vector is not dropped before the work is done.
    let copied = filled.and_then(|()| unsafe { copy(inner, to, address, BYTES, inner.queue) });
    // SAFETY: the device's own queue.
    let done = unsafe { inner.queues.finish(&inner.connection, inner.queue) };
    let seen = copied.is_err() || done.is_err() || {
        let last: *mut u8 = handle(address + BYTES - 1);
        // SAFETY: the last byte of a live region, where the host reaches it.
        let here = kind == MemoryKind::Device || unsafe { last.read_volatile() } == 0x5a;
        here && std::hint::black_box(&mut read).iter().all(|byte| *byte == 0x5a)
    };
    if done.is_err() {
        std::mem::forget(read);
    } else {
        // SAFETY: allocated above; the queue that used it is done.
        insist(|| unsafe { regions::free(inner, kind, address, BYTES) })?;
    }
    copied.and(done)?;
    if seen { Ok(()) } else { Err(Fault::of("read what the device wrote", FaultReason::Unsupported)) }
}
