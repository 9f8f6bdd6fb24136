//! Fills at all lengths and addresses.

use crate::lengths;
use bytemuck::Pod;
use terrace_bytes::{fill, fill_pattern};

fn fills<T: Pod + PartialEq + std::fmt::Debug>(value: T, other: T) {
    for len in lengths() {
        for skip in [0, 1, 3] {
            let mut to = vec![other; len + skip + 2];
            fill(&mut to[skip..skip + len], value);
            assert!(to[skip..skip + len].iter().all(|element| *element == value), "{len} elements from {skip} on");
            assert!(to[..skip].iter().chain(&to[skip + len..]).all(|element| *element == other), "beyond {len}");
        }
    }
}

#[test]
fn every_element_is_the_value_and_no_other_is_touched() {
    fills(7_u8, 0);
    fills(0x0102_u16, 9);
    fills(0x0102_0304_u32, 9);
    fills(f32::NEG_INFINITY, 0.5);
    fills(-1_i64, 9);
    fills(0x0102_0304_0506_0708_u64, 9);
    fills([1_u8, 2, 3], [0; 3]);
    fills([1.5_f32, 2.5, 3.5], [0.0; 3]);
    fills([1_u64, 2, 3, 4, 5], [0; 5]);
}

#[test]
fn a_pattern_of_any_length_repeats() {
    let widths: &[usize] =
        if cfg!(miri) { &[1, 3, 40] } else { &[1, 2, 3, 5, 24, 31, 32, 33, 96, 127, 129, 1000, 5000] };
    for &width in widths {
        let pattern: Vec<u8> = (0..width).map(|at| (at * 7 + 1) as u8).collect();
        for len in lengths() {
            let mut to = vec![0; len + 2];
            fill_pattern(&mut to[1..=len], &pattern);
            assert!(
                to[1..=len].iter().zip(pattern.iter().cycle()).all(|(byte, told)| byte == told),
                "{width} over {len}"
            );
            assert_eq!((to[0], to[len + 1]), (0, 0));
        }
    }
    let mut to = [1, 2];
    fill_pattern(&mut to, &[]);
    assert_eq!(to, [1, 2]);
}
