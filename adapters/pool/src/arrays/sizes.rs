//! The arrays of each size.

use super::ArrayElement;
use super::error::ArrayError;
use super::ledger::Outstanding;
use crate::objects::{ObjectError, ObjectPool, Out, SlotClaim};
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;
use terrace_core::pool::SizeClasses;

/// Sizes in elements: 16, and four for each power of two above, so that at most a quarter of an array is unused.
const STEPS: SizeClasses = match SizeClasses::new(16, 4) {
    Ok(steps) => steps,
    Err(_) => panic!("two powers of two, 4 <= 16: found out when this is compiled"),
};

/// Where an array was rented that is out now.
///
/// Aligned to a cache line, because other threads write its neighbours.
#[repr(align(64))]
#[derive(Debug)]
pub struct RentMark(AtomicPtr<Location<'static>>);

impl RentMark {
    #[inline(always)]
    fn set(&self, at: Option<&'static Location<'static>>) {
        let at = at.map_or(null_mut(), |at| std::ptr::from_ref(at).cast_mut());
        self.0.store(at, Ordering::Relaxed);
    }

    fn get(&self) -> Option<&'static Location<'static>> {
        // SAFETY: the pointer is null, or `set` got it from a reference that lives as long as the program.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }
}

/// Arrays of one size.
pub struct ArraySize<T> {
    pub(super) len: usize,
    arrays: ObjectPool<Box<[T]>>,
    /// By the slot of the array.
    marks: Box<[RentMark]>,
}

/// What a pool did with arrays of one size, and holds of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArraySizeStats {
    /// Elements of an array of this size.
    pub len: usize,
    /// Most arrays of this size that are kept.
    pub cap: u32,
    /// Rents served by an array that was used before.
    pub hits: u64,
    /// Arrays made.
    pub made: u64,
    /// Arrays that are out.
    pub out: u32,
    /// Arrays that are idle.
    pub idle: u32,
}

/// The sizes of a pool, each made when it is first rented.
pub struct ArraySizes<T> {
    sizes: Box<[OnceLock<ArraySize<T>>]>,
    cap: u32,
    caps: Vec<(usize, u32)>,
    idle: Option<Duration>,
}

/// A zeroed array. O(len) where the allocator has no memory that is zero already.
pub fn zeroed<T: ArrayElement>(len: usize) -> Result<Box<[T]>, ArrayError> {
    let size = size_of::<T>();
    let bytes = len.checked_mul(size).filter(|&bytes| isize::try_from(bytes).is_ok());
    let bytes = bytes.ok_or(ArrayError::TooLong { len, size })?;
    bytemuck::allocation::try_zeroed_slice_box(len).map_err(|()| ArrayError::OutOfMemory { bytes })
}

/// The size class of a length.
pub fn class(len: usize) -> Option<u32> {
    STEPS.ceil(len as u64)
}

impl<T: ArrayElement> ArraySizes<T> {
    /// Sizes up to that of `longest` elements.
    pub fn new(longest: usize, cap: u32, caps: Vec<(usize, u32)>, idle: Option<Duration>) -> Self {
        let count = class(longest.max(1)).map_or(0, |class| class + 1);
        Self { sizes: (0..count).map(|_| OnceLock::new()).collect(), cap, caps, idle }
    }

    /// The class and the size for arrays of `len` elements.
    ///
    /// `None` for 0, for lengths above all sizes, and for sizes of which none are kept.
    #[inline(always)]
    pub fn of(&self, len: usize) -> Option<(u32, &ArraySize<T>)> {
        let class = class(len).filter(|_| len != 0)?;
        let size = self.sizes.get(class as usize)?;
        let size = match size.get() {
            Some(size) => size,
            None => self.make(class, size)?,
        };
        Some((class, size))
    }

    #[cold]
    fn make<'a>(&'a self, class: u32, size: &'a OnceLock<ArraySize<T>>) -> Option<&'a ArraySize<T>> {
        let own = self.caps.iter().rev().find(|(len, _)| self::class(*len) == Some(class));
        let cap = own.map_or(self.cap, |(_, cap)| *cap);
        let len = usize::try_from(STEPS.size(class)?).ok()?;
        let made = ArraySize::new(len, cap, self.idle)?;
        Some(size.get_or_init(|| made))
    }

    /// The sizes that were rented so far.
    pub fn made(&self) -> impl Iterator<Item = &ArraySize<T>> {
        self.sizes.iter().filter_map(OnceLock::get)
    }

    /// The arrays that are out as [`RentedArray`](super::RentedArray)s of these sizes.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let of = |size: &ArraySize<T>| {
            let capacity = size.len;
            let marks = size.marks.iter().filter_map(|mark| mark.get());
            marks.map(move |rented_at| Outstanding { capacity, rented_at, detached: false }).collect::<Vec<_>>()
        };
        self.made().flat_map(of).collect()
    }
}

