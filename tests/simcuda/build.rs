//! The name under which the library counts as loaded: whoever asks the loader for `libcuda.so` after it was loaded by
//! path gets it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
        // Its own references to what it exports need no lookup: a copy whose names were changed still loads.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
        // Streams' threads run its code: it stays.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
