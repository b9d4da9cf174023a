//! Reads the sections and symbols of an ELF file: an executable, a library, or a file with debug
//! information.
//!
//! An ELF file begins with a header, which has the position of a table of sections. A *section* is
//! a range of the file with a name, such as `.debug_line`. One section contains the names of the
//! others. A symbol table is a section whose entries have the name, address and size of functions
//! and variables; the names are in a section of strings that it links to.
//!
//! Only files for 64-bit little-endian machines are read, which are those of the supported
//! processors.
//!
//! # Invariants
//!
//! *Bounded*: positions and sizes come from the file, which may be damaged. What is outside of the
//! file is missing. Nothing is allocated by a size that the file declares, except for a compressed
//! section, at most [`INFLATION_MAX`] times its bytes.
//!
//! Rejected: the crate `object`. It reads many more formats, and took a tenth of the build time of
//! a small program.
//!
//! Source: System V Application Binary Interface, chapters 4 and 5; `elf(5)`.

/// The sizes of a section header and of a symbol, in bytes.
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// How many times larger than its compressed form a section may be, since the library reserves the
/// size that the file declares. DEFLATE reaches 1032; debug information becomes some three times
/// smaller.
#[cfg_attr(not(any(test, feature = "compressed-debug-info")), expect(dead_code))]
const INFLATION_MAX: u64 = 1032;
/// Types of sections: a symbol table, notes, a section without bytes in the file, and the dynamic
/// linker's symbol table.
const SYMBOLS: u32 = 2;
const NOTES: u32 = 7;
const NO_BYTES: u32 = 8;
const DYNAMIC_SYMBOLS: u32 = 11;
/// The flag of a compressed section.
const COMPRESSED: u64 = 0x800;
/// The type of the note that contains the build id.
const BUILD_ID: u32 = 3;
/// The first of the reserved section numbers, which refer to no section: those of absolute symbols
/// and others.
const RESERVED: u16 = 0xff00;
/// A section number that is stored elsewhere, because it has more than 16 bits.
const ELSEWHERE: u16 = 0xffff;
/// Types of symbols: unknown, a variable and a function.
const UNKNOWN: u8 = 0;
const VARIABLE: u8 = 1;
const FUNCTION: u8 = 2;

/// A parsed file.
#[derive(Clone, Copy)]
pub(super) struct Elf<'f> {
    file: &'f [u8],
    /// The section headers.
    headers: &'f [u8],
    /// The names of sections.
    names: &'f [u8],
}

/// A section.
#[derive(Clone, Copy)]
pub(super) struct Section<'f> {
    pub(super) name: &'f str,
    kind: u32,
    flags: u64,
    pub(super) address: u64,
    pub(super) size: u64,
    link: u32,
    /// Empty if the file has no such bytes.
    pub(super) data: &'f [u8],
}

/// An entry of a symbol table.
#[derive(Clone, Copy)]
pub(super) struct Symbol<'f> {
    names: &'f [u8],
    name: u32,
    info: u8,
    visibility: u8,
    section: u16,
    /// Its number in the table.
    pub(super) index: usize,
    pub(super) address: u64,
    /// 0 for most functions that are written in assembly.
    pub(super) size: u64,
}

/// Returns `N` bytes at `at`. `None`: they are outside of `bytes`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn range(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let begin = usize::try_from(offset).ok()?;
    bytes.get(begin..begin.checked_add(usize::try_from(size).ok()?)?)
}

