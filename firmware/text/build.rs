//! Three functions are kept; everything that they do not reach is dropped.

fn main() {
    for word in ["--entry=heap_init", "--undefined=heap_alloc", "--undefined=heap_free", "--gc-sections"] {
        println!("cargo:rustc-link-arg-bins={word}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
