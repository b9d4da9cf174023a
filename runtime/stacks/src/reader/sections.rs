//! Reads the sections of a file's debug information, and decompresses them if they are compressed.
//!
//! [`units`](super::units) and [`split`](super::split) use this module.
//!
//! Decompressing takes two more crates and their build time, and hardly any Rust program is linked
//! with compressed sections. It is therefore a feature, `compressed-debug-info`. Without it, such a
//! section is missing, and the resolver reports the reason.

use std::collections::HashMap;
use std::fs::File;

use gimli::{EndianSlice, LittleEndian};
use memmap2::Mmap;
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{CompressionFormat, Object, ObjectSection};

pub(super) type Elf<'f> = ElfFile<'f, FileHeader64<object::LittleEndian>>;
pub(super) type Bytes<'f> = EndianSlice<'f, LittleEndian>;
pub(super) type Unit<'f> = gimli::Unit<Bytes<'f>>;

/// The sections of a file that are stored compressed, by their names; decompressed.
#[derive(Default)]
pub(super) struct Unpacked {
    sections: HashMap<String, Vec<u8>>,
    /// Whether a section could not be decompressed.
    pub(super) is_incomplete: bool,
}

/// Returns the build id of this program's executable in hexadecimal, if it has one.
pub fn build_id() -> Option<String> {
    let file = File::open("/proc/self/exe").ok()?;
    // SAFETY: a file of a running program is replaced, but not changed, by tools that install it.
    let bytes = unsafe { Mmap::map(&file) }.ok()?;
    let elf = Elf::parse(&*bytes).ok()?;
    let id = elf.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Unpacked {
    pub(super) fn of(elf: &Elf<'_>) -> Self {
        Self::read(elf, cfg!(feature = "compressed-debug-info"))
    }

    /// Decompresses the sections if `is_supported`. In tests, both are possible.
    pub(super) fn read(elf: &Elf<'_>, is_supported: bool) -> Self {
        let mut unpacked = Self::default();
        for section in elf.sections() {
            let Ok(name) = section.name() else { continue };
            // An older form of compression is marked by the name only.
            let Some(name) = name.strip_prefix(".debug_").or_else(|| name.strip_prefix(".zdebug_")) else { continue };
            if section.compressed_file_range().is_ok_and(|range| range.format == CompressionFormat::None) {
                continue;
            }
            match section.uncompressed_data().ok().filter(|_| is_supported) {
                Some(data) => _ = unpacked.sections.insert(format!(".debug_{name}"), data.into_owned()),
                None => unpacked.is_incomplete = true,
            }
        }
        unpacked
    }

    /// Returns the section of `elf` with this name; empty if there is none. Never fails: an error
    /// is what the libraries that call this function expect.
    pub(super) fn section<'f>(&'f self, elf: &Elf<'f>, name: Option<&str>) -> gimli::Result<Bytes<'f>> {
        let bytes = name.and_then(|name| match self.sections.get(name) {
            Some(bytes) => Some(&bytes[..]),
            None => {
                let section = elf.section_by_name(name)?;
                let is_plain = section.compressed_file_range().ok()?.format == CompressionFormat::None;
                section.data().ok().filter(|_| is_plain)
            }
        });
        Ok(EndianSlice::new(bytes.unwrap_or_default(), LittleEndian))
    }
}
