//! Links the library with `nodelete`: threads may end, and blocks be freed, after a `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let unix = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if unix {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
