//! Lists the code that is loaded into this program (its executable, its libraries, and the vDSO of
//! the kernel), and finds the unwind tables of each.
//!
//! A module is one such file. [`unwind`](super::unwind) reads the tables, and
//! [`symbols`](super::symbols) opens the files.
//!
//! # Shape
//!
//! A [`Module`] for every entry of the loader's list, sorted by address. [`Modules::refresh`]
//! checks the list at each incident, and reads it only if something was loaded or unloaded since.
//!
//! # Invariant
//!
//! *Still there*: only memory that is never unloaded is read in place: the tables of the
//! executable, and the code of the executable, of the C library and of the vDSO. Tables of
//! libraries are copied while the loader's lock is held, so unloading a library while a stack is
//! unwound is harmless. They are small (200 KiB for the C library).
//!
//! # Limit
//!
//! `refresh` waits for the loader's lock. If a thread is stuck while it holds that lock (in
//! its callback of `dl_iterate_phdr`), the resolver blocks as well.
//!
//! Sources: the Linux Standard Base defines the layout of `.eh_frame_hdr`; the tables are found
//! through the program headers, as in libgcc.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr, Pointer, UnwindSection};

/// The path of this file in the folder of Volt's crates.
pub(super) const OWN_FILE: &str = "stacks/src/reader/modules.rs";

/// Number of code bytes that are read together.
const INSTRUCTIONS_LEN: usize = 9;

/// The bytes of a table: in place for the program, copied for a library.
#[derive(Clone)]
pub(super) enum Table {
    InPlace(&'static [u8]),
    Copied(Arc<[u8]>),
}

impl Deref for Table {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Table::InPlace(bytes) => bytes,
            Table::Copied(bytes) => bytes,
        }
    }
}

/// A table and its address relative to the module.
#[derive(Clone)]
pub(super) struct Section {
    pub(super) address: u64,
    pub(super) bytes: Table,
}

impl Section {
    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes.len() as u64
    }
}

/// A program or library that is loaded.
#[derive(Clone)]
pub(super) struct Module {
    /// The path of the file; empty if there is none.
    pub(super) file: PathBuf,
    /// The name to display: the file name without its folder.
    pub(super) name: String,
    /// The address range of the module.
    pub(super) range: Range<u64>,
    /// The address ranges of its code.
    code: Vec<Range<u64>>,
    /// Whether it is never unloaded: the program, the C library and the vDSO.
    is_permanent: bool,
    /// The number to subtract from an address for the address relative to the file.
    pub(super) bias: u64,
    /// Whether it contains the runtime, and with it the application's own code.
    pub(super) is_home: bool,
    pub(super) eh_frame_hdr: Option<Section>,
    pub(super) eh_frame: Option<Section>,
}

impl Module {
    pub(super) fn has_code_at(&self, address: u64) -> bool {
        self.code.iter().any(|code| code.contains(&address))
    }

    /// Returns the instructions at `address`, if that is code of a permanent module.
    pub(super) fn instructions(&self, address: u64) -> Option<[u8; INSTRUCTIONS_LEN]> {
        let end = address.checked_add(INSTRUCTIONS_LEN as u64)?;
        let is_code = self.code.iter().any(|code| code.start <= address && end <= code.end);
        if !self.is_permanent || !is_code {
            return None;
        }
        let at = std::ptr::with_exposed_provenance::<[u8; INSTRUCTIONS_LEN]>(usize::try_from(address).ok()?);
        // SAFETY: *Still there*: the address is inside a readable segment of a module that is never
        // unloaded.
        Some(unsafe { at.read() })
    }

    /// Returns the range of the function around `address`, if there are unwind tables for it.
    pub(super) fn function(&self, address: u64) -> Option<Range<u64>> {
        let (header, frames) = (self.eh_frame_hdr.as_ref()?, self.eh_frame.as_ref()?);
        let bases = bases(header).set_eh_frame(frames.address);
        let mut eh_frame = EhFrame::new(&frames.bytes, LittleEndian);
        eh_frame.set_address_size(8);
        let lookup = address.checked_sub(self.bias)?;
        let entry =
            parse(header, &bases)?.table()?.fde_for_address(&eh_frame, &bases, lookup, EhFrame::cie_from_offset);
        let entry = entry.ok()?;
        let start = self.bias.wrapping_add(entry.initial_address());
        Some(start..start.saturating_add(entry.len()))
    }
}

#[cfg(fuzzing)]
impl Module {
    /// Creates a module of 1 MiB at 1 MiB, with these tables behind its code.
    pub(super) fn fuzzed(header: &[u8], frames: &[u8]) -> Self {
        const START: u64 = 0x10_0000;
        let section = |address, bytes: &[u8]| Some(Section { address, bytes: Table::Copied(bytes.into()) });
        Self {
            file: PathBuf::new(),
            name: "fuzz".into(),
            range: START..2 * START,
            code: vec![START..START + 0x8_0000],
            is_permanent: false,
            bias: START,
            is_home: true,
            eh_frame_hdr: section(0x9_0000, header),
            eh_frame: section(0xa_0000, frames),
        }
    }
}

fn bases(header: &Section) -> BaseAddresses {
    BaseAddresses::default().set_eh_frame_hdr(header.address)
}

fn parse<'s>(header: &'s Section, bases: &BaseAddresses) -> Option<ParsedEhFrameHdr<EndianSlice<'s, LittleEndian>>> {
    EhFrameHdr::new(&header.bytes, LittleEndian).parse(bases, 8).ok()
}

/// All loaded modules.
#[derive(Default)]
pub(super) struct Modules {
    /// The loader's counts of loaded and unloaded modules when the list was last read.
    version: Option<(u64, u64)>,
    list: Vec<Module>,
}

