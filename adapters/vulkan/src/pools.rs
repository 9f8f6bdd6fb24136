//! The pools of an allocator: for each memory type an arena over memory objects, each under a lock of its own.
//!
//! Promises upward: a pool is made at its first use; linear and optimal resources have pools apart where `bufferImageGranularity` is
//! larger than a granule; what was freed last is found without a search.
//! Asks from below: [`Objects`]; the core's arena.

use crate::driver::{MemoryDriver, MemoryObject};
use crate::error::AllocationError;
use crate::objects::{OBJECT_LIMIT, Objects, TypeSource};
use crate::table::MemoryTable;
use ash::vk;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_core::arena::{ArenaParts, ArenaSettings, Coalesce, PlainArena};
use terrace_core::{
    AllocError, Allocator, BestFit, Block, Branch, Cause, NoFence, Owner, Request, SlotBytes, Stats, Violation,
};
use terrace_device::store::HeapStore;
use terrace_device::{Fault, FaultReason};
use terrace_guard::Process;

/// Sizes and offsets are multiples of this: no smaller than any `nonCoherentAtomSize`, which is 256 at most.
const GRANULE: u64 = 256;

/// Sizes of memory objects are multiples of this; what must be aligned to more has an object of its own.
pub(crate) const GRAIN: u64 = 256 << 10;

/// Permille of the peak in use by which memory objects may exceed it: beyond that, vacant ones go back before another is taken, and it
/// has room for the request alone. With it and 24 MiB, the seven recorded tensor programs reserve little (`benches/vulkan`).
const SLACK: u32 = 75;

/// The largest block that a request of its size takes at once after it was freed. Larger ones go back into the arena, whose best fit may
/// find a better place.
const LARGEST_LAST: u64 = 1 << 20;

/// What a program may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorOptions {
    /// Whether shaders may use addresses of buffers (the device's feature `bufferDeviceAddress` must be on).
    pub device_address: bool,
    /// Live blocks in each pool, at most. Records are zeros, and no memory, until they are used.
    pub blocks: usize,
    /// Bytes of a usual memory object, at least; larger where the device permits few.
    pub segment: u64,
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self { device_address: false, blocks: 1 << 20, segment: 24 << 20 }
    }
}

/// What allocator and allocations share.
pub(crate) struct Pools {
    /// Before `objects`: pools give theirs back.
    pools: Box<[OnceLock<Mutex<TypePool>>]>,
    pub objects: Arc<Objects>,
    /// The process that made it: in a forked child no lock is touched.
    pub process: Process,
    options: AllocatorOptions,
    /// Whether linear and optimal resources have pools of their own.
    apart: bool,
}

type TypeArena = PlainArena<TypeSource, HeapStore<BestFit<Box<[Branch]>>>>;

/// Blocks of one memory type, in memory objects.
struct TypePool {
    arena: TypeArena,
    /// What was freed last, still live for the arena: a request of its size takes it without a search, any other call frees it first.
    last: Option<Block>,
}

impl TypePool {
    #[inline]
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let same = |last: &mut Block| {
            last.bytes <= LARGEST_LAST
                && last.bytes.checked_sub(request.bytes).is_some_and(|rest| rest < GRANULE)
                && last.address.is_multiple_of(request.align)
        };
        match self.last.take_if(same) {
            Some(last) => Ok(last),
            None => self.settled().allocate(request),
        }
    }

    /// Frees a live block of this pool.
    #[inline]
    fn free(&mut self, block: Block) {
        self.settled();
        self.last = Some(block);
    }

    /// The arena, once what was freed last is free in it.
    #[inline]
    fn settled(&mut self) -> &mut TypeArena {
        if let Some(last) = self.last.take() {
            // Never refused: it was live until now.
            let _ = self.arena.free(last, Owner(0));
        }
        &mut self.arena
    }
}

/// The error of a request that an arena or the driver refused.
#[cold]
pub(crate) fn refusal(type_index: u32, error: AllocError, fault: Option<Fault>) -> AllocationError {
    let AllocError { cause, asked, largest_free } = error;
    match (cause, fault) {
        (Cause::OutOfMemory, Some(fault)) if fault.reason != FaultReason::OutOfMemory => AllocationError::Driver(fault),
        (Cause::SourceFailed, Some(fault)) => AllocationError::Driver(fault),
        (Cause::OutOfSlots, _) => AllocationError::BadRequest("more live blocks than `AllocatorOptions::blocks`"),
        _ => AllocationError::OutOfMemory { asked, type_index, largest_free, fault },
    }
}

