//! Libraries and drivers that are missing or wrong, from a whole process: opening a device is a typed error, and the process ends well.

use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_vulkan::{VulkanBackend, VulkanError};

/// Set in the child, which opens a device and prints what came of it.
const CHILD: &str = "TERRACE_TEST_VULKAN_ABSENT";

/// Name of the test that the child runs.
const TEST: &str = "what_cannot_be_opened_is_told";

/// Wrong libraries, in C after `STUBS`, and how the error begins. The first is no library at all.
const WRONG: [(&str, &str, &str); 7] = [
    ("text", "", "no Vulkan library: "),
    ("another", "int other(void) { return 0; }", "no Vulkan library: "),
    (
        "empty",
        "void *vkGetInstanceProcAddr(void *of, const char *name) { return 0; }",
        "the Vulkan library or its driver has no function vkCreateInstance",
    ),
    (
        "old",
        "static int create(void *a, void *b, void *c) { return -9; }\nSTUBS(0x401000)",
        "the Vulkan library is of version 1.1, and terrace needs 1.2; install",
    ),
    (
        "refuses",
        "static int create(void *a, void *b, void *c) { return -3; }\nSTUBS(0x402000)",
        "the Vulkan device could not be opened: vkCreateInstance: failed (VK_ERROR_INITIALIZATION_FAILED",
    ),
    (
        "without_drivers",
        "static int create(void *a, void *b, void *c) { return -9; }\nSTUBS(0x402000)",
        "the Vulkan library finds no driver; install",
    ),
    (
        "half",
        "static int create(void *a, void *b, void **c) { *c = &create; return 0; }\nSTUBS(0x402000)",
        "the Vulkan library or its driver has no function vkDestroyInstance",
    ),
];

/// A library of a version that lists no extensions, and makes instances by `create`.
const STUBS: &str = "#include <string.h>\n#define STUBS(V) static int version(unsigned *v) { *v = V; return 0; } \\\n\
    static int none(void *a, unsigned *n, void *b) { *n = 0; return 0; } \\\n\
    void *vkGetInstanceProcAddr(void *of, const char *name) { \\\n\
    return !strcmp(name, \"vkCreateInstance\") ? (void *)create : !strcmp(name, \"vkEnumerateInstanceVersion\") ? (void *)version \\\n\
    : !strcmp(name, \"vkEnumerateInstanceExtensionProperties\") ? (void *)none : 0; }\n";

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("terrace-vulkan-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder of our own");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a child with these variables says.
fn told(variables: &[(&str, &Path)]) -> String {
    let mut child = Command::new(std::env::current_exe().expect("our own path"));
    child.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").env_remove("VK_INSTANCE_LAYERS");
    let output = child.envs(variables.iter().copied()).output().expect("our own program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().find_map(|line| line.split_once("told: ")).map(|(_, told)| told.to_owned()).expect("it tells")
}

#[test]
fn what_cannot_be_opened_is_told() {
    if std::env::var_os(CHILD).is_some() {
        match VulkanBackend::open(0) {
            Ok(vulkan) => println!("told: {vulkan:?}"),
            Err(error) => {
                assert_eq!(VulkanBackend::open(0).expect_err("the answer holds"), error);
                println!("told: {error}");
            }
        }
        return;
    }
    if cfg!(not(target_os = "linux")) || Command::new("cc").arg("--version").output().is_err() {
        println!("SKIP {TEST}: no C compiler for the wrong libraries of this system");
        return;
    }
    for (name, source, begins) in WRONG {
        let folder = Folder::new(name);
        let (library, file) = (folder.0.join("libvulkan.so.1"), folder.0.join("wrong.c"));
        if source.is_empty() {
            std::fs::write(&library, "this is text").expect("a file of our own");
        } else {
            std::fs::write(&file, format!("{STUBS}{source}")).expect("a file of our own");
            let built = Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(&file).status();
            assert!(built.expect("it was there").success(), "{name}");
        }
        let told = told(&[("LD_LIBRARY_PATH", &folder.0)]);
        assert!(told.starts_with(begins), "{name}: {told}");
    }
}

#[test]
fn a_library_without_a_driver_is_told() {
    if matches!(VulkanBackend::count(), Err(VulkanError::NoLibrary { .. })) {
        println!("SKIP a_library_without_a_driver_is_told: this machine has no Vulkan library");
        return;
    }
    let folder = Folder::new("no-driver");
    let manifest = folder.0.join("driver.json");
    let none = folder.0.join("none.json");
    let broken = format!(
        r#"{{"file_format_version": "1.0.0", "ICD": {{"library_path": "{}/none.so", "api_version": "1.2.0"}}}}"#,
        folder.0.display()
    );
    std::fs::write(&manifest, broken).expect("a file of our own");
    for path in [&none, &manifest] {
        let told = told(&[("VK_ICD_FILENAMES", path), ("VK_DRIVER_FILES", path)]);
        assert!(told.starts_with("the Vulkan library finds no driver; install"), "{told}");
        assert!(told.ends_with("or use the host backend"), "{told}");
    }
}

#[test]
fn a_device_that_is_not_there_is_told() {
    match VulkanBackend::count() {
        Ok(found) => {
            let error = VulkanBackend::open(found).expect_err("one more than there are");
            assert_eq!(error, VulkanError::NoDevice { ordinal: found, found });
        }
        Err(error) => println!("SKIP a_device_that_is_not_there_is_told: {error}"),
    }
}