impl<T: ArrayElement> ArraySize<T> {
    fn new(len: usize, cap: u32, idle: Option<Duration>) -> Option<Self> {
        let builder = ObjectPool::try_builder(move || zeroed::<T>(len)).most(cap);
        let builder = match idle {
            Some(idle) => builder.idle(idle),
            None => builder,
        };
        let arrays = builder.build().ok()?;
        Some(Self { len, arrays, marks: (0..cap).map(|_| RentMark(AtomicPtr::default())).collect() })
    }

    /// Takes the array that this thread returned last, and marks it as rented at `at`.
    #[inline(always)]
    pub fn take(&self, at: &'static Location<'static>) -> Option<Out<Box<[T]>>> {
        let (claim, array) = self.arrays.inner().take_own()?;
        self.mark(claim.slot(), Some(at));
        Some((claim, array))
    }

    /// Takes any array, and marks it; `None` while all are out.
    pub fn take_slowly(&self, at: &'static Location<'static>) -> Result<Option<Out<Box<[T]>>>, ArrayError> {
        match self.arrays.inner().take_other() {
            Ok((claim, array)) => {
                self.mark(claim.slot(), Some(at));
                Ok(Some((claim, array)))
            }
            Err(ObjectError::Exhausted { .. }) => Ok(None),
            Err(_) => Err(ArrayError::OutOfMemory { bytes: self.len.saturating_mul(size_of::<T>()) }),
        }
    }

    /// Keeps an array from outside; drops it if as many as the cap exist.
    pub fn put(&self, array: Box<[T]>) {
        drop(self.arrays.put(array));
    }

    pub fn maintain(&self) -> u32 {
        self.arrays.maintain().expired
    }

    pub fn trim(&self) -> u32 {
        self.arrays.trim_to(0)
    }

    pub fn stats(&self) -> ArraySizeStats {
        let stats = self.arrays.stats();
        ArraySizeStats {
            len: self.len,
            cap: stats.most,
            hits: stats.hits(),
            made: stats.made,
            out: stats.in_use(),
            idle: stats.idle,
        }
    }
}

impl<T> ArraySize<T> {
    /// Says where the array in a slot was rented; `None`: it comes back.
    #[inline(always)]
    fn mark(&self, slot: u32, at: Option<&'static Location<'static>>) {
        if let Some(mark) = self.marks.get(slot as usize) {
            mark.set(at);
        }
    }

    /// Takes an array back.
    #[inline(always)]
    pub fn give_back(&self, claim: SlotClaim) {
        self.mark(claim.slot(), None);
        self.arrays.inner().give_back(claim);
    }

    /// Takes an array out of the pool; returns it and where it was rented.
    pub fn detach(&self, claim: SlotClaim) -> (Box<[T]>, Option<&'static Location<'static>>) {
        let rented_at = self.marks.get(claim.slot() as usize).and_then(RentMark::get);
        self.mark(claim.slot(), None);
        (self.arrays.inner().detach(claim), rented_at)
    }
}

impl<T> ArraySizes<T> {
    /// The size of a class that was rented before.
    #[inline(always)]
    pub fn get(&self, class: u32) -> Option<&ArraySize<T>> {
        self.sizes.get(class as usize)?.get()
    }
}
