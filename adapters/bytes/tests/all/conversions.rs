//! Conversions, bit by bit as the types convert themselves.

use crate::{bits, lengths};
use bytemuck::Pod;
use half::{bf16, f16};
use std::fmt::Debug;
use terrace_bytes::{ConvertTo, bytes_of, convert};

/// Converts `from` at several addresses, and compares each result with `one`'s, bit by bit.
fn same<A: ConvertTo<B> + Debug, B: Pod + Debug>(from: &[A], one: impl Fn(A) -> B) {
    same_but_nans(from, one, |_| false);
}

/// As [`same`], where any NaN is as good as another: the language leaves open which one a cast of its own floats gives.
fn same_but_nans<A: ConvertTo<B> + Debug, B: Pod + Debug>(
    from: &[A],
    one: impl Fn(A) -> B,
    is_nan: impl Fn(B) -> bool,
) {
    for skip in [0, 1, 5] {
        let mut to = vec![B::zeroed(); from.len() + skip];
        convert(from, &mut to[skip..]).unwrap();
        for (from, to) in from.iter().zip(&to[skip..]) {
            let told = one(*from);
            let equal = bytes_of(&[*to]) == bytes_of(&[told]) || (is_nan(*to) && is_nan(told));
            assert!(equal, "{from:?} became {to:?}, not {told:?}");
        }
    }
}

/// Numbers to be rounded: random ones, and around each half-way point of the 16 bits that are kept.
fn numbers(len: usize) -> Vec<f32> {
    let special =
        [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65_504.0, 65_519.99, 65_520.0, 6e-8, 2.9e-8];
    let snan = [0x7f80_0001, 0xff80_0001, 0x7fbf_ffff, 0x7fff_ffff, 1, 0x8000_0001].map(f32::from_bits);
    let random = bits(len).into_iter().map(f32::from_bits);
    special.into_iter().chain(snan).chain(random).take(len).collect()
}

#[test]
fn all_numbers_of_16_bits_convert_as_half_says() {
    let step = if cfg!(miri) { 509 } else { 1 };
    let halves: Vec<f16> = (0..=u16::MAX).step_by(step).map(f16::from_bits).collect();
    let brains: Vec<bf16> = (0..=u16::MAX).step_by(step).map(bf16::from_bits).collect();
    same(&halves, f16::to_f32);
    same(&halves, f16::to_f64);
    same(&brains, bf16::to_f32);
    same(&halves, |half| bf16::from_f32(half.to_f32()));
    same(&brains, |brain| f16::from_f32(brain.to_f32()));
}

#[test]
fn ties_round_to_even_and_their_neighbours_to_the_nearest() {
    let step = if cfg!(miri) { 997 } else { 1 };
    for high in (0..=u16::MAX).step_by(step) {
        let ties = |middle: u32| [middle - 1, middle, middle + 1].map(f32::from_bits);
        same(&ties(u32::from(high) << 16 | 0x8000), bf16::from_f32);
        // The middle between a half and the next.
        let half = f16::from_bits(high).to_f32().to_bits();
        same(&ties(half.wrapping_add(0x1000).max(1)), f16::from_f32);
    }
}

#[test]
fn every_length_converts_as_its_elements_do() {
    for len in lengths() {
        let numbers = numbers(len);
        same(&numbers, f16::from_f32);
        same(&numbers, bf16::from_f32);
        same_but_nans(&numbers, f64::from, f64::is_nan);
        let halves: Vec<f16> = numbers.iter().map(|number| f16::from_bits(number.to_bits() as u16)).collect();
        same(&halves, f16::to_f32);
        let brains: Vec<bf16> = numbers.iter().map(|number| bf16::from_bits(number.to_bits() as u16)).collect();
        same(&brains, bf16::to_f32);
        same(&halves, |half| bf16::from_f32(half.to_f32()));
        same(&brains, |brain| f16::from_f32(brain.to_f32()));
        let doubles: Vec<f64> = numbers.iter().map(|number| f64::from(*number) * 1.000_000_01).collect();
        same_but_nans(&doubles, |double| double as f32, f32::is_nan);
        same(&doubles, f16::from_f64);
        let bytes: Vec<u8> = numbers.iter().map(|number| number.to_bits() as u8).collect();
        same(&bytes, f32::from);
        same(bytemuck::cast_slice::<u8, i8>(&bytes), f32::from);
        let words: Vec<u16> = numbers.iter().map(|number| number.to_bits() as u16).collect();
        same(&words, f32::from);
        same(bytemuck::cast_slice::<u16, i16>(&words), f32::from);
    }
}

#[test]
fn doubles_beside_a_tie_become_the_halves_that_half_gives() {
    let tie = 2_f64.powi(-11);
    let doubles =
        [1.0 + tie, 1.0 + 3.0 * tie].map(|middle| [-1.0, 0.0, 1.0].map(|side| middle + side * 2_f64.powi(-40)));
    same(doubles.as_flattened(), f16::from_f64);
}

#[test]
fn different_lengths_are_refused() {
    let mut to = [f16::ONE; 2];
    let error = convert(&[0.0_f32; 3], &mut to).unwrap_err();
    assert_eq!((error.from, error.to, to), (3, 2, [f16::ONE; 2]));
    assert_eq!(error.to_string(), "3 elements do not fill 2: pass slices of one length");
}
