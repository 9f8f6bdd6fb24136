//! Names of settings that were misspelt.
//!
//! Promises upward: the known name that was probably meant; no allocation, so that an allocator may ask while it
//! starts.
//! Asks from below: nothing.

/// Longest name that is compared, in bytes, and one more.
const MAX_LENGTH: usize = 48;

/// The name of `known` that differs from `name` by one or two letters.
///
/// Letters inserted, removed or replaced; `None` for a name that is known itself. Time: the product of the two lengths,
/// for each known name.
///
/// # Example
/// ```
/// use terrace_core::spelling::nearest;
/// let known = ["TERRACE_LIMIT", "TERRACE_STATS"];
/// assert_eq!(nearest(b"TERRACE_LIMT", known), Some("TERRACE_LIMIT"));
/// assert_eq!(nearest(b"TERRACE_STATS", known), None);
/// assert_eq!(nearest(b"TERRACE_HEAP", known), None);
/// ```
pub fn nearest<'a>(name: &[u8], known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut near = None;
    for candidate in known {
        match distance(candidate.as_bytes(), name) {
            0 => return None,
            1 | 2 => near = near.or(Some(candidate)),
            _ => {}
        }
    }
    near
}

/// Letters to insert, remove or replace until one name is the other; [`MAX_LENGTH`] where one is as long as that.
fn distance(from: &[u8], to: &[u8]) -> usize {
    if from.len() >= MAX_LENGTH || to.len() >= MAX_LENGTH {
        return MAX_LENGTH;
    }
    // The distances of what is read of `from` to each beginning of `to` (Wagner and Fischer, 1974).
    let mut row: [usize; MAX_LENGTH] = core::array::from_fn(|at| at);
    for (read, letter) in from.iter().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], read + 1);
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn letters_are_counted() {
        for (from, to, letters) in [("", "ab", 2), ("kitten", "sitting", 3), ("abc", "abc", 0), ("abc", "acb", 2)] {
            assert_eq!(
                (distance(from.as_bytes(), to.as_bytes()), distance(to.as_bytes(), from.as_bytes())),
                (letters, letters)
            );
        }
        assert!(distance(&[b'a'; 60], &[b'a'; 60]) > 2, "too long to say");
    }
}
