//! Seeded bugs that stand in comments above the code they would break, so that the code itself has none.
//!
//! `// seeded: NAME: OLD => NEW`: in the next line of code, the expression OLD wrongly is NEW. Several may stand above one line.
//! `// unseeded: NAME: WHY`: of the check below no test can be shown to need it.
//!
//! Promises upward: one build has all of them, each off until the environment variable `TERRACE_SEEDED_BUG` names it; a mark
//! whose OLD does not stand once in its line is an error, so that none goes stale.
//! Asks from below: a shell, for the compiler wrapper that reads the woven sources in place of a package's own.

use crate::command::root;
use crate::seeds;
use crate::sources::Source;
use std::fs;
use std::path::PathBuf;

/// Put behind the woven crate's own text.
const SWITCH: &str = r#"
/// Whether this bug was chosen when the program started.
pub(crate) fn seeded(bug: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("TERRACE_SEEDED_BUG").unwrap_or_default()) == bug
}
"#;

/// What the marks of some files come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Names of bugs, in order.
    pub bugs: Vec<String>,
    /// Names of checks without one, and why.
    pub spared: Vec<(String, String)>,
}

/// A file with its bugs in; its marks are added to those of others.
///
/// # Errors
/// The mark that does not fit its line.
pub fn weave(text: &str, marks: &mut Marks) -> Result<String, String> {
    let (mut woven, mut waiting) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(mark) = line.trim().strip_prefix("// unseeded: ") {
            let (name, why) = mark.split_once(": ").ok_or(format!("no reason: {mark}"))?;
            marks.spared.push((name.into(), why.into()));
        }
        if let Some(mark) = line.trim().strip_prefix("// seeded: ") {
            let (name, change) = mark.split_once(": ").ok_or(format!("no name: {mark}"))?;
            let (old, new) = change.split_once(" => ").ok_or(format!("no ` => `: {mark}"))?;
            waiting.push((name, old, new));
            continue;
        }
        let mut line = line.to_string();
        for (name, old, new) in waiting.drain(..) {
            if line.matches(old).count() != 1 {
                return Err(format!("seeded bug `{name}`: `{old}` does not stand once in `{}`", line.trim()));
            }
            line = line.replace(old, &format!("(if crate::seeded(\"{name}\") {{ {new} }} else {{ {old} }})"));
            marks.bugs.push(name.to_string());
        }
        woven += &line;
        woven.push('\n');
    }
    match waiting.first() {
        Some((name, ..)) => Err(format!("seeded bug `{name}` stands above nothing")),
        None => Ok(woven),
    }
}

/// Writes the sources of the package in `folder` with their bugs in, and a script for `RUSTC_WORKSPACE_WRAPPER` that has them
/// compiled in place of its own; the script, and the marks in the order of the files.
///
/// # Errors
/// A mark that does not fit; a name that is no name, or stands twice; the file that could not be written.
pub fn plant(folder: &str, files: &[Source]) -> Result<(PathBuf, Marks), String> {
    let (crate_root, base) = (format!("{folder}/src/lib.rs"), root().join("target/xtask/seeded"));
    let mut marks = Marks::default();
    for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with(&format!("{folder}/src/"))) {
        let mut woven = weave(&file.text, &mut marks).map_err(|why| format!("{}: {why}", file.path))?;
        if file.path == crate_root {
            woven += SWITCH;
        }
        let path = base.join(&file.path);
        // What is as it was is not compiled again.
        if fs::read_to_string(&path).ok().as_deref() != Some(&woven) {
            let write = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, woven));
            write.map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    // The crate's documentation includes it.
    let readme = format!("{folder}/README.md");
    fs::copy(root().join(&readme), base.join(&readme)).map_err(|error| format!("{readme}: {error}"))?;
    let all = &marks.bugs;
    if let Some(bad) = all.iter().enumerate().find(|(at, name)| !seeds::is_name(name) || all[..*at].contains(name)) {
        return Err(format!("`{}` is no name for a seeded bug, or stands twice", bad.1));
    }
    let woven = base.join(&crate_root);
    let script = seeds::script("planted", &swap(&crate_root, &woven.to_string_lossy()))?;
    Ok((script, marks))
}

/// Hands the compiler's words on, with another file for the root of one crate.
fn swap(own: &str, woven: &str) -> String {
    format!(
        "#!/bin/sh\nfor word; do\n    shift\n    [ \"$word\" = {own} ] && set -- \"$@\" --cap-lints=allow && word='{woven}'\n    \
         set -- \"$@\" \"$word\"\ndone\nexec \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources;

    fn woven(text: &str) -> Result<(String, Marks), String> {
        let mut marks = Marks::default();
        Ok((weave(text, &mut marks)?, marks))
    }

    #[test]
    fn a_mark_breaks_the_line_below_it() {
        let text = "    // seeded: crc: a == b => true\n    // seeded: len: size => 0\n    if a == b && size {\nd\n";
        let (text, marks) = woven(text).expect("marks that fit");
        let expected = "    if (if crate::seeded(\"crc\") { true } else { a == b }) && \
                        (if crate::seeded(\"len\") { 0 } else { size }) {\nd\n";
        assert_eq!((text.as_str(), marks.bugs), (expected, vec!["crc".to_string(), "len".to_string()]));
    }

    #[test]
    fn a_stale_mark_is_an_error() {
        let (twice, none) = ("// seeded: x: a => b\na a\n", "// seeded: x: a => b\nc\n");
        for text in [twice, none, "// seeded: x: a\na\n", "// seeded: x\na\n", "a\n// seeded: x: a => b\n"] {
            assert!(woven(text).is_err(), "{text}");
        }
        assert!(woven("// unseeded: x\na\n").is_err());
        assert_eq!(woven("/// seeded: x\na\n").expect("no mark").1, Marks::default());
        let spared = woven("// unseeded: x: it cannot be\na\n").expect("a reason").1.spared;
        assert_eq!(spared, [("x".to_string(), "it cannot be".to_string())]);
    }

    #[test]
    fn every_mark_of_the_file_tier_fits_its_line() {
        let mut marks = Marks::default();
        for file in sources::all().iter().filter(|file| file.path.starts_with("adapters/file/src/")) {
            weave(&file.text, &mut marks).unwrap_or_else(|why| panic!("{}: {why}", file.path));
        }
        assert!(!marks.bugs.is_empty());
    }
}