// An arena is consistent between its calls, and no code of a user runs under the lock.
fn lock(pool: &Mutex<TypePool>) -> MutexGuard<'_, TypePool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pools {
    pub fn new(table: MemoryTable, driver: Box<dyn MemoryDriver>, options: AllocatorOptions) -> Self {
        let apart = table.buffer_image_granularity > GRANULE;
        let pools = (0..table.types.len() * 2).map(|_| OnceLock::new()).collect();
        Self { pools, objects: Arc::new(Objects::new(table, driver)), process: Process::current(), options, apart }
    }

    /// Allocates a part of a memory object; returns its pool, the block and the object.
    #[inline]
    pub fn allocate(
        &self,
        type_index: u32,
        linear: bool,
        request: Request,
    ) -> Result<(u32, Block, MemoryObject), AllocationError> {
        let number = 2 * type_index + u32::from(self.apart && !linear);
        let mut pool = self.pool(number)?;
        let block = match pool.allocate(request) {
            Ok(block) => block,
            Err(error) => return Err(refusal(type_index, error, pool.arena.source_mut().fault.take())),
        };
        let object = pool.arena.source().object(block.region);
        Ok((number, block, *object.ok_or(AllocationError::BadRequest("the block's memory object is not known"))?))
    }

    /// The pool of a number, locked; makes it if it is the first time.
    #[inline]
    fn pool(&self, number: u32) -> Result<MutexGuard<'_, TypePool>, AllocationError> {
        let pool = &self.pools[number as usize];
        match pool.get() {
            Some(pool) => Ok(lock(pool)),
            None => {
                let made = self.make_pool(number / 2).map_err(|error| refusal(number / 2, error, None))?;
                Ok(lock(pool.get_or_init(|| Mutex::new(made))))
            }
        }
    }

    #[cold]
    fn make_pool(&self, type_index: u32) -> Result<TypePool, AllocError> {
        let table = &self.objects.table;
        let heap = table.heaps[table.types[type_index as usize].heap as usize].bytes;
        // So large that a quarter of the objects permitted has room for the whole heap.
        let fair = (heap / u64::from(table.max_objects / 4).max(1)).next_power_of_two();
        let segment = self.options.segment.max(fair).min(table.max_object_bytes);
        let (granule, grain, slack, coalesce) = (GRANULE, GRAIN, SLACK, Coalesce::AtOnce);
        let settings = ArenaSettings { granule, grain, segment, slack, coalesce, ..ArenaSettings::segments() };
        let source = TypeSource::new(Arc::clone(&self.objects), type_index);
        let arena = TypeArena::new(source, NoFence, parts(self.options.blocks), settings)?;
        Ok(TypePool { arena, last: None })
    }

    /// Frees a live block of a pool.
    #[inline]
    pub fn free(&self, pool: u32, block: Block) {
        if let Some(pool) = self.pools[pool as usize].get() {
            lock(pool).free(block);
        }
    }

    /// Gives back what pools keep of what a type lacks; returns the bytes.
    ///
    /// That is memory of its heap, or of all heaps if there are too many objects.
    #[cold]
    pub fn trim_for(&self, type_index: u32, fault: Option<Fault>) -> u64 {
        let too_many = vk::Result::ERROR_TOO_MANY_OBJECTS.as_raw();
        if fault.is_some_and(|fault| fault.call == OBJECT_LIMIT || fault.code == too_many) {
            return self.trim();
        }
        let types = &self.objects.table.types;
        let heap = types[type_index as usize].heap;
        let mates = self.pools.iter().enumerate().filter(|(number, _)| types[number / 2].heap == heap);
        mates.filter_map(|(_, pool)| pool.get()).map(|pool| lock(pool).settled().trim()).sum()
    }

    fn made(&self) -> impl Iterator<Item = MutexGuard<'_, TypePool>> {
        self.pools.iter().filter_map(OnceLock::get).map(lock)
    }

    pub fn trim(&self) -> u64 {
        self.made().map(|mut pool| pool.settled().trim()).sum()
    }

    pub fn stats(&self) -> Stats {
        self.made().map(|mut pool| pool.settled().stats()).reduce(Stats::plus).unwrap_or_default()
    }

    pub fn check(&self) -> Result<(), Violation> {
        self.made().try_for_each(|mut pool| pool.settled().check())
    }
}

/// Records of an arena over segments, which uses one of two areas and has no fence.
fn parts(blocks: usize) -> ArenaParts<HeapStore<BestFit<Box<[Branch]>>>> {
    let slots = |count| SlotBytes::new(bytemuck::zeroed_slice_box(SlotBytes::<Box<[u8]>>::bytes(count)));
    ArenaParts {
        slots: [slots(0), slots(blocks)],
        index: [BestFit::new(Box::default()), BestFit::new(bytemuck::zeroed_slice_box(blocks))],
        bins: Box::default(),
        entries: Box::default(),
        segments: bytemuck::zeroed_slice_box(1 << 14),
        pending: [Box::default(), Box::default()],
    }
}
