//! The pages for users of a Jetson and of WSL2: what they name exists.
//!
//! Variables and tests are looked at here, commands and options by `terrace-cli`, which has the program.

use crate::settings::{check_variables, file};
use std::path::{Path, PathBuf};

const PAGES: [&str; 2] = ["docs/jetson.md", "docs/wsl2.md"];

/// Where packages lie.
const FOLDERS: [&str; 3] = ["adapters", "tests", "."];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project")
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The folder of a package, by the name in its manifest.
fn package(name: &str) -> Option<PathBuf> {
    let short = name.strip_prefix("terrace-")?;
    let folders = FOLDERS.iter().map(|folder| root().join(folder).join(short));
    let is_its = |folder: &PathBuf| {
        read(&folder.join("Cargo.toml")).is_some_and(|text| text.contains(&format!("name = \"{name}\"\n")))
    };
    folders.into_iter().find(is_its)
}

/// The file of a module in a folder, and the folder of the modules below it.
fn module(folder: &Path, name: &str) -> Option<(String, PathBuf)> {
    let inside = folder.join(name);
    let files = [folder.join(format!("{name}.rs")), inside.join("mod.rs"), inside.join("main.rs")];
    files.iter().find_map(|file| read(file)).map(|text| (text, inside))
}

/// Whether a name as `cargo xtask test` prints it, `PACKAGE/BINARY::PATH`, is that of a function marked as a test.
fn is_test(name: &str) -> Result<(), String> {
    let (package_name, path) = name.split_once('/').ok_or("no package")?;
    let package = package(package_name).ok_or("no such package")?;
    let mut parts: Vec<&str> = path.split("::").collect();
    let test = parts.pop().unwrap_or_default();
    let binary = *parts.first().ok_or("no binary")?;
    // A module of the program `all` stands for the program that it would be by itself.
    let found = match binary {
        "lib" => read(&package.join("src/lib.rs")).map(|text| (text, package.join("src"))),
        _ => module(&package.join("tests"), binary).or_else(|| module(&package.join("tests/all"), binary)),
    };
    let (mut text, mut folder) = found.ok_or("no such binary")?;
    for part in &parts[1..] {
        match module(&folder, part) {
            Some(found) => (text, folder) = found,
            None if text.contains(&format!("mod {part} {{")) => {}
            None => return Err(format!("no module {part}")),
        }
    }
    let (before, _) = text.split_once(&format!("fn {test}(")).ok_or("no such function")?;
    let mut attributes = before.lines().rev().skip_while(|line| line.trim().is_empty());
    let above = attributes.find(|line| !line.trim_start().starts_with("#[cfg"));
    above.filter(|line| line.trim() == "#[test]").map(drop).ok_or("no test".into())
}

/// The names of tests in a page: what stands in backquotes and begins with a package.
fn named(page: &str) -> Vec<&str> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.starts_with("terrace-") && text.contains("::")).collect()
}

#[test]
fn tests_that_pages_name_exist() {
    for path in PAGES {
        let text = file(path);
        let names = named(&text);
        assert!(names.len() > 10, "{path}: {names:?}");
        for name in names {
            is_test(name).unwrap_or_else(|why| panic!("{path}: {name}: {why}"));
        }
    }
}

#[test]
fn variables_that_pages_name_exist_and_accept_the_value() {
    for path in PAGES {
        assert!(check_variables(path, &file(path)) > 3, "{path}");
    }
}

/// Each page is found from the README and from the crate of tiers, and each link of a page leads to a file.
#[test]
fn pages_are_found_and_lead_somewhere() {
    for path in PAGES {
        assert!(file("README.md").contains(&format!("({path})")), "README.md leads to {path}");
        assert!(file("adapters/tiers/README.md").contains(&format!("(../../{path})")), "terrace-tiers leads to {path}");
        let text = file(path);
        let links = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split(')').next());
        for link in links.filter(|link| !link.starts_with("https://") && !link.starts_with('#')) {
            let target = root().join("docs").join(link.split('#').next().unwrap_or(link));
            assert!(target.exists(), "{path}: {link}");
        }
    }
}

#[test]
fn what_is_no_test_is_told() {
    let why = |name: &str| is_test(name).expect_err(name);
    assert_eq!(why("terrace-nothing/lib::a"), "no such package");
    assert_eq!(why("terrace-tests/nothing::a"), "no such binary");
    assert_eq!(why("terrace-tests/pages::nothing"), "no such function");
    assert_eq!(why("terrace-tests/pages::is_test"), "no test");
    assert_eq!(why("terrace-tests/device_simcuda::nothing::a"), "no module nothing");
    assert_eq!(is_test("terrace-tests/pages::what_is_no_test_is_told"), Ok(()));
    assert_eq!(named("`terrace-a/b::c` `terrace::Global` and `terrace-d/e::f`"), ["terrace-a/b::c", "terrace-d/e::f"]);
}
