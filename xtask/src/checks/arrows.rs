//! `check::arrows`: a library's modules name only lower layers, and few of the core's name what lies outside.
//!
//! Promises upward: every arrow that points up or closes a circle, with file and line.
//! Asks from below: `[layers]` and `[only]` in `docs/rules.toml`.

use super::{paths, verdict};
use crate::rules::{Layers, PATH, Rules};
use crate::sources::{self, Source};
use std::collections::{BTreeMap, BTreeSet};

/// The only library for which paths from outside have their modules.
const CORE: &str = "core";

/// The check.
pub fn check(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let broken = rules.layers.iter().flat_map(|(folder, layers)| findings(folder, layers, rules, files));
    verdict(broken.chain(without_layers(rules, files)).collect())
}

/// Libraries of which the table says nothing.
fn without_layers(rules: &Rules, files: &[Source]) -> Vec<String> {
    let folders = files.iter().filter_map(|file| file.path.strip_suffix("/src/lib.rs"));
    let libraries = folders
        .filter(|folder| *folder == CORE || folder.strip_prefix("adapters/").is_some_and(|name| !name.contains('/')));
    let missing = libraries.filter(|folder| !rules.layers.contains_key(*folder));
    missing.map(|folder| format!("{folder}/src/lib.rs: {PATH} states no order of layers for it")).collect()
}

/// What one library breaks.
fn findings(folder: &str, layers: &Layers, rules: &Rules, files: &[Source]) -> Vec<String> {
    let base = format!("{folder}/src/");
    let own: Vec<(&str, &Source)> = files
        .iter()
        .filter(|file| file.is_rust() && !sources::is_tests(&file.path))
        .filter_map(|file| Some((file.path.strip_prefix(&base)?, file)))
        .collect();
    let root = own.iter().find(|(path, _)| is_root(path)).map_or("", |(_, file)| file.text.as_str());
    let mut arrows = Arrows {
        base: &base,
        layers,
        only: (folder == CORE).then_some(&rules.only),
        names: exports(&sources::code_of(root)),
        same: BTreeMap::new(),
        findings: Vec::new(),
    };
    for (path, file) in &own {
        if let Some(module) = module_of(path) {
            arrows.file(module, path, file);
        }
    }
    arrows.table(own.iter().filter_map(|(path, _)| module_of(path)).collect());
    arrows.circles();
    arrows.findings
}

struct Arrows<'a> {
    /// Where the library's sources lie.
    base: &'a str,
    layers: &'a Layers,
    /// Paths from outside, where they have their modules.
    only: Option<&'a BTreeMap<String, Vec<String>>>,
    /// What the root exports again: name -> module.
    names: BTreeMap<String, String>,
    /// Arrows within a layer.
    same: BTreeMap<String, BTreeSet<String>>,
    findings: Vec<String>,
}

impl Arrows<'_> {
    fn file(&mut self, module: &str, path: &str, file: &Source) {
        let code = sources::code_of(&file.text);
        let code = sources::without_tests(&code);
        let depth = path.trim_end_matches("/mod.rs").split('/').count();
        for (name, line) in paths::from_root(code, depth) {
            let target = self.names.get(&name).cloned().unwrap_or(name);
            if target != module {
                self.arrow(module, &target, &format!("{}:{line}", file.path));
            }
        }
        for (outside, allowed) in self.only.into_iter().flatten() {
            if !allowed.iter().any(|one| one == module) {
                let places = code.match_indices(outside.as_str()).filter(|(at, _)| is_whole(code, *at, outside.len()));
                self.findings.extend(places.map(|(at, _)| {
                    let line = code[..at].matches('\n').count() + 1;
                    format!("{}:{line}: `{outside}` belongs to {} only", file.path, allowed.join(", "))
                }));
            }
        }
    }

    fn arrow(&mut self, from: &str, to: &str, place: &str) {
        match (self.layer(from), self.layer(to)) {
            (Some(from_layer), Some(to_layer)) if from_layer == to_layer => {
                self.same.entry(from.into()).or_default().insert(to.into());
            }
            (Some(from_layer), Some(to_layer)) if to_layer > from_layer => {
                self.findings.push(format!("{place}: `{from}` names `{to}`, which lies above it"));
            }
            (Some(_), None) => self.findings.push(format!("{place}: `{to}` is in no layer")),
            _ => {}
        }
    }

    fn layer(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.iter().any(|one| one == module))
    }

    /// The table names each module, and no other.
    fn table(&mut self, modules: BTreeSet<&str>) {
        for module in &modules {
            if self.layer(module).is_none() {
                self.findings.push(format!("{}{module}: the module is in no layer of {}", self.base, PATH));
            }
        }
        for module in self.layers.iter().flatten().filter(|module| !modules.contains(module.as_str())) {
            self.findings.push(format!("{}: there is no module `{module}` in {}", PATH, self.base));
        }
    }

    fn circles(&mut self) {
        let starts: Vec<String> = self.same.keys().cloned().collect();
        for start in starts {
            let mut seen = BTreeSet::new();
            let mut open: Vec<&String> = self.same[&start].iter().collect();
            while let Some(module) = open.pop() {
                if *module == start {
                    self.findings
                        .push(format!("{}{start} leads back to itself through modules of its layer", self.base));
                    break;
                }
                if seen.insert(module) {
                    open.extend(self.same.get(module).into_iter().flatten());
                }
            }
        }
    }
}