/// Returns the text that begins at `at` and ends before a zero byte.
fn text(names: &[u8], at: u32) -> Option<&str> {
    let rest = names.get(at as usize..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()
}

impl<'f> Elf<'f> {
    /// Parses the header of a file.
    ///
    /// # Errors
    /// Returns what is wrong if the file is none of the supported ones, or its header is damaged.
    pub(super) fn parse(file: &'f [u8]) -> Result<Self, &'static str> {
        // The class is 64 bits, and the order of bytes little-endian.
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return Err("not a 64-bit little-endian ELF file");
        }
        Self::headers(file).ok_or("the header of the ELF file is damaged")
    }

    fn headers(file: &'f [u8]) -> Option<Self> {
        let (begin, bytes, count) = (u64_at(file, 0x28)?, u16_at(file, 0x3a)?, u16_at(file, 0x3c)?);
        let names = u16_at(file, 0x3e)?;
        if begin == 0 {
            // A file whose sections were removed.
            return Some(Self { file, headers: &[], names: &[] });
        }
        if usize::from(bytes) != SECTION_BYTES {
            return None;
        }
        // Numbers that need more than 16 bits are in the first section.
        let first = range(file, begin, SECTION_BYTES as u64)?;
        let count = if count == 0 { u64_at(first, 0x20)? } else { count.into() };
        let names = if names == ELSEWHERE { u32_at(first, 0x28)? } else { names.into() };
        let headers = range(file, begin, count.checked_mul(SECTION_BYTES as u64)?)?;
        let elf = Self { file, headers, names: &[] };
        Some(Self { names: elf.section_at(names as usize).map_or(&[], |section| section.data), ..elf })
    }

    /// Returns the size of the file in bytes.
    pub(super) fn len(self) -> usize {
        self.file.len()
    }

    pub(super) fn sections(self) -> impl Iterator<Item = Section<'f>> {
        (0..self.headers.len() / SECTION_BYTES).filter_map(move |index| self.section_at(index))
    }

    pub(super) fn section(self, name: &str) -> Option<Section<'f>> {
        self.sections().find(|section| section.name == name)
    }

    fn section_at(self, index: usize) -> Option<Section<'f>> {
        let header = self.headers.get(index.checked_mul(SECTION_BYTES)?..)?;
        let kind = u32_at(header, 4)?;
        let (offset, size) = (u64_at(header, 0x18)?, u64_at(header, 0x20)?);
        let data = range(self.file, offset, size).filter(|_| kind != NO_BYTES);
        Some(Section {
            name: text(self.names, u32_at(header, 0)?).unwrap_or_default(),
            kind,
            flags: u64_at(header, 8)?,
            address: u64_at(header, 0x10)?,
            size,
            link: u32_at(header, 0x28)?,
            data: data.unwrap_or_default(),
        })
    }

    /// Returns the symbols of the symbol table or, if there is none, of the dynamic linker's.
    pub(super) fn symbols(self) -> impl Iterator<Item = Symbol<'f>> {
        let table = |kind| self.sections().find(|section| section.kind == kind);
        let table = table(SYMBOLS).or_else(|| table(DYNAMIC_SYMBOLS));
        let names = table.and_then(|table| self.section_at(table.link as usize)).map_or(&[][..], |names| names.data);
        let entries = table.map_or(&[][..], |table| table.data).chunks_exact(SYMBOL_BYTES).enumerate();
        entries.filter_map(move |(index, entry)| {
            Some(Symbol {
                names,
                name: u32_at(entry, 0)?,
                info: entry[4],
                visibility: entry[5] & 3,
                section: u16_at(entry, 6)?,
                index,
                address: u64_at(entry, 8)?,
                size: u64_at(entry, 16)?,
            })
        })
    }

    /// Returns the section that contains `symbol`.
    pub(super) fn section_of(self, symbol: &Symbol<'_>) -> Option<Section<'f>> {
        (symbol.section < RESERVED).then(|| self.section_at(symbol.section.into()))?
    }

    /// Returns the build id, which the linker has stored as a note.
    pub(super) fn build_id(self) -> Option<&'f [u8]> {
        self.sections().filter(|section| section.kind == NOTES).find_map(|section| {
            let mut rest = section.data;
            loop {
                let (name, id, kind) = (u32_at(rest, 0)?, u32_at(rest, 4)?, u32_at(rest, 8)?);
                // Both are padded to four bytes.
                let name_end = 12_usize.checked_add(name.checked_next_multiple_of(4)? as usize)?;
                let end = name_end.checked_add(id.checked_next_multiple_of(4)? as usize)?;
                if kind == BUILD_ID && rest.get(12..)?.starts_with(b"GNU\0") {
                    return rest.get(name_end..name_end.checked_add(id as usize)?);
                }
                rest = rest.get(end..)?;
            }
        })
    }
}

impl<'f> Section<'f> {
    pub(super) fn is_compressed(&self) -> bool {
        self.flags & COMPRESSED != 0 || self.is_old_compressed()
    }

    /// An older form of compression is marked by the name and the first bytes only.
    fn is_old_compressed(&self) -> bool {
        self.name.starts_with(".zdebug_") && self.data.starts_with(b"ZLIB")
    }

