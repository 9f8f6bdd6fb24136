//! Which single faults a sweep tries.

/// Without `TERRACE_ALL`, one fault in so many is tried.
const STRIDE: usize = 4;

/// Single faults out of those that a program of `calls` calls can meet: the number of the call that is refused, and its code.
///
/// With `TERRACE_ALL` in the environment each call meets each of `codes`, which takes minutes. Otherwise every fourth call meets one of
/// them, or, where that were fewer than four faults, the first calls meet every fourth.
pub fn swept(calls: u64, codes: &[i32]) -> Vec<(u64, i32)> {
    let each = (1..=calls).flat_map(|nth| codes.iter().map(move |&code| (nth, code)));
    if std::env::var_os("TERRACE_ALL").is_some() {
        each.collect()
    } else if calls < (STRIDE * STRIDE) as u64 {
        each.step_by(STRIDE).collect()
    } else {
        (1..=calls).step_by(STRIDE).zip(codes.iter().copied().cycle()).collect()
    }
}