/// The module of the root that a file belongs to; none for the root itself.
fn module_of(path: &str) -> Option<&str> {
    let first = path.split('/').next()?.trim_end_matches(".rs");
    (!is_root(path)).then_some(first)
}

/// The file that a library or a command begins with.
fn is_root(path: &str) -> bool {
    matches!(path, "lib.rs" | "main.rs")
}

fn is_whole(code: &str, at: usize, length: usize) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    // A name that itself ends in `::` has the rest of the path behind it.
    let open = code[..at + length].ends_with("::");
    !code[..at].ends_with(word) && (open || !code[at + length..].starts_with(word))
}

/// `pub use MODULE::{A, B as C};` of the root: what `crate::A` means.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for statement in root.split(';') {
        let Some((_, path)) = statement.rsplit_once("pub use ") else { continue };
        let Some((module, rest)) = path.trim().trim_start_matches("crate::").split_once("::") else { continue };
        for item in rest.split([',', '{', '}']) {
            if let Some(name) = item.split_whitespace().last().and_then(|name| name.rsplit("::").next()) {
                names.insert(name.to_string(), module.trim().to_string());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(files: &[(&str, &str)]) -> Result<(), String> {
        let only = BTreeMap::from([("loom::".to_string(), vec!["sync".to_string()])]);
        let layers = [vec!["error", "sync"], vec!["index"], vec!["range"]];
        let layers = layers.iter().map(|layer| layer.iter().map(|name| name.to_string()).collect()).collect();
        let rules = Rules { layers: BTreeMap::from([("core".to_string(), layers)]), only, ..Rules::default() };
        let mut all =
            vec![("lib.rs", "pub use error::{AllocError, Cause};"), ("error.rs", ""), ("sync.rs", "use loom::x;")];
        all.extend([("index.rs", "use crate::error::Cause;"), ("range.rs", "use crate::index;")]);
        all.retain(|(path, _)| !files.iter().any(|(other, _)| other == path));
        all.extend(files);
        let files: Vec<Source> = all
            .iter()
            .map(|(path, text)| Source { path: format!("core/src/{path}"), text: text.to_string() })
            .collect();
        check(&rules, &files)
    }

    #[test]
    fn arrows_down_are_fine() {
        assert_eq!(run(&[]), Ok(()));
        assert_eq!(run(&[("range/slots.rs", "use super::X; use crate::AllocError; use super::super::index;")]), Ok(()));
        assert_eq!(run(&[("index.rs", "//! See [`crate::range`].\nlet s = \"crate::range\";")]), Ok(()));
        assert_eq!(run(&[("index.rs", "#[cfg(test)]\nmod tests {\n use crate::range::A;\n}")]), Ok(()));
    }

    #[test]
    fn arrows_up_are_found() {
        let up = run(&[("index.rs", "\nuse crate::range::A;")]).expect_err("it points up");
        assert!(up.contains("core/src/index.rs:2") && up.contains("`range`"), "{up}");
        assert!(run(&[("error.rs", "use super::index::B;")]).is_err());
        assert!(run(&[("lib.rs", "pub use range::Range;"), ("error.rs", "use crate::Range;")]).is_err());
    }

    #[test]
    fn circles_strangers_and_outside_names_are_found() {
        assert!(run(&[("error.rs", "use crate::sync;"), ("sync.rs", "use crate::error;")]).is_err());
        assert!(run(&[("error.rs", "use crate::sync;")]).is_ok());
        assert!(run(&[("new.rs", "")]).is_err());
        assert!(run(&[("range.rs", "use crate::nothing;")]).is_err());
        assert!(run(&[("range.rs", "use loom::sync;")]).is_err());
        let other = [Source { path: "adapters/other/src/lib.rs".into(), text: String::new() }];
        assert!(check(&Rules::default(), &other).is_err_and(|why| why.contains("adapters/other")));
        assert!(run(&[("range.rs", "#[cfg(loom)]\nlet x = heirloom::y();")]).is_ok());
    }
}
