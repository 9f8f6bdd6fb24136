//! Safe calls with handles, live or not: the simulated driver validates each.

use std::ops::Deref;
use terrace_cuda::Cuda;
use terrace_device::{Backend, Fault, PhysicalHandle, RawEvent, RawStream};

/// A device of the simulated driver, which looks every handle up and follows none as a pointer: it refuses those that it does
/// not know. So the calls that take handles are safe here.
pub struct Simulated(Cuda);

impl Simulated {
    pub fn open(ordinal: u32) -> Self {
        Self(Cuda::open(ordinal).expect("a good device"))
    }
}

impl Deref for Simulated {
    type Target = Cuda;

    fn deref(&self) -> &Cuda {
        &self.0
    }
}

macro_rules! looked_up {
    ($($name:ident($($handle:ident: $kind:ty),+) -> $answer:ty;)+) => {
        impl Simulated {
            $(pub fn $name(&self, $($handle: $kind),+) -> Result<$answer, Fault> {
                // SAFETY: the simulated driver looks every handle up.
                unsafe { self.0.$name($($handle),+) }
            })+
        }
    };
}

looked_up! {
    destroy_stream(stream: RawStream) -> ();
    stream_name(stream: RawStream) -> Option<u64>;
    is_idle(stream: RawStream) -> bool;
    synchronize_stream(stream: RawStream) -> ();
    destroy_event(event: RawEvent) -> ();
    record(event: RawEvent, stream: RawStream) -> ();
    query(event: RawEvent) -> bool;
    wait(event: RawEvent) -> ();
    order(stream: RawStream, event: RawEvent) -> ();
    release_handle(handle: PhysicalHandle) -> ();
}
