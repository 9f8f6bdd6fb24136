//! Bytes in reverse.

use crate::{bits, lengths};
use half::{bf16, f16};
use terrace_bytes::{SwapBytes, bytes_of, from_be, from_le, swap_bytes, swap_bytes_into};

fn reversed<T: SwapBytes>(number: &T) -> Vec<u8> {
    bytes_of(std::slice::from_ref(number)).iter().rev().copied().collect()
}

fn swaps<T: SwapBytes>(make: impl Fn(u32) -> T) {
    for len in lengths() {
        let numbers: Vec<T> = bits(len).into_iter().map(&make).collect();
        let mut to = vec![make(0); len + 1];
        swap_bytes_into(&numbers, &mut to[1..]).unwrap();
        let told = numbers.iter().flat_map(reversed);
        assert!(bytes_of(&to[1..]).iter().copied().eq(told), "{len} numbers");
        swap_bytes(&mut to[1..]);
        assert_eq!(bytes_of(&to[1..]), bytes_of(&numbers), "twice is not at all");
    }
}

#[test]
fn the_bytes_of_each_number_are_reversed() {
    swaps(|bits| bits as u16);
    swaps(|bits| bits as i32);
    swaps(|bits| u64::from(bits) << 17 | 5);
    swaps(|bits| u128::from(bits) << 60 | 5);
    swaps(|bits| f16::from_bits(bits as u16));
    swaps(|bits| bf16::from_bits(bits as u16));
    swaps(f32::from_bits);
    swaps(|bits| f64::from_bits(u64::from(bits) << 20));
}

#[test]
fn numbers_of_either_order_become_this_machines() {
    let numbers = [1_u32, 0xffff_0000, 7];
    let mut big = numbers.map(u32::to_be);
    from_be(&mut big);
    let mut little = numbers.map(u32::to_le);
    from_le(&mut little);
    assert_eq!((big, little), (numbers, numbers));
}

#[test]
fn different_lengths_are_refused() {
    let mut to = [1_u16; 2];
    assert_eq!(swap_bytes_into(&[2_u16; 3], &mut to).unwrap_err().from, 3);
    assert_eq!(to, [1; 2]);
}
