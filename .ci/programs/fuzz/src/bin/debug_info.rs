//! Files with debug information: a program may be stripped, packed, truncated or replaced on disk
//! while it runs.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fuzz_targets::libraries::caught;
use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;

/// The memory that a lookup may need, apart from what is in proportion to the file.
const LOOKUP_BYTES_MAX: usize = 16 << 20;
/// Compression makes a section at most this many times smaller: DEFLATE needs a bit for each 129
/// bytes.
const INFLATION_MAX: usize = 1_100;
/// Where the address at which a program begins is, in the header of an ELF file.
const ENTRY_AT: usize = 24;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(symbol) = str::from_utf8(bytes) {
        // Names may refer to parts of themselves. The demangler bounds what it writes.
        bounded(LOOKUP_BYTES_MAX, || drop(volt_stacks::fuzzing::names(symbol)));
    }
    if bytes.len() < ENTRY_AT + 8 || !bytes.starts_with(b"\x7fELF") {
        return;
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let entry = word(ENTRY_AT);
    // The last bytes of the input are behind the sections, so that they may name any address.
    let addresses = [entry, entry.wrapping_add(9), word(bytes.len() - 8), 0, u64::MAX];
    let path = file();
    std::fs::write(path, bytes).expect("a file in memory");
    bounded(LOOKUP_BYTES_MAX + INFLATION_MAX * bytes.len(), || {
        // No library's panic is expected here: nothing catches it.
        volt_stacks::fuzzing::build_id(bytes);
        caught(|| volt_stacks::fuzzing::lines(path, &addresses));
    });
});

/// Returns the path of a file in memory, which is the only one in its folder.
fn file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = PathBuf::from(format!("/dev/shm/volt-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder in memory");
        folder.join("program")
    })
}
