//! Finds the units of a file's debug information that contain given addresses, and reads them.
//!
//! A unit is the debug information of one compilation, in DWARF format. It consists of entries,
//! which form a tree: a function contains the calls that were inlined into it.
//! [`Lines`](super::lines::Lines) uses this module for one stack and drops everything afterwards.
//!
//! # Shape
//!
//! An [`Index`] is built for a few addresses. It scans `.debug_aranges`, where the linker lists the
//! address ranges of each unit, and keeps the units that claim one of the addresses. Such a unit is
//! then read once for all of its addresses, because it may be as large as the program. It is read
//! again if it contains the name of a function that another unit refers to.
//!
//! Some compilers leave their units out of `.debug_aranges`. An address that no listed unit covers
//! is looked for in the ranges that those units state themselves, one unit after another. That
//! takes some milliseconds, so it comes last.
//!
//! The functions of a unit may be in another file ([`split`]). Its lines are always here.
//!
//! Source: DWARF 5, sections 2.17 (ranges), 3.3.8 (inlined calls), 6.1.2 (the index), 6.2 (lines).

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path as FilePath;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, EntriesRaw, UnitOffset, UnitRef, UnitType};

use super::elf::Elf;
use super::sections::{Bytes, Unit, Unpacked};
use super::split;

type Value<'f> = AttributeValue<Bytes<'f>>;
/// Indexes of addresses, and the calls at each of them.
type Found = Vec<(usize, Vec<Place>)>;

/// A call, and the line in it that contains the address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Place {
    /// The function's name as the compiler wrote it, which may be mangled.
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// How many references to another entry are followed to find a name.
const REFERENCES_MAX: usize = 16;

/// The units that contain some addresses.
pub(super) struct Index<'f> {
    /// The file's path; files of split debug information are found from it.
    path: &'f FilePath,
    dwarf: Dwarf<Bytes<'f>>,
    addresses: Vec<u64>,
    /// Units, and the indexes of the addresses that each of them claims.
    claims: Vec<(DebugInfoOffset, Vec<usize>)>,
    /// The offsets of all listed units with code, in order.
    begins: Vec<DebugInfoOffset>,
    /// Units that were read.
    units: RefCell<HashMap<DebugInfoOffset, Rc<Unit<'f>>>>,
}

impl<'f> Index<'f> {
    /// Reads the index of the file at `path` for these addresses. Returns `None` if the file has no
    /// debug information.
    pub(super) fn of(path: &'f FilePath, elf: &Elf<'f>, unpacked: &'f Unpacked, addresses: &[u64]) -> Option<Self> {
        let dwarf = Dwarf::load(|id| unpacked.section(elf, Some(id.name()))).ok()?;
        dwarf.units().next().ok()??;
        let mut index = Self { addresses: addresses.to_vec(), ..Self::without_addresses(path, dwarf) };
        // If the index is truncated, the part that was read is still valid.
        let _is_whole = index.read();
        index.begins.sort_unstable_by_key(|begin| begin.0);
        index.begins.dedup();
        Some(index)
    }

    /// Returns an index that claims nothing.
    fn without_addresses(path: &'f FilePath, dwarf: Dwarf<Bytes<'f>>) -> Self {
        let (addresses, claims, begins) = (Vec::new(), Vec::new(), Vec::new());
        Self { path, dwarf, addresses, claims, begins, units: RefCell::default() }
    }