impl Modules {
    /// Updates the list. Returns whether it has changed.
    pub(super) fn refresh(&mut self) -> bool {
        let mut walk = Walk { known: self.version, version: None, found: Vec::new() };
        // SAFETY: the callback has the required type, and receives `walk`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut walk).cast()) };
        if walk.version == self.version {
            return false;
        }
        self.version = walk.version;
        self.list = walk.found;
        self.list.sort_by_key(|module| module.range.start);
        true
    }

    #[cfg(fuzzing)]
    pub(super) fn of(module: Module) -> Self {
        Self { version: None, list: vec![module] }
    }

    pub(super) fn list(&self) -> &[Module] {
        &self.list
    }

    /// Returns the module that contains `address`.
    pub(super) fn find(&self, address: u64) -> Option<&Module> {
        let after = self.list.partition_point(|module| module.range.start <= address);
        self.list.get(after.checked_sub(1)?).filter(|module| module.range.contains(&address))
    }
}

/// Returns the address of some code in this file.
pub(super) fn own_code() -> u64 {
    let own: unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int = add_module;
    own as usize as u64
}

/// One pass through the loader's list.
struct Walk {
    known: Option<(u64, u64)>,
    version: Option<(u64, u64)>,
    found: Vec<Module>,
}

/// Adds a module to the walk. The walk ends when this function returns a value other than 0.
unsafe extern "C" fn add_module(info: *mut libc::dl_phdr_info, _size: usize, walk: *mut c_void) -> c_int {
    // SAFETY: `refresh` passed it, and does not access it during the walk.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the loader guarantees that it is valid during this call.
    let info = unsafe { &*info };
    walk.version = Some((info.dlpi_adds, info.dlpi_subs));
    if walk.version == walk.known {
        return 1;
    }
    // The program itself comes first.
    let module = read(info, walk.found.is_empty());
    walk.found.extend(module);
    0
}

/// Reads the loader's entry for one module.
fn read(info: &libc::dl_phdr_info, is_program: bool) -> Option<Module> {
    let headers: &[libc::Elf64_Phdr] = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: there are that many headers, while the loader holds its lock.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    };
    let segments = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = segments().map(|segment| segment.p_vaddr).min()?;
    let end = segments().map(|segment| segment.p_vaddr.saturating_add(segment.p_memsz)).max()?;
    let bias = info.dlpi_addr;
    let range = bias.wrapping_add(start)..bias.wrapping_add(end);

    // The bytes from `address` on that the file provides, up to the end of the segment.
    let section = |address: u64, len: Option<u64>| {
        let segment = segments().find(|segment| {
            segment.p_flags & libc::PF_R != 0
                && (segment.p_vaddr..segment.p_vaddr + segment.p_filesz).contains(&address)
        })?;
        let left = segment.p_vaddr + segment.p_filesz - address;
        let len = usize::try_from(len.unwrap_or(left).min(left)).ok()?;
        let from = std::ptr::with_exposed_provenance::<u8>(usize::try_from(bias.wrapping_add(address)).ok()?);
        // SAFETY: inside a segment that is mapped readable: while the loader holds its lock, or
        // forever if it is the program's.
        let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(from, len) };
        // *Still there*
        let bytes = if is_program { Table::InPlace(bytes) } else { Table::Copied(bytes.into()) };
        Some(Section { address, bytes })
    };
    let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    let eh_frame_hdr = header.and_then(|header| section(header.p_vaddr, Some(header.p_memsz)));
    let eh_frame = eh_frame_hdr.as_ref().and_then(|header| {
        let Pointer::Direct(address) = parse(header, &bases(header))?.eh_frame_ptr() else { return None };
        section(address, None)
    });

    let code = segments().filter(|segment| segment.p_flags & (libc::PF_R | libc::PF_X) == libc::PF_R | libc::PF_X);
    let code = code.map(|segment| {
        let start = bias.wrapping_add(segment.p_vaddr);
        start..start.saturating_add(segment.p_filesz)
    });
    let code = code.collect();
    let is_permanent = is_program || range.contains(&c_library()) || range.contains(&kernel_part());

    let (file, name) = if is_program { program() } else { library(info) };
    let is_home = range.contains(&own_code());
    Some(Module { file, name, range, code, is_permanent, bias, is_home, eh_frame_hdr, eh_frame })
}

/// Returns an address in the C library.
fn c_library() -> u64 {
    let function: unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int = libc::sigaction;
    function as usize as u64
}

/// Returns the address of the vDSO, which the kernel maps into every process, or 0 if it does not.
fn kernel_part() -> u64 {
    // SAFETY: always sound; reads a value that the kernel passed to this process.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }
}

/// Returns the program's file and name.
fn program() -> (PathBuf, String) {
    const LINK: &str = "/proc/self/exe";
    let Ok(target) = std::fs::read_link(LINK) else { return (LINK.into(), "program".into()) };
    let name = file_name(&target);
    match name.strip_suffix(" (deleted)") {
        // The link still opens the file that was deleted or replaced by a newer one.
        Some(name) if !target.exists() => (LINK.into(), name.into()),
        _ => (target, name),
    }
}

fn library(info: &libc::dl_phdr_info) -> (PathBuf, String) {
    if info.dlpi_name.is_null() {
        return Default::default();
    }
    // SAFETY: the loader's string, valid during this call.
    let file = unsafe { CStr::from_ptr(info.dlpi_name) };
    let file = PathBuf::from(OsStr::from_bytes(file.to_bytes()));
    let name = file_name(&file);
    (file, name)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
