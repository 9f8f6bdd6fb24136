//! Libraries that are missing, broken, or not Vulkan's: each is an error.

use crate::error::VulkanError;
use crate::library;

#[test]
fn a_library_that_is_not_there_is_an_error_that_says_what_to_install() {
    let error = library::load_from("libvulkan-of-no-machine.so.1").err().expect("there is none");
    let VulkanError::NoLibrary { detail } = &error else { panic!("{error:?}") };
    assert!(detail.contains("libvulkan-of-no-machine.so.1"), "{detail}");
    let text = error.to_string();
    assert!(text.starts_with("no Vulkan library: ") && text.contains("mesa-vulkan-drivers"), "{text}");
}

#[test]
fn a_file_that_is_no_library_is_an_error() {
    let path = std::env::temp_dir().join(format!("terrace-broken-vulkan-{}.so", std::process::id()));
    std::fs::write(&path, "this is text").expect("a file of our own");
    let error = library::load_from(&path).err().expect("it is text");
    std::fs::remove_file(&path).expect("it is there");
    assert!(matches!(error, VulkanError::NoLibrary { .. }), "{error:?}");
}

/// The C library is a good library, and not Vulkan's.
#[cfg(target_os = "linux")]
#[test]
fn another_library_is_an_error() {
    let error = library::load_from("libc.so.6").err().expect("it is C's");
    let VulkanError::NoLibrary { detail } = &error else { panic!("{error:?}") };
    assert!(detail.contains("vkGetInstanceProcAddr"), "{detail}");
}

#[test]
fn drivers_are_those_that_manifests_name() {
    let named = |text: &str| library::driver_of("/usr/share/vulkan/icd.d/x.json".as_ref(), text);
    let manifest = |path: &str| format!("{{\"ICD\": {{ \"library_path\" : \"{path}\", \"api_version\": \"1.3\" }}}}");
    assert_eq!(named(&manifest("libvulkan_lvp.so")).as_deref(), Some("libvulkan_lvp.so"));
    assert_eq!(named(&manifest("/usr/lib/libx.so")).as_deref(), Some("/usr/lib/libx.so"));
    assert_eq!(named(&manifest("./libx.so")).as_deref(), Some("/usr/share/vulkan/icd.d/./libx.so"));
    assert_eq!([named("{}"), named("\"library_path\": 1")], [None, None]);
}
