//! Runs `examples/embedded.py`, which loads the library `examples/embedded.rs` into Python.

use std::path::Path;
use std::process::Command;

#[test]
fn a_library_with_volt_works_inside_python() {
    // A minimal Python lacks these modules.
    let python = Command::new("python3").args(["-c", "import ctypes, multiprocessing"]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no python3 with the modules ctypes and multiprocessing");
        return;
    }
    // Cargo builds the examples next to the programs.
    let folder = Path::new(env!("CARGO_BIN_EXE_hello")).parent().expect("the folder of the programs");
    let library = folder.join("examples/libembedded.so");
    if cfg!(target_env = "musl") && !library.exists() {
        eprintln!("SKIPPED: this target builds no dynamic libraries");
        return;
    }
    assert!(library.exists(), "{library:?} is missing: run `cargo build -p volt-examples --examples`");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/embedded.py");
    let output = Command::new("python3").arg(script).arg(&library).output().expect("it runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.lines().count() >= 7, "{stdout}\n{stderr}");
}