    /// Returns the content of a compressed section, if its compression is known.
    #[cfg(any(test, feature = "compressed-debug-info"))]
    pub(super) fn decompressed(&self) -> Option<Vec<u8>> {
        use object::{CompressedData, CompressionFormat};

        let (format, size, begin) = if self.is_old_compressed() {
            (CompressionFormat::Zlib, array(self.data, 4).map(u64::from_be_bytes)?, 12)
        } else {
            let format = match u32_at(self.data, 0)? {
                1 => CompressionFormat::Zlib,
                2 => CompressionFormat::Zstandard,
                _ => return None,
            };
            (format, u64_at(self.data, 8)?, 24)
        };
        let packed = self.data.get(begin..)?;
        if size / INFLATION_MAX > packed.len() as u64 {
            return None;
        }
        let data = CompressedData { format, data: packed, uncompressed_size: size };
        Some(data.decompress().ok()?.into_owned())
    }

    #[cfg(not(any(test, feature = "compressed-debug-info")))]
    pub(super) fn decompressed(&self) -> Option<Vec<u8>> {
        None
    }
}

impl<'f> Symbol<'f> {
    /// Returns its name, unless it is empty or damaged.
    pub(super) fn name(&self) -> Option<&'f str> {
        text(self.names, self.name).filter(|name| !name.is_empty())
    }

    /// Returns whether it is a function or a variable. `None`: it may be one.
    pub(super) fn is_code_or_data(&self) -> Option<bool> {
        match self.info & 0xf {
            UNKNOWN => None,
            kind => Some(matches!(kind, VARIABLE | FUNCTION)),
        }
    }

    /// Returns whether it is in this file, and is not only a mark for tools.
    pub(super) fn is_definition(&self) -> bool {
        let is_here = self.section != 0 && (self.section < RESERVED || self.section == ELSEWHERE);
        // On aarch64, `$x` and `$d` mark where code and data begin.
        let is_mark = || self.info == 0 && self.name().is_some_and(|name| name.starts_with('$'));
        is_here && !is_mark()
    }

    /// Returns a number that is larger for symbols that are visible in more places.
    pub(super) fn reach(&self) -> u8 {
        const HIDDEN: u8 = 2;
        match self.info >> 4 {
            _ if self.section == 0 => 0,
            // Local, global and weak.
            0 => 1,
            1 | 2 if self.visibility == HIDDEN => 2,
            1 | 2 => 3,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSection, ObjectSymbol};

    use super::*;

    fn own_program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn sections_and_symbols_are_those_that_object_finds() {
        let file = own_program();
        let (elf, other) = (Elf::parse(&file).unwrap(), object::File::parse(&file[..]).unwrap());
        let mut sections = 0;
        for section in other.sections() {
            let own = elf.section(section.name().unwrap()).unwrap();
            assert_eq!((own.address, own.size), (section.address(), section.size()), "{}", own.name);
            assert_eq!(own.data, section.data().unwrap(), "{}", own.name);
            sections += 1;
        }
        let mut symbols = elf.symbols().skip(1);
        for symbol in other.symbols() {
            let own = symbols.next().unwrap();
            assert_eq!((own.index, own.address, own.size), (symbol.index().0, symbol.address(), symbol.size()));
            assert_eq!(own.name().unwrap_or_default(), symbol.name().unwrap());
            let is_named = matches!(own.info & 0xf, UNKNOWN | VARIABLE | FUNCTION);
            assert!(!is_named || own.is_definition() == symbol.is_definition(), "{}", symbol.name().unwrap());
        }
        assert!(symbols.next().is_none() && sections > 10);
        assert_eq!(elf.build_id(), other.build_id().unwrap());
    }

    #[test]
    fn a_damaged_file_is_an_error_or_lacks_parts() {
        let file = own_program();
        assert!(Elf::parse(b"").is_err() && Elf::parse(b"\x7fELF\x01\x01").is_err());
        let headers = u64_at(&file, 0x28).unwrap() as usize;
        for len in (0..64).chain([headers, headers + 100, file.len() - 1]) {
            assert!(Elf::parse(&file[..len]).is_err(), "{len} bytes");
        }
        // Every field of every header becomes the largest number.
        for field in (0..SECTION_BYTES).step_by(4) {
            let mut file = file.clone();
            for header in file[headers..].chunks_exact_mut(SECTION_BYTES) {
                header[field..field + 4].fill(0xff);
            }
            let elf = Elf::parse(&file).unwrap();
            let read = elf.sections().map(|section| section.data.len()).sum::<usize>() + elf.symbols().count();
            assert!(read < 100 * file.len());
            let _ = elf.build_id();
        }
    }
}
