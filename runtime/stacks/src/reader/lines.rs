//! What a file's debug information says of a few addresses, without reading the rest of it.
//!
//! Shape: [`Lines`] maps the file; [`find`](Lines::find) is asked for all unknown addresses of a
//! stack at once. Of the symbol table it goes through the numbers; of the debug information it
//! reads the units that the addresses are in ([`units`](super::units)). Nothing is kept between two
//! questions.
//!
//! Who calls: [`Resolver`](super::symbols::Resolver), which keeps what it is told.
//!
//! Invariant. *All or nothing*: what is said of an address is what a reader of the whole file would
//! say. An address that the index does not have, a unit whose information is in another file, a
//! section that is compressed: then `addr2line` reads the whole file, and stays.
//!
//! Cost: 2 to 4 ms for a stack of a program of 26 MB, of which some 250 KB stay in memory while it
//! is read. `addr2line` goes through the heads of all units first: 12 ms and 9 MB of the same
//! program, and as much more as a program is larger. That is what it takes to say which line holds
//! a worker, at the time when the processors are wanted most.
//!
//! Rejected: reading all of it before anything is stuck: a program that never stalls would pay too.
//! Keeping the units that were read: the answers are kept already, and are smaller.

use std::cell::OnceCell;
use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, SymbolKind, SymbolScope};

use super::units::{Elf, Place, Sections};

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// The function that it is in, mangled.
    pub(super) symbol: Option<String>,
    /// The calls there, innermost first: those that were inlined, and last the function itself.
    /// Empty without debug information.
    pub(super) places: Vec<Place>,
}

/// See the header of this file.
pub(super) struct Lines {
    path: PathBuf,
    map: Mmap,
    /// The whole file, if it had to be read; `None` inside = it cannot be.
    whole: OnceCell<Option<Box<Loader>>>,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let open = || -> Result<Mmap, Box<dyn std::error::Error>> {
            let file = File::open(path)?;
            // SAFETY: a file that runs is not written to (ETXTBSY), and a library is replaced, not
            // changed: whoever changes one in place breaks the process that runs it in any case.
            let map = unsafe { Mmap::map(&file) }?;
            Elf::parse(&*map)?;
            Ok(map)
        };
        let map = open().map_err(|error| error.to_string())?;
        Ok(Self { path: path.to_owned(), map, whole: OnceCell::new() })
    }

    /// What is known of each of these addresses, as the file counts them.
    pub(super) fn find(&self, addresses: &[u64]) -> Vec<Found> {
        let mut found = vec![Found::default(); addresses.len()];
        let Ok(elf) = Elf::parse(&*self.map) else { return found };
        let symbols = symbols(&elf, addresses);
        let places = match Sections::of(&elf, addresses) {
            Sections::None => vec![Some(Vec::new()); addresses.len()],
            Sections::Plain(index) => index.places(),
            Sections::Packed => vec![None; addresses.len()],
        };
        for (at, (symbol, places)) in symbols.into_iter().zip(places).enumerate() {
            let places = places.unwrap_or_else(|| self.places_by_all(addresses[at]));
            found[at] = Found { symbol, places };
        }
        found
    }

    /// Whether the whole file was read.
    #[cfg(test)]
    pub(super) fn is_read(&self) -> bool {
        self.whole.get().is_some()
    }

    /// By a reader of the whole file.
    pub(super) fn places_by_all(&self, address: u64) -> Vec<Place> {
        let whole = self.whole.get_or_init(|| Loader::new(&self.path).ok().map(Box::new));
        let mut frames = whole.as_ref().and_then(|whole| whole.find_frames(address).ok());
        let mut places = Vec::new();
        while let Some(frame) = frames.as_mut().and_then(|frames| frames.next().ok().flatten()) {
            let function = frame.function.and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let (file, line) = frame.location.map_or((None, None), |location| (location.file, location.line));
            places.push(Place { function, file: file.map(str::to_owned), line });
        }
        places
    }
}

