//! Streams: a queue, a timeline semaphore that counts what was submitted, command buffers that are used again.
//!
//! ```text
//!   submission n of a stream:  wait for n - 1 of its own semaphore, and for what it was ordered after  ──►  commands  ──►  signal n
//!   event: (semaphore, n)      query: its counter is n or more      order: the next submission waits for (semaphore, n)
//! ```
//!
//! A first submission waits for no semaphore. What it may use, the host has seen done (a wait, a query) or handed over by `order`. The
//! signal of a semaphore makes what was written before it available to the device, and each `vkQueueSubmit` makes what is available
//! visible to all of the device (Vulkan's memory model, "Availability, Visibility, and Domain Operations"), on whatever queue.
//!
//! Promises upward: submissions of a stream run one after the other, each seeing what the one before wrote; a semaphore is destroyed
//! when nothing that was submitted names it any more.
//! Asks from below: a device with timeline semaphores; queues, each used under its lock alone.

#[cfg(test)]
mod tests;

use crate::fault::fault;
use ash::vk;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_device::{Fault, FaultReason};

/// Streams that a submission waits for, at most about.
const MOST_WAITS: usize = 32;

/// A stream.
pub(crate) struct StreamTimeline {
    semaphore: vk::Semaphore,
    queue: Arc<Mutex<vk::Queue>>,
    work: Mutex<Work>,
}

/// What was submitted.
struct Work {
    /// What the last submission signals; 0 before the first.
    value: u64,
    /// What the next submission waits for.
    waits: Vec<(Arc<StreamTimeline>, u64)>,
    pool: vk::CommandPool,
    /// Submissions that may be in flight, the oldest first.
    in_flight: VecDeque<QueueSubmission>,
    /// Command buffers that no submission uses.
    spare: Vec<vk::CommandBuffer>,
}

struct QueueSubmission {
    value: u64,
    command: Option<vk::CommandBuffer>,
    /// Streams whose semaphores it waits for: they live as long as it may be in flight.
    _waits: Vec<Arc<StreamTimeline>>,
}

