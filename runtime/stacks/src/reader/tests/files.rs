//! Tests of programs whose debug information is stored in unusual forms. Each is built for its
//! test; the results must be those of `addr2line`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use addr2line::Loader;

use crate::reader::elf::Elf;
use crate::reader::lines::Lines;
use crate::reader::lines::tests::places_by;
use crate::reader::sections::Unpacked;
use crate::reader::units::Index;

const SOURCE: &str = "
    #[inline(always)]
    fn inner(n: u64) -> u64 {
        std::hint::black_box(n) * 3
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn outer(n: u64) -> u64 {
        inner(n) + inner(n + 1)
    }

    fn main() {
        println!(\"{}\", outer(std::env::args().count() as u64));
    }
";
/// The line of [`SOURCE`] where `inner` is called.
const CALL_LINE: u32 = 10;

/// A folder with a program, removed when this is dropped.
struct Built(PathBuf);

impl Built {
    /// Builds [`SOURCE`] with these options of `rustc`.
    fn with(name: &str, options: &[&str]) -> Self {
        let built = Self(env::temp_dir().join(format!("volt-stacks-{}-{name}", process::id())));
        fs::create_dir(&built.0).unwrap();
        fs::write(built.0.join("demo.rs"), SOURCE).unwrap();
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command.current_dir(&built.0).args(["demo.rs", "--edition=2024", "-O", "-g"]).args(options);
        assert!(command.status().unwrap().success());
        built
    }

    fn program(&self) -> PathBuf {
        self.0.join("demo")
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The addresses in `outer`.
fn addresses(program: &Path) -> Vec<u64> {
    let loader = Loader::new(program).unwrap();
    let begin = symbol(program, "outer");
    (begin..begin + 4096).take_while(|address| loader.find_symbol(*address) == Some("outer")).collect()
}

fn symbol(program: &Path, name: &str) -> u64 {
    let file = fs::read(program).unwrap();
    let elf = Elf::parse(&file).unwrap();
    elf.symbols().find(|symbol| symbol.name() == Some(name)).unwrap().address
}

/// Checks that every address of `outer` is found as by `addr2line`, with the inlined calls.
fn check(program: &Path) {
    let (lines, loader, addresses) = (Lines::open(program).unwrap(), Loader::new(program).unwrap(), addresses(program));
    assert!(addresses.len() > 10, "{addresses:?}");
    let found = lines.find(&addresses);
    for (address, found) in addresses.iter().zip(&found) {
        assert_eq!(found.places, places_by(&loader, *address), "0x{address:x}");
    }
    let has_call = found.iter().any(|found| {
        let own = found.places.iter().position(|place| place.line == Some(CALL_LINE));
        own.is_some_and(|own| own > 0 && found.places[own - 1].function.is_some())
    });
    assert!(has_call, "{found:#?}");
    assert!(!lines.is_incomplete());
}

#[test]
fn split_debug_information_is_found_in_each_form() {
    for (version, dwarf) in [("4", "-Cdwarf-version=4"), ("5", "-Cdwarf-version=5")] {
        for form in ["packed", "unpacked"] {
            let option = format!("-Csplit-debuginfo={form}");
            let built = Built::with(&format!("{form}-{version}"), &[dwarf, &option]);
            let is_split = fs::read_dir(&built.0).unwrap().any(|file| {
                let extension = file.unwrap().path().extension().map(ToOwned::to_owned);
                extension.is_some_and(|extension| extension == "dwo" || extension == "dwp")
            });
            assert!(is_split, "{form} {version}");
            check(&built.program());
        }
    }
}

#[test]
fn lines_remain_if_split_information_is_damaged_or_missing() {
    let built = Built::with("gone", &["-Csplit-debuginfo=packed"]);
    let (program, package) = (built.program(), built.0.join("demo.dwp"));
    let addresses = addresses(&program);
    let check = || {
        let found = Lines::open(&program).unwrap().find(&addresses);
        assert!(found.iter().any(|found| found.places.iter().any(|place| place.line == Some(CALL_LINE))), "{found:#?}");
        assert!(found.iter().all(|found| found.symbol.as_deref() == Some("outer")), "{found:#?}");
    };
    let mut bytes = fs::read(&package).unwrap();
    let range = |name: &str| {
        let data = Elf::parse(&bytes).unwrap().section(name).unwrap().data;
        (data.as_ptr().addr() - bytes.as_ptr().addr(), data.len())
    };
    let (index, units) = (range(".debug_cu_index"), range(".debug_info.dwo"));
    // All bytes of the units but the first 16 are damaged.
    let mut cut = bytes.clone();
    cut[units.0..][..units.1][16..].fill(0xff);
    fs::write(&package, cut).unwrap();
    check();
    bytes[index.0..][..index.1].fill(0xff);
    fs::write(&package, bytes).unwrap();
    check();
    fs::remove_file(&package).unwrap();
    check();
}

#[test]
fn a_pipe_in_place_of_debug_information_blocks_nothing() {
    let built = Built::with("pipe", &["-Csplit-debuginfo=packed"]);
    let (program, package) = (built.program(), built.0.join("demo.dwp"));
    let addresses = addresses(&program);
    fs::remove_file(&package).unwrap();
    assert!(Command::new("mkfifo").arg(&package).status().unwrap().success());
    let found = Lines::open(&program).unwrap().find(&addresses);
    assert!(found.iter().any(|found| found.places.iter().any(|place| place.line == Some(CALL_LINE))), "{found:#?}");
    let error = Lines::open(&package).err();
    assert_eq!(error.as_deref(), Some("it is not a regular file"));
}

#[test]
fn units_that_the_index_lacks_are_found_by_their_ranges() {
    let built = Built::with("unlisted", &[]);
    let mut bytes = fs::read(built.program()).unwrap();
    let name = b".debug_aranges\0";
    let at = bytes.windows(name.len()).rposition(|window| window == name).unwrap();
    bytes[at + 1] = b'_';
    fs::write(built.program(), bytes).unwrap();
    check(&built.program());
}

#[test]
fn compressed_debug_information_is_read_or_reported() {
    let built = Built::with("compressed", &["-Clink-arg=-Wl,--compress-debug-sections=zlib"]);
    let (program, addresses) = (built.program(), addresses(&built.program()));
    let bytes = fs::read(&program).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let unpacked = Unpacked::read(&elf, true);
    assert!(!unpacked.is_incomplete);
    let loader = Loader::new(&program).unwrap();
    let places = Index::of(&program, &elf, &unpacked, &addresses).unwrap().places();
    for (address, places) in addresses.iter().zip(&places) {
        assert_eq!(*places, places_by(&loader, *address), "0x{address:x}");
    }
    assert!(places.iter().any(|places| places.len() > 1), "{places:?}");

    let unpacked = Unpacked::read(&elf, false);
    assert!(unpacked.is_incomplete);
    assert!(Index::of(&program, &elf, &unpacked, &addresses).is_none());

    // A size that the compressed bytes cannot have. It is behind the kind and a reserved word.
    let section = elf.section(".debug_info").unwrap();
    let begin = section.data.as_ptr().addr() - bytes.as_ptr().addr();
    let mut damaged = bytes.clone();
    damaged[begin + 8..][..8].copy_from_slice(&(1_u64 << 33).to_le_bytes());
    let unpacked = Unpacked::read(&Elf::parse(&damaged[..]).unwrap(), true);
    assert!(unpacked.is_incomplete, "8 GiB were reserved");

    // Many sections that consist of the same bytes: a table of sections with copies of one entry.
    let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let count = u16::from_le_bytes(bytes[60..62].try_into().unwrap()) as usize;
    let headers = &bytes[table..table + count * 64];
    let packed = headers.chunks(64).find(|header| header[24..32] == (begin as u64).to_le_bytes()).unwrap();
    let copies = bytes.len() / section.data.len() + 1;
    let mut many = [&bytes[..], headers, &packed.repeat(copies)].concat();
    many[40..48].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    many[60..62].copy_from_slice(&((count + copies) as u16).to_le_bytes());
    let elf = Elf::parse(&many[..]).unwrap();
    assert_eq!(elf.sections().filter(|other| other.data == section.data).count(), copies + 1);
    assert!(Unpacked::read(&elf, true).is_incomplete, "more was unpacked than the file contains");
}
