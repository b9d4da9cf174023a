//! Looks up a few addresses in a file's debug information, without reading all of it.
//!
//! [`Resolver`](super::symbols::Resolver) uses this module and caches the results. Debug
//! information is organized in units, usually one or several per crate. Reading only the units that
//! contain an address is much faster than reading the whole file.
//!
//! # Shape
//!
//! [`Lines`] maps the file. [`find`](Lines::find) gets all unknown addresses of a stack together.
//! It scans the symbol table, and reads the units of the debug information that contain the
//! addresses ([`units`](super::units)). Only sections that had to be decompressed are kept for the
//! next call.
//!
//! # Invariant
//!
//! *All or nothing*: the result for an address is the same as that of a reader of the whole file.
//! A test compares it with `addr2line`'s.
//!
//! # Cost
//!
//! 2 to 4 ms for a stack of a program of 26 MB; some 250 KB are in memory meanwhile. The pages of
//! the file that were read leave the program's resident memory afterwards. A reader of the whole
//! file first reads the headers of all units: 12 ms and 9 MB for the same program, and
//! proportionally more for larger ones. This is the cost of naming the line that blocks a worker,
//! at a time when processors are scarce.
//!
//! Compressed sections are decompressed whole, and stay in memory while the file is mapped.
//!
//! # Rejected alternatives
//!
//! * Reading everything in advance: a program that never stalls would pay too.
//! * Keeping the units: the results are cached already, and are smaller.
//! * The crate `addr2line` for the rare cases (split or compressed sections, units that the index
//!   lacks): with the crates that it needs, it took an eighth of the build of a small program.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use super::elf::Elf;
use super::map::Map;
use super::sections::{self, Unpacked};
use super::units::{Index, Place};

/// The information on one address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// The mangled name of the function that contains it.
    pub(super) symbol: Option<String>,
    /// The calls at this address, innermost first: inlined calls, and last the function itself.
    /// Empty without debug information.
    pub(super) places: Vec<Place>,
}

/// See the module documentation.
pub(super) struct Lines {
    path: PathBuf,
    map: Map,
    unpacked: OnceCell<Unpacked>,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let open = || -> Result<Map, Box<dyn std::error::Error>> {
            let file = sections::open(path)?;
            // SAFETY: a running program's file is not written to (ETXTBSY), and a library is
            // replaced rather than modified. Modifying one in place would break the running program
            // in any case.
            let map = unsafe { Map::of(&file) }?;
            Elf::parse(&map)?;
            Ok(map)
        };
        let map = open().map_err(|error| error.to_string())?;
        Ok(Self { path: path.to_owned(), map, unpacked: OnceCell::new() })
    }

    /// Returns the information on each of these addresses, which are relative to the file.
    pub(super) fn find(&self, addresses: &[u64]) -> Vec<Found> {
        let mut found = vec![Found::default(); addresses.len()];
        let Ok(elf) = Elf::parse(&self.map) else { return found };
        let symbols = symbols(&elf, addresses);
        // The symbol table is not needed for the rest.
        self.map.release_pages();
        let unpacked = self.unpacked.get_or_init(|| Unpacked::of(&elf));
        let places = Index::of(&self.path, &elf, unpacked, addresses).map(|index| index.places());
        self.map.release_pages();
        let mut places = places.unwrap_or_default().into_iter();
        for (found, symbol) in found.iter_mut().zip(symbols) {
            *found = Found { symbol, places: places.next().unwrap_or_default() };
        }
        found
    }

    /// Returns whether a part of the debug information is compressed and cannot be read.
    pub(super) fn is_incomplete(&self) -> bool {
        self.unpacked.get().is_some_and(|unpacked| unpacked.is_incomplete)
    }
}