impl StreamTimeline {
    /// A stream on a queue of a family.
    pub fn new(device: &ash::Device, family: u32, queue: Arc<Mutex<vk::Queue>>) -> Result<Self, Fault> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is live and has timeline semaphores; the structures live through the call.
        let semaphore =
            unsafe { device.create_semaphore(&info, None) }.map_err(|code| fault("vkCreateSemaphore", code))?;
        let flags = vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER | vk::CommandPoolCreateFlags::TRANSIENT;
        let info = vk::CommandPoolCreateInfo::default().flags(flags).queue_family_index(family);
        // SAFETY: the device is live and has the family.
        let pool = unsafe { device.create_command_pool(&info, None) }.map_err(|code| {
            // SAFETY: made above, and nothing has it.
            unsafe { device.destroy_semaphore(semaphore, None) };
            fault("vkCreateCommandPool", code)
        })?;
        let work = Work { value: 0, waits: Vec::new(), pool, in_flight: VecDeque::new(), spare: Vec::new() };
        Ok(Self { semaphore, queue, work: Mutex::new(work) })
    }

    /// Destroys what the stream consists of.
    ///
    /// # Safety
    /// All that was submitted must be done, also what waits for this stream; no later call may use the stream.
    pub unsafe fn destroy(&self, device: &ash::Device) {
        let mut work = self.lock();
        work.in_flight.clear();
        work.waits.clear();
        // SAFETY: the caller's promise. Its command buffers go with it.
        unsafe { device.destroy_command_pool(work.pool, None) };
        // SAFETY: the caller's promise.
        unsafe { device.destroy_semaphore(self.semaphore, None) };
    }

    /// Puts commands of this crate on the stream.
    pub fn put(&self, device: &ash::Device, record: impl FnOnce(vk::CommandBuffer)) -> Result<(), Fault> {
        let mut work = self.lock();
        work.reclaim(device, self.semaphore)?;
        let command = work.command(device)?;
        let done = Self::record(device, command, record)
            .and_then(|()| self.submit(device, &mut work, &[command], Some(command)));
        done.inspect_err(|_| work.spare.push(command))
    }

    /// Puts commands of the program's on the stream.
    ///
    /// # Safety
    /// As for `vkQueueSubmit`.
    pub unsafe fn put_recorded(&self, device: &ash::Device, commands: &[vk::CommandBuffer]) -> Result<(), Fault> {
        let mut work = self.lock();
        work.reclaim(device, self.semaphore)?;
        self.submit(device, &mut work, commands, None)
    }

    /// Makes what is submitted from now on wait for a value of another stream.
    pub fn order(&self, device: &ash::Device, after: &Arc<Self>, value: u64) -> Result<(), Fault> {
        if std::ptr::eq(self, &raw const **after) || value == 0 {
            return Ok(());
        }
        let mut work = self.lock();
        match work.waits.iter_mut().find(|(stream, _)| Arc::ptr_eq(stream, after)) {
            Some((_, known)) => *known = value.max(*known),
            None => work.waits.push((Arc::clone(after), value)),
        }
        // A stream that has no work of its own would keep all others.
        if work.waits.len() > MOST_WAITS { self.join(device, &mut work) } else { Ok(()) }
    }

    /// Forgets what it was ordered after: no work follows.
    pub fn retire(&self) {
        self.lock().waits.clear();
    }

    /// The value that stands for all that was put on the stream so far, what it was ordered after included.
    pub fn settled(&self, device: &ash::Device) -> Result<u64, Fault> {
        let mut work = self.lock();
        if !work.waits.is_empty() {
            self.join(device, &mut work)?;
        }
        Ok(work.value)
    }

    /// Submits what the stream was ordered after, without commands.
    fn join(&self, device: &ash::Device, work: &mut Work) -> Result<(), Fault> {
        work.reclaim(device, self.semaphore)?;
        self.submit(device, work, &[], None)
    }

    /// Whether the stream has reached a value.
    pub fn reached(&self, device: &ash::Device, value: u64) -> Result<bool, Fault> {
        counter(device, self.semaphore).map(|counter| counter >= value)
    }

    /// Waits until the stream has reached a value.
    pub fn wait(&self, device: &ash::Device, value: u64) -> Result<(), Fault> {
        let (semaphores, values) = ([self.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        loop {
            // SAFETY: the device and the semaphore are live; the structures live through the call.
            match unsafe { device.wait_semaphores(&info, u64::MAX) } {
                Err(vk::Result::TIMEOUT) => {}
                done => return done.map_err(|code| fault("vkWaitSemaphores", code)),
            }
        }
    }

    /// Whether all that was submitted is done, after which it names no other stream.
    ///
    /// For streams that get no more work.
    pub fn is_over(&self, device: &ash::Device) -> bool {
        let mut work = self.lock();
        work.reclaim(device, self.semaphore).is_ok() && work.in_flight.is_empty()
    }

    /// Records commands, and after them the barrier that lets the host read what they wrote.
    fn record(
        device: &ash::Device,
        command: vk::CommandBuffer,
        record: impl FnOnce(vk::CommandBuffer),
    ) -> Result<(), Fault> {
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer is of this stream's pool, whose lock is held, and not in flight.
        unsafe { device.begin_command_buffer(command, &info) }.map_err(|code| fault("vkBeginCommandBuffer", code))?;
        record(command);
        host_barrier(device, command);
        // SAFETY: as above.
        unsafe { device.end_command_buffer(command) }.map_err(|code| fault("vkEndCommandBuffer", code))
    }

    fn submit(
        &self,
        device: &ash::Device,
        work: &mut Work,
        commands: &[vk::CommandBuffer],
        command: Option<vk::CommandBuffer>,
    ) -> Result<(), Fault> {
        let own = (work.value > 0).then_some((self.semaphore, work.value));
        let others = work.waits.iter().map(|(stream, value)| (stream.semaphore, *value));
        let (semaphores, values): (Vec<_>, Vec<_>) = own.into_iter().chain(others).unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; semaphores.len()];
        let (signals, next) = ([self.semaphore], [work.value + 1]);
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values).signal_semaphore_values(&next);
        let info = vk::SubmitInfo::default().wait_semaphores(&semaphores).wait_dst_stage_mask(&stages);
        let info = [info.command_buffers(commands).signal_semaphores(&signals).push_next(&mut timeline)];
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is used under its lock; the semaphores live until the submission is done; the commands are recorded.
        let submitted = unsafe { device.queue_submit(*queue, &info, vk::Fence::null()) };
        drop(queue);
        submitted.map_err(|code| fault("vkQueueSubmit", code))?;
        work.value += 1;
        let waits = work.waits.drain(..).map(|(stream, _)| stream).collect();
        work.in_flight.push_back(QueueSubmission { value: work.value, command, _waits: waits });
        Ok(())
    }

    /// Binds memory to parts of a sparse buffer, and waits until it is.
    ///
    /// # Safety
    /// The queue must bind; the buffer and the memory must be live, the binds inside both, and in use by no work in flight.
    pub unsafe fn bind(
        &self,
        device: &ash::Device,
        buffer: vk::Buffer,
        binds: &[vk::SparseMemoryBind],
    ) -> Result<(), Fault> {
        let mut work = self.lock();
        let (semaphores, last, next) = ([self.semaphore], [work.value], [work.value + 1]);
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&last).signal_semaphore_values(&next);
        let buffers = [vk::SparseBufferMemoryBindInfo::default().buffer(buffer).binds(binds)];
        let info = vk::BindSparseInfo::default().wait_semaphores(&semaphores).signal_semaphores(&semaphores);
        let info = [info.buffer_binds(&buffers).push_next(&mut timeline)];
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is used under its lock; the structures live through the call; the rest is the caller's promise.
        let submitted = unsafe { device.queue_bind_sparse(*queue, &info, vk::Fence::null()) };
        drop(queue);
        submitted.map_err(|code| fault("vkQueueBindSparse", code))?;
        work.value += 1;
        // It will be done, and nothing says when: no caller could go on as if it were refused.
        self.wait(device, work.value).map_err(|fault| Fault { reason: FaultReason::Lost, ..fault })
    }

    // The work is consistent between any two statements.
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// Takes command buffers back from submissions that are done.
    fn reclaim(&mut self, device: &ash::Device, semaphore: vk::Semaphore) -> Result<(), Fault> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let counter = counter(device, semaphore)?;
        while let Some(done) = self.in_flight.pop_front_if(|oldest| oldest.value <= counter) {
            self.spare.extend(done.command);
        }
        Ok(())
    }

    /// A command buffer that is not in flight.
    fn command(&mut self, device: &ash::Device) -> Result<vk::CommandBuffer, Fault> {
        if let Some(command) = self.spare.pop() {
            return Ok(command);
        }
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        // SAFETY: the pool is used under the stream's lock, which `&mut self` proves.
        let made = unsafe { device.allocate_command_buffers(&info) };
        let made = made.map_err(|code| fault("vkAllocateCommandBuffers", code))?;
        made.first().copied().ok_or(fault("vkAllocateCommandBuffers", vk::Result::ERROR_UNKNOWN))
    }
}

/// The value that a semaphore has reached.
fn counter(device: &ash::Device, semaphore: vk::Semaphore) -> Result<u64, Fault> {
    // SAFETY: the device and the semaphore are live.
    unsafe { device.get_semaphore_counter_value(semaphore) }.map_err(|code| fault("vkGetSemaphoreCounterValue", code))
}

/// Makes what the commands before wrote visible to the host, once the submission is waited for.
fn host_barrier(device: &ash::Device, command: vk::CommandBuffer) {
    let (before, after) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::PipelineStageFlags::HOST);
    let to_host = vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE;
    let barrier =
        [vk::MemoryBarrier::default().src_access_mask(vk::AccessFlags::MEMORY_WRITE).dst_access_mask(to_host)];
    // SAFETY: the command buffer is being recorded.
    unsafe { device.cmd_pipeline_barrier(command, before, after, vk::DependencyFlags::empty(), &barrier, &[], &[]) };
}
