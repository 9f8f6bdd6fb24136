//! Suggestions for misspelt names of settings.
//!
//! Promises upward: the known name that was probably meant, without allocating: allocators call it while they start.
//! Asks from below: nothing.

/// Names of so many bytes or more are not compared.
const MAX_LENGTH: usize = 48;

/// Returns the first name in `known` at an edit distance of 1 or 2 from `name`.
///
/// `None` if `name` itself is known, or no name is that near. Time: the product of the two lengths, for each known name.
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

/// The edit distance (Levenshtein) of two names; [`MAX_LENGTH`] if one of them has that many bytes.
fn distance(from: &[u8], to: &[u8]) -> usize {
    if from.len() >= MAX_LENGTH || to.len() >= MAX_LENGTH {
        return MAX_LENGTH;
    }
    // `row[n]`: the distance of the letters read of `from` to the first `n` of `to` (Wagner and Fischer, 1974).
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
