//! Tells the linker to keep one copy of functions that are the same: much of the program is in memory while it runs.
#![allow(clippy::print_stdout, reason = "cargo reads what it prints")]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    // Only LLVM's linker can; it is the one Rust brings along on this platform.
    let is_lld = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|machine| machine == "x86_64");
    if is_release && is_linux && is_lld {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}
