//! The texts of `/proc` and of control groups.
#![no_main]

use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // The two files that are read together, or two samples of one.
    let (one, other) = text.split_once('\0').unwrap_or((text, text));
    bounded(256 * bytes.len() + 65_536, || volt_stacks::fuzzing::texts(one, other));
});
