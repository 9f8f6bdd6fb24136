//! f16 as f32 or bf16, and back, by the processor's own instructions (F16C), eight numbers at a time.
//!
//! `half` has them too, behind a call for each four or eight numbers, which is a fifth of the time.
//!
//! Promises upward: the results of `half`; lengths are equal.
//! Asks from below: F16C, or `half`.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Numbers held at a time by conversions through `f32`, which holds f16 and bf16 exactly.
pub const STAGE: usize = 256;

/// Halves of numbers.
pub fn narrow(from: &[f32], to: &mut [f16]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if std::is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { x86::narrow(from, to) };
    }
    to.convert_from_f32_slice(from);
}

/// Numbers of halves.
pub fn widen(from: &[f16], to: &mut [f32]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if std::is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { x86::widen(from, to) };
    }
    from.convert_to_f32_slice(to);
}

/// Brain floats of halves, each by way of its number; `round` gives a number's.
///
/// With AVX2 the numbers stay in registers: through memory, the conversion is slower than memory is.
#[inline(always)]
pub fn through(from: &[f16], to: &mut [bf16], round: impl Fn(f32) -> bf16) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if std::is_x86_feature_detected!("f16c") && std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { x86::through(from, to, round) };
    }
    let mut stage = [0.0; STAGE];
    for (from, to) in from.chunks(STAGE).zip(to.chunks_mut(STAGE)) {
        let stage = &mut stage[..from.len()];
        widen(from, stage);
        stage.iter().zip(to).for_each(|(number, to)| *to = round(*number));
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod x86 {
    use core::arch::x86_64::{__m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};
    use half::slice::HalfFloatSliceExt;
    use half::{bf16, f16};

    #[target_feature(enable = "avx,f16c")]
    pub fn narrow(from: &[f32], to: &mut [f16]) {
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<8>(), to.as_chunks_mut::<8>());
        for (from, to) in from.iter().zip(to) {
            let numbers: __m256 = bytemuck::cast(*from);
            let halves: __m128i = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers);
            *to = bytemuck::cast(halves);
        }
        to_rest.convert_from_f32_slice(from_rest);
    }

    #[target_feature(enable = "avx,f16c")]
    pub fn widen(from: &[f16], to: &mut [f32]) {
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<8>(), to.as_chunks_mut::<8>());
        for (from, to) in from.iter().zip(to) {
            let halves: __m128i = bytemuck::cast(*from);
            *to = bytemuck::cast::<__m256, _>(_mm256_cvtph_ps(halves));
        }
        from_rest.convert_to_f32_slice(to_rest);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn through(from: &[f16], to: &mut [bf16], round: impl Fn(f32) -> bf16) {
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<16>(), to.as_chunks_mut::<16>());
        for (from, to) in from.iter().zip(to) {
            let halves: [__m128i; 2] = bytemuck::cast(*from);
            let numbers: [f32; 16] = bytemuck::cast(halves.map(|halves| _mm256_cvtph_ps(halves)));
            for (number, to) in numbers.iter().zip(to) {
                *to = round(*number);
            }
        }
        from_rest.iter().zip(to_rest).for_each(|(from, to)| *to = round(from.to_f32()));
    }
}