    fn read(&mut self) -> gimli::Result<()> {
        let mut sets = self.dwarf.debug_aranges.headers();
        while let Some(set) = sets.next()? {
            let unit = set.debug_info_offset();
            let mut entries = set.entries();
            while let Some(entry) = entries.next()? {
                let range = entry.range();
                if self.begins.last() != Some(&unit) && range.begin < range.end {
                    self.begins.push(unit);
                }
                for (at, address) in self.addresses.iter().enumerate() {
                    // Code that the linker discarded is at address 0.
                    if range.begin <= *address && *address < range.end && range.begin > 0 {
                        match self.claims.last_mut() {
                            Some((last, claimed)) if *last == unit => claimed.push(at),
                            _ => self.claims.push((unit, vec![at])),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the calls at each of the addresses; none if no unit covers it.
    pub(super) fn places(&self) -> Vec<Vec<Place>> {
        // If several units claim an address, the first one that covers it decides.
        let mut found = vec![None; self.addresses.len()];
        let add = |found: &mut Vec<Option<_>>, unit, claimed: &[usize]| {
            let places = self.find_in(unit, claimed).unwrap_or_default();
            places.into_iter().for_each(|(at, places)| _ = found[at].get_or_insert(places));
        };
        self.claims.iter().for_each(|(unit, claimed)| add(&mut found, *unit, claimed));
        let left: Vec<_> = (0..found.len()).filter(|at| found[*at].is_none()).collect();
        if !left.is_empty() {
            let mut claims = Vec::new();
            // If a header cannot be read, neither can those after it.
            let _is_whole = self.read_unlisted(&left, &mut claims);
            claims.iter().for_each(|(unit, claimed)| add(&mut found, *unit, claimed));
        }
        found.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Finds the units outside the index that may cover those of the addresses that are `left`.
    fn read_unlisted(&self, left: &[usize], claims: &mut Vec<(DebugInfoOffset, Vec<usize>)>) -> gimli::Result<()> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            let Some(begin) = header.debug_info_offset() else { continue };
            let has_code = matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_));
            if !has_code || self.begins.binary_search_by_key(&begin.0, |begin| begin.0).is_ok() {
                continue;
            }
            // One unit that cannot be read does not hide the others.
            let Ok(unit) = self.dwarf.unit(header) else { continue };
            let Ok(mut ranges) = self.dwarf.unit_ranges(&unit) else { continue };
            let (mut claimed, mut has_ranges) = (Vec::new(), false);
            while let Ok(Some(range)) = ranges.next() {
                has_ranges |= range.begin < range.end;
                let is_inside = |at: &usize| (range.begin..range.end).contains(&self.addresses[*at]);
                claimed.extend(left.iter().copied().filter(|at| range.begin > 0 && is_inside(at)));
            }
            // Only the lines of a unit without ranges show which addresses it covers.
            if !has_ranges && unit.line_program.is_some() {
                claimed = left.to_vec();
            }
            if !claimed.is_empty() {
                claims.push((begin, claimed));
            }
        }
        Ok(())
    }

    /// Returns the calls at those of the claimed addresses that the unit covers.
    fn find_in(&self, begin: DebugInfoOffset, claimed: &[usize]) -> gimli::Result<Found> {
        let unit = self.unit(begin)?;
        let unit = UnitRef::new(&self.dwarf, &unit);
        let mut paths: Vec<_> = claimed.iter().map(|at| Path::to(*at, self.addresses[*at])).collect();
        paths.sort_unstable_by_key(|path| path.address);
        if let Some(program) = &unit.line_program {
            find_rows(program.clone(), &mut paths)?;
        }
        match unit.dwo_id {
            Some(id) => {
                let read = split::read(self.path, unit, id, |dwarf, unit| {
                    let other = Index::without_addresses(self.path, dwarf);
                    other.find_calls(UnitRef::new(&other.dwarf, unit), &mut paths)
                });
                // A file that was cut off or overwritten costs the inlined calls, not the lines.
                let _read_as_far_as_possible = read;
            }
            None => self.find_calls(unit, &mut paths)?,
        }
        Ok(paths.into_iter().filter_map(|path| Some((path.at, path.places(unit)?))).collect())
    }

    fn unit(&self, begin: DebugInfoOffset) -> gimli::Result<Rc<Unit<'f>>> {
        if let Some(unit) = self.units.borrow().get(&begin) {
            return Ok(unit.clone());
        }
        let unit = Rc::new(self.dwarf.unit(self.dwarf.debug_info.header_from_offset(begin)?)?);
        self.units.borrow_mut().insert(begin, unit.clone());
        Ok(unit)
    }

    /// Returns the unit that contains an entry. Units without code are not in the index; they are
    /// found by reading headers, from the last indexed unit before the entry.
    fn unit_around(&self, entry: DebugInfoOffset) -> gimli::Result<Rc<Unit<'f>>> {
        let after = self.begins.partition_point(|begin| begin.0 <= entry.0);
        let mut begin = after.checked_sub(1).map_or(DebugInfoOffset(0), |last| self.begins[last]);
        loop {
            let header = self.dwarf.debug_info.header_from_offset(begin)?;
            let end = begin.0.saturating_add(header.length_including_self());
            if entry.0 < end {
                return self.unit(begin);
            }
            begin = DebugInfoOffset(end);
        }
    }

    /// Finds the functions that contain the addresses, and the calls that were inlined there.
    fn find_calls(&self, unit: UnitRef<'_, Bytes<'f>>, paths: &mut [Path]) -> gimli::Result<()> {
        let mut ranges = Vec::new();
        // Entries deeper than this cannot close any function or call on a path.
        let mut deepest = isize::MIN;
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            if depth <= deepest {
                paths.iter_mut().for_each(|path| path.come_up_to(depth));
                if paths.iter().all(|path| path.is_over) {
                    break;
                }
                deepest = paths.iter().filter_map(Path::depth).max().unwrap_or(isize::MIN);
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let is_function = abbreviation.tag() == gimli::DW_TAG_subprogram;
            let mut is_wanted = false;
            if is_function || abbreviation.tag() == gimli::DW_TAG_inlined_subroutine {
                for path in paths.iter_mut().filter(|path| path.is_open()) {
                    if is_function && !path.calls.is_empty() {
                        path.omitted = Some(depth);
                        deepest = deepest.max(depth);
                    }
                    is_wanted |= is_function == path.calls.is_empty();
                }
            }
            if !is_wanted {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let entry = Entry::read(&mut entries, abbreviation)?;
            entry.ranges(unit, &mut ranges)?;
            for path in paths.iter_mut().filter(|path| path.is_open() && is_function == path.calls.is_empty()) {
                if ranges.iter().any(|range| range.contains(&path.address)) {
                    let name = self.name(unit, &entry, REFERENCES_MAX)?;
                    let called_at = entry.call_file.map(|file| (file, entry.call_line));
                    path.calls.push((depth, Call { name, called_at }));
                    deepest = deepest.max(depth);
                }
            }
        }
        Ok(())
    }

    /// Returns the name of a function. It may be in the entry that this one was instantiated from.
    fn name(
        &self,
        unit: UnitRef<'_, Bytes<'f>>,
        entry: &Entry<'f>,
        references: usize,
    ) -> gimli::Result<Option<String>> {
        if let Some(name) = entry.linkage_name.or(entry.name) {
            return Ok(unit.attr_string(name).ok().map(|name| name.to_string_lossy().into_owned()));
        }
        let Some(references) = references.checked_sub(1) else { return Ok(None) };
        match entry.origin {
            Some(AttributeValue::UnitRef(offset)) => self.name_at(unit, offset, references),
            Some(AttributeValue::DebugInfoRef(offset)) => {
                let unit = self.unit_around(offset)?;
                let Some(offset) = offset.to_unit_offset(&unit.header) else { return Ok(None) };
                self.name_at(UnitRef::new(&self.dwarf, &unit), offset, references)
            }
            _ => Ok(None),
        }
    }

    fn name_at(
        &self,
        unit: UnitRef<'_, Bytes<'f>>,
        offset: UnitOffset,
        references: usize,
    ) -> gimli::Result<Option<String>> {
        let mut entries = unit.entries_raw(Some(offset))?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
        self.name(unit, &Entry::read(&mut entries, abbreviation)?, references)
    }
}

/// The path to an address through the entries of a unit.
struct Path {
    /// The index of the address.
    at: usize,
    address: u64,
    /// File and line, as numbers of the line table.
    spot: Option<(u64, u64)>,
    /// The function that contains the address and the calls that were inlined there, outermost
    /// first, each with the depth of its entry.
    calls: Vec<(isize, Call)>,
    /// The depth of a nested function's entry. Nested functions are not calls: entries below it are
    /// skipped.
    omitted: Option<isize>,
    /// Whether the function that contains the address has ended.
    is_over: bool,
}

impl Path {
    fn to(at: usize, address: u64) -> Self {
        Self { at, address, spot: None, calls: Vec::new(), omitted: None, is_over: false }
    }

    fn is_open(&self) -> bool {
        !self.is_over && self.omitted.is_none()
    }

    /// The depth at which the next entry closes a function or call of this path.
    fn depth(&self) -> Option<isize> {
        let last = self.calls.last().map(|(depth, _)| *depth);
        self.omitted.max(last).filter(|_| !self.is_over)
    }

    /// Updates the path for the next entry, which has this depth.
    fn come_up_to(&mut self, depth: isize) {
        self.omitted = self.omitted.filter(|omitted| depth > *omitted);
        self.is_over |= self.calls.last().is_some_and(|(last, _)| depth <= *last);
    }

    /// Returns the calls, or `None` if the unit does not cover the address.
    fn places(self, unit: UnitRef<'_, Bytes<'_>>) -> Option<Vec<Place>> {
        let mut spot = self.spot;
        if self.calls.is_empty() && spot.is_none() {
            return None;
        }
        let mut places = Vec::new();
        let mut place = |function, spot: Option<(u64, u64)>| {
            let file = spot.and_then(|(file, _)| file_name(unit, file));
            let line = spot.and_then(|(_, line)| u32::try_from(line).ok()).filter(|line| *line > 0);
            places.push(Place { function, file, line });
        };
        if self.calls.is_empty() {
            place(None, spot);
        }
        for (_, call) in self.calls.into_iter().rev() {
            place(call.name, spot);
            spot = call.called_at;
        }
        Some(places)
    }
}

/// A function or an inlined call, and where it is called.
struct Call {
    name: Option<String>,
    /// File and line, as numbers of the line table.
    called_at: Option<(u64, u64)>,
}

/// The attributes of an entry that are needed.
#[derive(Default)]
struct Entry<'f> {
    low: Option<Value<'f>>,
    high: Option<Value<'f>>,
    ranges: Option<Value<'f>>,
    linkage_name: Option<Value<'f>>,
    name: Option<Value<'f>>,
    origin: Option<Value<'f>>,
    call_file: Option<u64>,
    call_line: u64,
}

impl<'f> Entry<'f> {
    fn read(entries: &mut EntriesRaw<'_, Bytes<'f>>, abbreviation: &gimli::Abbreviation) -> gimli::Result<Self> {
        let mut entry = Self::default();
        for attribute in abbreviation.attributes() {
            let attribute = entries.read_attribute(*attribute)?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_low_pc => entry.low = Some(value),
                gimli::DW_AT_high_pc => entry.high = Some(value),
                gimli::DW_AT_ranges => entry.ranges = Some(value),
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => entry.linkage_name = Some(value),
                gimli::DW_AT_name => entry.name = Some(value),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => entry.origin = Some(value),
                gimli::DW_AT_call_line => entry.call_line = value.udata_value().unwrap_or(0),
                gimli::DW_AT_call_file => {
                    entry.call_file = match value {
                        AttributeValue::FileIndex(index) => Some(index),
                        other => other.udata_value(),
                    }
                }
                _ => {}
            }
        }
        Ok(entry)
    }

