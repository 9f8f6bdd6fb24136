//! The names that Rust code takes from its own crate's root.
//!
//! Promises upward: for each `crate::..` and each `super::..` that climbs to the root, the first name after it,
//! with its line; groups in braces are opened.
//! Asks from below: code without comments and literals.

/// A name and the line it stands in, counted from 1.
pub type Found = (String, usize);

/// The names taken from the root by code at `depth` modules below it (1 for `src/a.rs`, 2 for `src/a/b.rs`).
pub fn from_root(code: &str, depth: usize) -> Vec<Found> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if starts_word(code, at) {
            heads(code, at + "crate::".len(), &mut found);
        }
    }
    for (at, _) in code.match_indices("super::") {
        if starts_word(code, at) && !code[..at].ends_with("super::") {
            let climbs = code[at..].split("super::").take_while(|part| part.is_empty()).count();
            if climbs == depth {
                heads(code, at + climbs * "super::".len(), &mut found);
            }
        }
    }
    found.sort_by_key(|(_, line)| *line);
    found
}

/// Whether no identifier runs into `at`.
fn starts_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The first names of the use tree that begins at `at`.
fn heads(code: &str, at: usize, found: &mut Vec<Found>) {
    let tree = &code[at..];
    let line = |offset: usize| code[..at + offset].matches('\n').count() + 1;
    if !tree.starts_with('{') {
        found.push((name_at(tree), line(0)));
        return;
    }
    let (mut depth, mut wants_name) = (0, false);
    for (offset, c) in tree.char_indices() {
        match c {
            '{' => (depth, wants_name) = (depth + 1, depth == 0),
            '}' => depth -= 1,
            ',' => wants_name = depth == 1,
            _ if c.is_whitespace() => {}
            _ if wants_name => {
                found.push((name_at(&tree[offset..]), line(offset)));
                wants_name = false;
            }
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

/// The identifier (or `*`) at the start of `text`.
fn name_at(text: &str) -> String {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if end == 0 { text.chars().take(1).collect() } else { text[..end].into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str, depth: usize) -> Vec<String> {
        from_root(code, depth).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn single_paths_and_groups() {
        assert_eq!(names("use crate::index::Bins;\nlet x = crate::stats::new();", 1), ["index", "stats"]);
        assert_eq!(names("use crate::{\n a::{B, C::D},\n e,\n};", 1), ["a", "e"]);
        assert_eq!(names("pub(crate) use $crate::a; use mycrate::b;", 1), ["a"]);
    }

    #[test]
    fn super_counts_only_when_it_reaches_the_root() {
        assert_eq!(names("use super::index;", 1), ["index"]);
        assert_eq!(names("use super::index;", 2), Vec::<String>::new());
        assert_eq!(names("use super::super::{a, b::c};", 2), ["a", "b"]);
    }

    #[test]
    fn lines_are_counted() {
        assert_eq!(from_root("\n\nuse crate::{\n  a,\n  b};", 1), [("a".into(), 4), ("b".into(), 5)]);
    }
}
