//! What calls cost: nanoseconds each, on one thread, printed. `TERRACE_SIMCUDA_LIBRARY` names another build to measure.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod calls;

fn main() {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    calls::print();
}