    /// Collects the address ranges of the entry's code.
    fn ranges(&self, unit: UnitRef<'_, Bytes<'f>>, found: &mut Vec<Range<u64>>) -> gimli::Result<()> {
        found.clear();
        let mut add = |range: Range<u64>| {
            if range.start > 0 {
                found.push(range);
            }
        };
        if let Some(ranges) = self.ranges
            && let Some(mut ranges) = unit.attr_ranges(ranges)?
        {
            while let Some(range) = ranges.next()? {
                add(range.begin..range.end);
            }
            return Ok(());
        }
        let (Some(low), Some(high)) = (self.low, self.high) else { return Ok(()) };
        let Some(low) = unit.attr_address(low)? else { return Ok(()) };
        let end = match unit.attr_address(high)? {
            Some(end) => end,
            None => low.saturating_add(high.udata_value().unwrap_or(0)),
        };
        add(low..end);
        Ok(())
    }
}

/// Finds the files and lines of the addresses; `paths` is sorted by address.
fn find_rows(program: gimli::IncompleteLineProgram<Bytes<'_>>, paths: &mut [Path]) -> gimli::Result<()> {
    let mut rows = program.rows();
    let mut left = paths.len();
    // The previous row, if it belongs to the same sequence: it lasts until the current one.
    let mut before: Option<(u64, (u64, u64))> = None;
    while left > 0
        && let Some((_, row)) = rows.next_row()?
    {
        if let Some((begin, spot)) = before.take() {
            let first = paths.partition_point(|path| path.address < begin);
            let inside = paths[first..].iter_mut().take_while(|path| path.address < row.address());
            for path in inside.filter(|path| path.spot.is_none()) {
                path.spot = Some(spot);
                left -= 1;
            }
        }
        if !row.end_sequence() && row.address() > 0 {
            before = Some((row.address(), (row.file_index(), row.line().map_or(0, |line| line.get()))));
        }
    }
    Ok(())
}

/// Returns the path of the file with this number.
fn file_name(unit: UnitRef<'_, Bytes<'_>>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let mut path = unit.comp_dir.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    // Directory 0 is that of the unit.
    let folder = if file.directory_index() == 0 { None } else { file.directory(header) };
    for part in folder.into_iter().chain([file.path_name()]) {
        let part = unit.attr_string(part).ok()?.to_string_lossy();
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(&part);
    }
    Some(path)
}
