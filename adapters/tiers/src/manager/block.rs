//! Memory of a buffer that processors address: a frame, or pinned memory that a device addresses too; and such memory
//! as transfers take it.
//!
//! Asks from below: that blocks stay where they are while they live; [`window`](super::window).

use super::body::Body;
use super::window::{Exclusive, Shared, Window};
use std::sync::Arc;
use terrace_device::{DeviceBlock, HostBuffer, HostSource};
use terrace_file::Frame;

/// Memory of one buffer.
#[derive(Debug)]
pub(super) enum Block {
    Frame(Frame),
    /// Where the device has no memory of its own: one copy for both.
    Pinned(Box<DeviceBlock>),
}

impl Block {
    /// Its first byte.
    pub(super) fn pointer(&self) -> *mut u8 {
        match self {
            Self::Frame(frame) => frame.pointer(),
            // Pinned memory has one address for both; the pool that took it has exposed it.
            Self::Pinned(block) => std::ptr::with_exposed_provenance_mut(block.address() as usize),
        }
    }

    /// All of it.
    pub(super) fn window(&self) -> Window {
        let bytes = match self {
            Self::Frame(frame) => frame.len(),
            Self::Pinned(block) => block.bytes() as usize,
        };
        Window::new(self.pointer(), bytes)
    }
}

/// Memory that a transfer reads or writes, and what it belongs to.
pub(super) struct Lent<O> {
    bytes: Exclusive<'static>,
    owner: O,
}

impl Lent<Block> {
    /// The first bytes of a block.
    pub(super) fn block(block: Block, bytes: usize) -> Self {
        // SAFETY: the block is the transfer's alone, stays where it is, and lives as long as this.
        let bytes = unsafe { Exclusive::new(block.window().first(bytes)) };
        Self { bytes, owner: block }
    }
}

impl Lent<Frame> {
    /// The first bytes of a frame.
    pub(super) fn frame(frame: Frame, bytes: usize) -> Self {
        // SAFETY: as above.
        let bytes = unsafe { Exclusive::new(Window::new(frame.pointer(), frame.len()).first(bytes)) };
        Self { bytes, owner: frame }
    }
}

impl<O> Lent<O> {
    pub(super) fn into_owner(self) -> O {
        self.owner
    }
}

// SAFETY: blocks and frames stay where they are when their holder is moved; this is their only holder.
unsafe impl<O: Send + 'static> HostSource<u8> for Lent<O> {
    fn elements(&self) -> &[u8] {
        &self.bytes
    }
}

// SAFETY: as above.
unsafe impl<O: Send + 'static> HostBuffer<u8> for Lent<O> {
    fn elements_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Bytes of a buffer in memory, copied from where they are.
pub(super) struct InPlace {
    bytes: Shared<'static>,
    _body: Arc<Body>,
}

impl InPlace {
    /// # Safety
    /// As long as this lives, the buffer's word is closed, or shared for the copy: nobody writes the memory or gives it
    /// back.
    pub(super) unsafe fn new(window: Window, body: Arc<Body>) -> Self {
        // SAFETY: as the caller promises.
        let bytes = unsafe { Shared::new(window.first(body.bytes as usize)) };
        Self { bytes, _body: body }
    }
}

// SAFETY: the memory is the buffer's, which lives as long as this; nobody writes it, as `new` was promised.
unsafe impl HostSource<u8> for InPlace {
    fn elements(&self) -> &[u8] {
        &self.bytes
    }
}