/// Returns the function that contains each address, by the symbol table or, if there is none, by
/// the dynamic linker's.
fn symbols(elf: &Elf<'_>, addresses: &[u64]) -> Vec<Option<String>> {
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|at| addresses[*at]);
    // For each address, in order: the best symbol that begins after the previous address and not
    // after this one.
    let mut best = vec![None; addresses.len()];
    for symbol in elf.symbols() {
        let begin = symbol.address;
        let Some(best) = best.get_mut(order.partition_point(|at| addresses[*at] < begin)) else { continue };
        // Among symbols that begin at the same address, prefer one with a known kind, then one with
        // a size, then the most visible one, then the later one.
        let kind = match symbol.is_code_or_data() {
            Some(true) => true,
            None => false,
            Some(false) => continue,
        };
        let rank = (begin, kind, symbol.size > 0, symbol.reach(), symbol.index);
        let is_better = best.as_ref().is_none_or(|(best, _)| *best < rank);
        if is_better && symbol.is_definition() && symbol.name().is_some() {
            *best = Some((rank, symbol));
        }
    }
    let mut names = vec![None; addresses.len()];
    let mut last = None;
    for (at, best) in order.into_iter().zip(best) {
        last = best.or(last);
        let Some((_, symbol)) = &last else { continue };
        // A symbol written in assembly has no size. It lasts until the next one, or to the end of
        // its section.
        let end = match symbol.size {
            0 => elf.section_of(symbol).map_or(0, |section| section.address.saturating_add(section.size)),
            size => symbol.address.saturating_add(size),
        };
        names[at] = symbol.name().filter(|_| addresses[at] < end).map(str::to_owned);
    }
    names
}

#[cfg(test)]
pub(super) mod tests {
    use addr2line::Loader;

    use super::*;
    use crate::reader::modules::{Modules, own_code};

    /// Odd, so that a step is not a multiple of the alignment of functions. In a release build ten
    /// times as many probes take the same time.
    const PROBES: u64 = if cfg!(debug_assertions) { 301 } else { 3_001 };

    /// Addresses throughout the code of this program, and its file.
    fn own_program() -> (Lines, Vec<u64>) {
        let mut modules = Modules::default();
        assert!(modules.refresh());
        let module = modules.find(own_code()).unwrap();
        let lines = Lines::open(&module.file).unwrap();
        let elf = Elf::parse(&lines.map).unwrap();
        let text = elf.section(".text").unwrap();
        let (begin, end) = (text.address, text.address + text.size);
        let step = (text.size / PROBES).max(1) as usize;
        (lines, (begin..end).step_by(step).collect())
    }

    /// Returns the places that `addr2line` finds at an address.
    pub(crate) fn places_by(loader: &Loader, address: u64) -> Vec<Place> {
        let mut frames = loader.find_frames(address).unwrap();
        let mut places = Vec::new();
        while let Some(frame) = frames.next().unwrap() {
            let function = frame.function.map(|function| function.raw_name().unwrap().into_owned());
            let (file, line) = frame.location.map_or((None, None), |location| (location.file, location.line));
            places.push(Place { function, file: file.map(str::to_owned), line });
        }
        places
    }

    #[test]
    fn a_few_units_give_the_same_line_as_the_whole_file() {
        let (lines, addresses) = own_program();
        let loader = Loader::new(&lines.path).unwrap();
        let (mut named, mut inlined) = (0, 0);
        for some in addresses.chunks(20) {
            for (address, found) in some.iter().zip(lines.find(some)) {
                assert_eq!(found.places, places_by(&loader, *address), "0x{address:x}");
                assert_eq!(found.symbol.as_deref(), loader.find_symbol(*address), "0x{address:x}");
                // With line tables only, a function without inlined calls has no name except its
                // symbol.
                let is_named = |place: &Place| place.function.is_some() || found.symbol.is_some();
                named += usize::from(found.places.iter().all(|place| is_named(place) && place.line.is_some()));
                inlined += usize::from(found.places.len() > 1);
            }
        }
        assert!(
            named > addresses.len() / 2 && inlined > addresses.len() / 10,
            "{named} {inlined} of {}",
            addresses.len()
        );
    }

    #[test]
    fn the_pages_of_the_file_leave_the_resident_memory() {
        let (lines, addresses) = own_program();
        let begin = format!("{:x}-", lines.map.as_ptr().addr());
        let resident = || -> u64 {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mapping = maps.lines().skip_while(|line| !line.starts_with(&begin));
            let rss = mapping.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
            rss.trim().strip_suffix(" kB").unwrap().parse().unwrap()
        };
        assert!(resident() > 0, "the header was read");
        assert!(lines.find(&addresses[..20]).iter().any(|found| !found.places.is_empty()));
        assert_eq!(resident(), 0, "KB are resident");
    }
}
