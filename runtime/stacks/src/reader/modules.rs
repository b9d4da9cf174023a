//! What code is loaded into this process: the program, its libraries, the kernel's; and where each
//! keeps its unwind tables.
//!
//! Shape: a [`Module`] for every entry of the loader's list, sorted by address. The list is asked
//! for at each incident, and gone through only if something was loaded or unloaded since.
//!
//! Who writes: [`Modules::refresh`]. Who reads: [`unwind`](super::unwind) and
//! [`symbols`](super::symbols).
//!
//! Invariant: *Still there*: tables and code of the program itself are read where they are, since
//! it is never unloaded. Tables of libraries are copied while the loader's lock is held, so that a
//! library that is unloaded in the midst of unwinding does no harm. They are small (200 KiB the C
//! library's).
//!
//! Bound: the loader's lock is waited for; a thread that is stuck while it holds it (in a callback
//! of its own `dl_iterate_phdr`) holds the requester too.
//!
//! Source: the layout of `.eh_frame_hdr` is the Linux Standard Base's; the tables are found through
//! the program headers, as libgcc does.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr, Pointer, UnwindSection,
};

/// This file, in the folder of Volt's crates.
pub(super) const OWN_FILE: &str = "stacks/src/reader/modules.rs";

/// Bytes of code that are read together.
const INSTRUCTIONS_LEN: usize = 9;

/// Bytes of a table: of the program, in place; of a library, copied.
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

/// A table, and where it is by the module's own count.
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
    /// The file, as a name that can be opened; empty if there is none.
    pub(super) file: PathBuf,
    /// What to call it: the file's name without its folder.
    pub(super) name: String,
    /// Where it is.
    pub(super) range: Range<u64>,
    /// Where its code is.
    code: Vec<Range<u64>>,
    /// Whether it is never unloaded: the program, the C library, the kernel's part.
    is_permanent: bool,
    /// What to take off an address to get what the file calls it.
    pub(super) bias: u64,
    /// Whether the runtime, and with it the application's own code, is in it.
    pub(super) is_home: bool,
    pub(super) eh_frame_hdr: Option<Section>,
    pub(super) eh_frame: Option<Section>,
}

impl Module {
    pub(super) fn has_code_at(&self, address: u64) -> bool {
        self.code.iter().any(|code| code.contains(&address))
    }

    /// The instructions at `address`, if that is code that stays where it is.
    pub(super) fn instructions(&self, address: u64) -> Option<[u8; INSTRUCTIONS_LEN]> {
        let end = address.checked_add(INSTRUCTIONS_LEN as u64)?;
        let is_code = self.code.iter().any(|code| code.start <= address && end <= code.end);
        if !self.is_permanent || !is_code {
            return None;
        }
        let at = std::ptr::with_exposed_provenance::<[u8; INSTRUCTIONS_LEN]>(usize::try_from(address).ok()?);
        // SAFETY: *Still there*: inside a segment that can be read, of a module that is never
        // unloaded.
        Some(unsafe { at.read() })
    }

    /// Where the function around `address` is, if there are unwind tables for it.
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

fn bases(header: &Section) -> BaseAddresses {
    BaseAddresses::default().set_eh_frame_hdr(header.address)
}

fn parse<'s>(header: &'s Section, bases: &BaseAddresses) -> Option<ParsedEhFrameHdr<EndianSlice<'s, LittleEndian>>> {
    EhFrameHdr::new(&header.bytes, LittleEndian).parse(bases, 8).ok()
}

/// All that is loaded.
#[derive(Default)]
pub(super) struct Modules {
    /// How many modules were ever loaded and unloaded, when the list was gone through.
    version: Option<(u64, u64)>,
    list: Vec<Module>,
}

impl Modules {
    /// Brings the list up to date. Whether it had to be changed.
    pub(super) fn refresh(&mut self) -> bool {
        let mut walk = Walk { known: self.version, version: None, found: Vec::new() };
        // SAFETY: the callback is of the type asked for, and is given `walk`, which outlives the
        // call.
        unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut walk).cast()) };
        if walk.version == self.version {
            return false;
        }
        self.version = walk.version;
        self.list = walk.found;
        self.list.sort_by_key(|module| module.range.start);
        true
    }

    pub(super) fn list(&self) -> &[Module] {
        &self.list
    }

    /// The module around `address`.
    pub(super) fn find(&self, address: u64) -> Option<&Module> {
        let after = self.list.partition_point(|module| module.range.start <= address);
        self.list.get(after.checked_sub(1)?).filter(|module| module.range.contains(&address))
    }
}

/// The address of some code in this file.
pub(super) fn own_code() -> u64 {
    let own: unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int = add_module;
    own as usize as u64
}

/// One walk through the loader's list.
struct Walk {
    known: Option<(u64, u64)>,
    version: Option<(u64, u64)>,
    found: Vec<Module>,
}

/// The walk ends when this returns something else than 0.
unsafe extern "C" fn add_module(info: *mut libc::dl_phdr_info, _size: usize, walk: *mut c_void) -> c_int {
    // SAFETY: `refresh` gave it, and does not touch it meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the loader's, for the length of this call.
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

/// What the loader says of one module.
fn read(info: &libc::dl_phdr_info, is_program: bool) -> Option<Module> {
    let headers: &[libc::Elf64_Phdr] = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: so many headers are there, while the loader holds its lock.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    };
    let segments = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = segments().map(|segment| segment.p_vaddr).min()?;
    let end = segments().map(|segment| segment.p_vaddr.saturating_add(segment.p_memsz)).max()?;
    let bias = info.dlpi_addr;
    let range = bias.wrapping_add(start)..bias.wrapping_add(end);

    // The part of the segment around `address` that comes from the file, from there on.
    let section = |address: u64, len: Option<u64>| {
        let segment = segments().find(|segment| {
            segment.p_flags & libc::PF_R != 0
                && (segment.p_vaddr..segment.p_vaddr + segment.p_filesz).contains(&address)
        })?;
        let left = segment.p_vaddr + segment.p_filesz - address;
        let len = usize::try_from(len.unwrap_or(left).min(left)).ok()?;
        let from = std::ptr::with_exposed_provenance::<u8>(usize::try_from(bias.wrapping_add(address)).ok()?);
        // SAFETY: inside a segment that is mapped readable: while the loader holds its lock, or,
        // the program's, for ever.
        let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(from, len) };
        // Still there
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

/// An address in the C library.
fn c_library() -> u64 {
    let function: unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int = libc::sigaction;
    function as usize as u64
}

/// The address of what the kernel maps into every process, 0 if it does not.
fn kernel_part() -> u64 {
    // SAFETY: reads what the kernel told this process at its start.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }
}

/// The program's file and name.
fn program() -> (PathBuf, String) {
    const LINK: &str = "/proc/self/exe";
    let Ok(target) = std::fs::read_link(LINK) else { return (LINK.into(), "program".into()) };
    let name = file_name(&target);
    match name.strip_suffix(" (deleted)") {
        // The link still opens what was deleted, or replaced by a newer one.
        Some(name) if !target.exists() => (LINK.into(), name.into()),
        _ => (target, name),
    }
}

fn library(info: &libc::dl_phdr_info) -> (PathBuf, String) {
    if info.dlpi_name.is_null() {
        return Default::default();
    }
    // SAFETY: a string of the loader's, for the length of this call.
    let file = unsafe { CStr::from_ptr(info.dlpi_name) };
    let file = PathBuf::from(OsStr::from_bytes(file.to_bytes()));
    let name = file_name(&file);
    (file, name)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