/// The function that each address is in, by the symbol table; by that of the dynamic linker, if
/// there is no other.
fn symbols(elf: &Elf<'_>, addresses: &[u64]) -> Vec<Option<String>> {
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|at| addresses[*at]);
    // For each address, in order, the best of the symbols that begin between the address before and
    // it.
    let mut best = vec![None; addresses.len()];
    for symbol in elf.symbol_table().or_else(|| elf.dynamic_symbol_table()).iter().flat_map(|table| table.symbols()) {
        let begin = symbol.address();
        let Some(best) = best.get_mut(order.partition_point(|at| addresses[*at] < begin)) else { continue };
        // Of two that begin at the same place: one of a kind and a size, that more can see, that
        // comes later.
        let kind = match symbol.kind() {
            SymbolKind::Text | SymbolKind::Data => true,
            SymbolKind::Unknown => false,
            _ => continue,
        };
        let rank = (begin, kind, symbol.size() > 0, reach(symbol.scope()), symbol.index().0);
        let is_better = best.as_ref().is_none_or(|(best, _)| *best < rank);
        if is_better && symbol.is_definition() && symbol.name().is_ok_and(|name| !name.is_empty()) {
            *best = Some((rank, symbol));
        }
    }
    let mut names = vec![None; addresses.len()];
    let mut last = None;
    for (at, best) in order.into_iter().zip(best) {
        last = best.or(last);
        let Some((_, symbol)) = &last else { continue };
        // Of no size is what was written in assembly: it lasts until the next, or to the end of its
        // section.
        let section = || elf.section_by_index(symbol.section_index()?).ok();
        let end = match symbol.size() {
            0 => section().map_or(0, |section| section.address().saturating_add(section.size())),
            size => symbol.address().saturating_add(size),
        };
        names[at] = symbol.name().ok().filter(|_| addresses[at] < end).map(str::to_owned);
    }
    names
}

fn reach(scope: SymbolScope) -> u8 {
    match scope {
        SymbolScope::Unknown => 0,
        SymbolScope::Compilation => 1,
        SymbolScope::Linkage => 2,
        SymbolScope::Dynamic => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::modules::{Modules, own_code};

    /// Odd, so that a step is no multiple of what functions are aligned to. In a release build ten
    /// times as many take as long.
    const PROBES: u64 = if cfg!(debug_assertions) { 301 } else { 3_001 };

    /// Addresses all over the code of this program, and what it is.
    fn own_program() -> (Lines, Vec<u64>) {
        let mut modules = Modules::default();
        assert!(modules.refresh());
        let module = modules.find(own_code()).unwrap();
        let lines = Lines::open(&module.file).unwrap();
        let elf = Elf::parse(&*lines.map).unwrap();
        let text = elf.section_by_name(".text").unwrap();
        let (begin, end) = (text.address(), text.address() + text.size());
        let step = (text.size() / PROBES).max(1) as usize;
        (lines, (begin..end).step_by(step).collect())
    }

    #[test]
    fn a_few_units_say_of_an_address_what_the_whole_file_says() {
        let (lines, addresses) = own_program();
        let loader = Loader::new(&lines.path).unwrap();
        let (mut named, mut inlined) = (0, 0);
        for some in addresses.chunks(20) {
            for (address, found) in some.iter().zip(lines.find(some)) {
                assert_eq!(found.places, lines.places_by_all(*address), "0x{address:x}");
                assert_eq!(found.symbol.as_deref(), loader.find_symbol(*address), "0x{address:x}");
                // With line tables only, a function into which nothing was inlined has no name but
                // its symbol.
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
    fn of_what_the_runtime_is_made_of_no_whole_file_is_read() {
        let (lines, _) = own_program();
        let mut modules = Modules::default();
        modules.refresh();
        let own = own_code() - modules.find(own_code()).unwrap().bias;
        let found = lines.find(&[own]).remove(0);
        assert!(found.places[0].file.as_ref().unwrap().ends_with("reader/modules.rs"), "{found:?}");
        assert!(!lines.is_read());
        // What is in no unit is asked for everywhere.
        assert_eq!(lines.find(&[u64::MAX / 2]).remove(0), Found::default());
        assert!(lines.is_read());
    }
}
