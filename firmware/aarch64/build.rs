//! The linker script of this board.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-arg-bins=-T{here}/link.ld");
    println!("cargo:rerun-if-changed=link.ld");
}
