//! Reads the sections of a file's debug information, and decompresses them if they are compressed.
//!
//! [`units`](super::units) and [`split`](super::split) use this module.
//!
//! Decompressing takes four more crates and their build time, and hardly any Rust program is linked
//! with compressed sections. It is therefore a feature, `compressed-debug-info`. Without it, such a
//! section is missing, and the resolver reports the reason.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use gimli::{EndianSlice, LittleEndian};

use super::elf::Elf;
use super::map::Map;

pub(super) type Bytes<'f> = EndianSlice<'f, LittleEndian>;
pub(super) type Unit<'f> = gimli::Unit<Bytes<'f>>;

/// The sections of a file that are stored compressed, by their names; decompressed.
#[derive(Default)]
pub(super) struct Unpacked {
    sections: HashMap<String, Vec<u8>>,
    /// Whether a section could not be decompressed.
    pub(super) is_incomplete: bool,
}

/// Opens a file with debug information.
///
/// # Errors
/// Those of the operating system, and one for a path that is not a regular file any more. Opening a
/// pipe would otherwise block the thread until there is a writer.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Returns the build id of this program's executable in hexadecimal, if it has one.
pub fn build_id() -> Option<String> {
    let file = File::open("/proc/self/exe").ok()?;
    // SAFETY: a file of a running program is replaced, but not changed, by tools that install it.
    let bytes = unsafe { Map::of(&file) }.ok()?;
    build_id_of(&bytes)
}

pub(super) fn build_id_of(bytes: &[u8]) -> Option<String> {
    let id = Elf::parse(bytes).ok()?.build_id()?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Unpacked {
    pub(super) fn of(elf: &Elf<'_>) -> Self {
        Self::read(elf, cfg!(feature = "compressed-debug-info"))
    }

    /// Decompresses the sections if `is_supported`. In tests, both are possible.
    pub(super) fn read(elf: &Elf<'_>, is_supported: bool) -> Self {
        let mut unpacked = Self::default();
        // Sections do not overlap, so their sum is not larger than the file, and what they contain
        // is bounded as for a single one.
        let mut left = elf.len();
        for section in elf.sections() {
            // An older form of compression is marked by the name.
            let name = section.name.strip_prefix(".debug_").or_else(|| section.name.strip_prefix(".zdebug_"));
            let Some(name) = name.filter(|_| section.is_compressed()) else { continue };
            let possible = left.checked_sub(section.data.len());
            left = possible.unwrap_or(left);
            match possible.and_then(|_| section.decompressed()).filter(|_| is_supported) {
                Some(data) => _ = unpacked.sections.insert(format!(".debug_{name}"), data),
                None => unpacked.is_incomplete = true,
            }
        }
        unpacked
    }

    /// Returns the section of `elf` with this name; empty if there is none. Never fails: it returns
    /// a `Result` only because the libraries that call it expect one.
    pub(super) fn section<'f>(&'f self, elf: &Elf<'f>, name: Option<&str>) -> gimli::Result<Bytes<'f>> {
        let bytes = name.and_then(|name| match self.sections.get(name) {
            Some(bytes) => Some(&bytes[..]),
            None => elf.section(name).filter(|section| !section.is_compressed()).map(|section| section.data),
        });
        Ok(EndianSlice::new(bytes.unwrap_or_default(), LittleEndian))
    }
}
