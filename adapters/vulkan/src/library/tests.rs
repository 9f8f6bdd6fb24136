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
