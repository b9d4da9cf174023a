//! Finds the functions of a unit whose debug information is split off into another file. A *unit*
//! is the debug information of one compilation, often of one crate.
//!
//! With `split-debuginfo = "unpacked"`, the compiler writes a file `.dwo` for each unit, and the
//! program contains a skeleton of the unit with the path of that file. With `"packed"`, these files
//! are combined in one, `program.dwp`, beside the program. [`units`](super::units) uses this
//! module. The files are mapped for one stack, and only the parts that are read use memory.
//!
//! Source: DWARF 5, sections 3.1.2, 3.1.3 and 7.3.

use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfPackage, DwoId, EndianSlice, LittleEndian, UnitRef};

use super::elf::Elf;
use super::map::Map;
use super::sections::{self, Bytes, Unit, Unpacked};

/// Calls `then` with the debug information that belongs to a skeleton of the file at `program`.
/// Does nothing if there is none: the information was left where the program was built.
///
/// # Errors
/// Returns an error if the information is damaged. `then` may have been called before.
pub(super) fn read(
    program: &Path,
    skeleton: UnitRef<'_, Bytes<'_>>,
    id: DwoId,
    then: impl FnOnce(Dwarf<Bytes<'_>>, &Unit<'_>) -> gimli::Result<()>,
) -> gimli::Result<()> {
    let mut package = program.as_os_str().to_owned();
    package.push(".dwp");
    let (package, single) = (open(Path::new(&package)), own_file(skeleton).and_then(|path| open(&path)));
    let package = package.as_ref().and_then(|file| Some((Elf::parse(file).ok()?, file)));
    let single = single.as_ref().and_then(|file| Some((Elf::parse(file).ok()?, file)));
    let unpacked = [&package, &single].map(|file| file.as_ref().map(|(elf, _)| Unpacked::of(elf)).unwrap_or_default());
    let mut found = None;
    if let Some((elf, _)) = &package {
        let empty = EndianSlice::new(&[], LittleEndian);
        let package = DwarfPackage::load(|section| unpacked[0].section(elf, section.dwo_name()), empty);
        found = package.and_then(|package| package.find_cu(id, skeleton.dwarf)).ok().flatten();
    }
    if found.is_none()
        && let Some((elf, _)) = &single
    {
        let mut dwarf = Dwarf::load(|section| unpacked[1].section(elf, section.dwo_name()))?;
        dwarf.make_dwo(skeleton.dwarf);
        found = Some(dwarf);
    }
    let Some(dwarf) = found else { return Ok(()) };
    let Some(header) = dwarf.units().next()? else { return Ok(()) };
    let mut unit = dwarf.unit(header)?;
    // The file may have been overwritten by a later build.
    if unit.dwo_id == Some(id) {
        unit.copy_relocated_attributes(skeleton.unit);
        then(dwarf, &unit)?;
    }
    Ok(())
}

/// Returns the path of the unit's own file.
fn own_file(skeleton: UnitRef<'_, Bytes<'_>>) -> Option<PathBuf> {
    let name = skeleton.attr_string(skeleton.dwo_name().ok()??).ok()?;
    let folder = skeleton.comp_dir.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    Some(Path::new(&folder).join(&*name.to_string_lossy()))
}

fn open(path: &Path) -> Option<Map> {
    let file = sections::open(path).ok()?;
    // SAFETY: the file is mapped for one stack, some milliseconds. It must not be truncated in that
    // time: a build that overwrites it meanwhile would end the program with `SIGBUS`. Cargo builds
    // in place only what is not deployed, and an incident and a build must coincide.
    unsafe { Map::of(&file) }.ok()
}
