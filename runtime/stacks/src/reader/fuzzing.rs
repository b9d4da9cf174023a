//! Entry points of the fuzz targets, which give arbitrary bytes to the reader: files with debug
//! information, unwind tables, and copies of stacks. Compiled only with `cfg(fuzzing)`.
//!
//! [`Resolver`](super::symbols::Resolver) catches panics of the libraries that read files. These
//! functions do not, so that a fuzzer finds them.

use std::path::Path;

use super::lines::Lines;
use super::modules::Module;
use super::names;
use super::raw::{Part, RawStack, Registers};
use super::sections;
use super::unwind::{CALLS_MAX, Marker, Unwinding};

/// Returns the build id of a program with these bytes.
pub fn build_id(bytes: &[u8]) -> Option<String> {
    sections::build_id_of(bytes)
}

/// Looks up addresses in a file, and makes the names readable. Returns the number of calls found at
/// each address.
pub fn lines(file: &Path, addresses: &[u64]) -> Option<Vec<usize>> {
    let lines = Lines::open(file).ok()?;
    let found = lines.find(addresses);
    assert_eq!(found.len(), addresses.len(), "a result for each address");
    for found in &found {
        let holder = found.symbol.as_deref().map(names);
        for place in &found.places {
            let function = place.function.as_deref().map(names::demangled);
            if let Some(function) = &function {
                names::readable(function, holder.as_deref());
            }
            names::is_user_code(function.as_deref(), place.file.as_deref(), Some("/volt/runtime/"));
        }
    }
    // Nothing that is kept from the first lookup changes the second.
    assert_eq!(lines.find(addresses), found);
    Some(found.iter().map(|found| found.places.len()).collect())
}

/// Demangles a symbol, and makes it readable.
pub fn names(symbol: &str) -> String {
    let demangled = names::demangled(symbol);
    names::is_user_code(Some(&demangled), None, None);
    names::is_whole(&demangled);
    names::readable(&demangled, Some("main"))
}

/// Unwinds a stack of arbitrary words, by arbitrary tables. `numbers` are the address of the next
/// instruction, the stack pointer, the frame pointer, the link register, and the marked address.
pub fn unwind(header: &[u8], frames: &[u8], numbers: [u64; 5], words: &[u64], is_cut: bool) -> usize {
    let [ip, sp, fp, lr, marked] = numbers;
    let mut unwinding = Unwinding::of(Module::fuzzed(header, frames));
    let part = Part { base: sp & !7, words: words.into() };
    let stack = RawStack { registers: Registers { ip, sp, fp, lr }, parts: vec![part], is_cut, is_foreign: false };
    let marker = Marker::function(std::ptr::without_provenance(marked as usize));
    // The second time, the rules are in the cache of the unwinder. For a damaged table, they may be
    // other ones.
    let calls = [None, Some(marker), None].map(|marker| unwinding.unwind(&stack, marker).calls);
    assert!(calls.iter().all(|calls| calls.len() <= CALLS_MAX));
    calls[0].len()
}
