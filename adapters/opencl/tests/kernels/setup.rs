//! A program with a context, a queue and a kernel of its own, and events that hold work up.

use crate::common::opened;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;
use opencl3::event::{CL_COMPLETE, cl_event, create_user_event, release_event, retain_event, set_user_event_status};
use opencl3::kernel::Kernel;
use opencl3::program::Program;
use std::ptr::null;
use std::sync::Arc;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;
use terrace_device::{Device, DeviceOptions};
use terrace_opencl::{KernelSliceMut, OpenClBackend, OpenClMemory, SharedQueue};

/// Multiplies each element and adds: two launches do something else in another order.
const SOURCE: &str = "
    kernel void scale(global uint *x, uint by, uint plus) {
        size_t i = get_global_id(0);
        x[i] = x[i] * by + plus;
    }
";

/// Work that waits for it is not done before it opens, however long the machine takes.
pub struct Gate(usize);

impl Gate {
    pub fn closed(context: &Context) -> Self {
        Self(create_user_event(context.get()).expect("an event of the program's").expose_provenance())
    }

    pub fn event(&self) -> cl_event {
        std::ptr::with_exposed_provenance_mut(self.0)
    }

    pub fn open(&self) {
        set_user_event_status(self.event(), CL_COMPLETE).expect("opened");
    }

    /// Opens it while this thread waits for something else.
    pub fn open_soon(&self) -> JoinHandle<()> {
        // SAFETY: a live event, of which the thread has one more reference.
        unsafe { retain_event(self.event()) }.expect("retained");
        let gate = Self(self.0);
        spawn(move || {
            sleep(Duration::from_millis(50));
            gate.open();
        })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: the reference of this value.
        unsafe { release_event(self.event()) }.expect("released");
    }
}

/// A device with a program's own context, its kernels and a queue of both.
pub struct Setup {
    pub backend: OpenClBackend,
    pub device: Device,
    pub context: Context,
    scale: Kernel,
}

pub fn program(test: &str, memory: OpenClMemory) -> Option<Setup> {
    let own = opened(test, memory)?;
    let id = ClDevice::new(own.device_id());
    let context = Context::from_device(&id).expect("a context");
    let program = Program::create_and_build_from_source(&context, SOURCE, "").expect("it compiles");
    let scale = Kernel::create(&program, "scale").expect("it is there");
    // SAFETY: a live context.
    let backend = unsafe { OpenClBackend::from_context(context.get(), id.id(), memory) }.expect("it opens");
    let device = Device::open(backend.clone(), DeviceOptions::default()).expect("a device");
    Some(Setup { backend, device, scale, context })
}

impl Setup {
    pub fn queue(&self) -> (Arc<CommandQueue>, SharedQueue) {
        // SAFETY: the device is one of the context's.
        let queue = unsafe { CommandQueue::create(&self.context, self.backend.device_id(), 0) };
        let queue = Arc::new(queue.expect("a queue"));
        // SAFETY: the queue lives as long as the `Arc` that is passed along.
        let shared = unsafe { SharedQueue::adopt(&self.device, &self.backend, queue.get(), Arc::clone(&queue)) };
        (queue, shared.expect("adopted"))
    }

    /// Multiplies all elements of a view and adds to them, once the gates are open.
    pub fn launch(
        &self,
        queue: &CommandQueue,
        view: &KernelSliceMut<'_, u32>,
        (by, plus): (u32, u32),
        gates: &[&Gate],
    ) {
        // SAFETY: the kernel is launched below, on the queue that the view shares.
        unsafe { view.set_arg(self.scale.get(), 0) }.expect("an argument");
        // SAFETY: the kernel takes a number here.
        unsafe { self.scale.set_arg(1, &by) }.expect("an argument");
        // SAFETY: as above.
        unsafe { self.scale.set_arg(2, &plus) }.expect("an argument");
        let (size, waits): (_, Vec<_>) = ([view.bytes() / 4], gates.iter().map(|gate| gate.event()).collect());
        // SAFETY: each work item touches its element of the view.
        unsafe { queue.enqueue_nd_range_kernel(self.scale.get(), 1, null(), size.as_ptr(), null(), &waits) }
            .expect("a launch");
    }
}
