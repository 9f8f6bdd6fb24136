//! Values as small integers.

use crate::{bits, lengths};
use terrace_bytes::{Quantization, QuantizationError, Quantized};

/// The definition, in doubles.
fn told<Q: Quantized>(value: f32, quantization: &Quantization<Q>) -> i32 {
    let scaled = value * quantization.scale().recip();
    let scaled = if scaled.is_nan() { 0.0 } else { f64::from(scaled) };
    let (low, high) = (f64::from(Q::LOW), f64::from(Q::HIGH));
    (scaled.round_ties_even() + f64::from(quantization.zero_point())).clamp(low, high) as i32
}

fn quantizes<Q: Quantized + Into<i32>>(scale: f32, zero_point: i32) {
    let quantization = Quantization::<Q>::new(scale, zero_point).unwrap();
    for len in lengths() {
        let mut values: Vec<f32> = bits(len).into_iter().map(|bits| (bits % 100_000) as f32 * 0.013 - 640.0).collect();
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5];
        // With low bits, which show where they are taken for an integer's.
        let nans = [0x7fc0_0001, 0xffc0_00ff, 0x7f80_0003].map(f32::from_bits);
        values.iter_mut().zip(special.into_iter().chain(nans)).for_each(|(value, special)| *value = special);
        let mut small = vec![Q::of(0); len + 1];
        quantization.quantize(&values, &mut small[1..]).unwrap();
        for (value, small) in values.iter().zip(&small[1..]) {
            assert_eq!(Into::<i32>::into(*small), told(*value, &quantization), "{value} by {scale} from {zero_point}");
        }
        let mut back = vec![0.0; len + 1];
        quantization.dequantize(&small[1..], &mut back[1..]).unwrap();
        for (small, back) in small[1..].iter().zip(&back[1..]) {
            assert_eq!(*back, (Into::<i32>::into(*small) - zero_point) as f32 * scale);
        }
    }
}

#[test]
fn values_become_the_nearest_integers_within_the_range() {
    for scale in [1.0, 0.05, 3.7] {
        quantizes::<i8>(scale, 0);
        quantizes::<i8>(scale, -128);
        quantizes::<i8>(scale, 127);
        quantizes::<u8>(scale, 0);
        quantizes::<u8>(scale, 255);
        quantizes::<u8>(scale, 77);
    }
    // As far from 1 as scales can be.
    quantizes::<i8>(1e-37, 0);
    quantizes::<u8>(1e37, 3);
}

#[test]
fn scales_cover_the_values_they_are_made_of() {
    let values = [-3.0, 0.0, 1.0, 6.0];
    let symmetric = Quantization::<i8>::symmetric(&values).unwrap();
    assert_eq!((symmetric.scale(), symmetric.zero_point()), (6.0 / 127.0, 0));
    let symmetric = Quantization::<u8>::symmetric(&values).unwrap();
    assert_eq!((symmetric.scale(), symmetric.zero_point()), (6.0 / 127.0, 128));
    let affine = Quantization::<u8>::affine(&values).unwrap();
    assert_eq!((affine.scale(), affine.zero_point()), (9.0 / 255.0, 85));
    let affine = Quantization::<i8>::affine(&values).unwrap();
    assert_eq!(affine.zero_point(), 85 - 128);
    let mut small = [0; 4];
    affine.quantize(&values, &mut small).unwrap();
    assert_eq!(small, [-128, -43, -15, 127]);
    // Of values above 0 alone, 0 is still an integer.
    let above = Quantization::<u8>::affine(&[2.0, 4.0]).unwrap();
    assert_eq!((above.scale(), above.zero_point()), (4.0 / 255.0, 0));
    let below = Quantization::<u8>::affine(&[-2.0, -4.0]).unwrap();
    assert_eq!((below.scale(), below.zero_point()), (4.0 / 255.0, 255));
    for zeros in [Quantization::<i8>::symmetric(&[0.0; 3]), Quantization::<i8>::affine(&[0.0])] {
        assert_eq!(zeros.unwrap().scale(), 1.0);
    }
}

#[test]
fn what_cannot_scale_is_refused() {
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 8.0] {
        let refused = Quantization::<i8>::new(scale, 0).unwrap_err();
        assert!(matches!(refused, QuantizationError::Scale { .. }), "{scale}: {refused}");
    }
    let refused = Quantization::<u8>::new(1.0, -1).unwrap_err();
    assert_eq!(refused, QuantizationError::ZeroPoint { zero_point: -1, low: 0, high: 255 });
    assert!(Quantization::<i8>::new(1.0, 128).is_err());
    for values in [&[][..], &[1.0, f32::NAN], &[f32::INFINITY], &[f32::NEG_INFINITY, 1.0]] {
        assert!(matches!(Quantization::<i8>::symmetric(values), Err(QuantizationError::Range { .. })), "{values:?}");
        assert!(matches!(Quantization::<u8>::affine(values), Err(QuantizationError::Range { .. })), "{values:?}");
    }
    assert!(Quantization::<i8>::affine(&[f32::MIN, f32::MAX]).is_err(), "the range is no f32");
    let quantization = Quantization::<i8>::new(1.0, 0).unwrap();
    assert_eq!(quantization.quantize(&[1.0], &mut [0; 2]).unwrap_err().to, 2);
    assert_eq!(quantization.dequantize(&[1], &mut [0.0; 2]).unwrap_err().from, 1);
}
