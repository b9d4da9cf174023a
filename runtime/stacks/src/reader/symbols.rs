//! Resolves a copied stack to source lines: functions, files and lines, including the calls that
//! the compiler inlined.
//!
//! The runtime's thread for incidents owns a [`Resolver`]. A second one is passed from each thread
//! that makes a task dump to the next.
//!
//! # Shape
//!
//! A resolver unwinds the stack ([`unwind`](super::unwind)). It looks up calls that are not cached
//! yet in the symbol table and the debug information of the files that they were loaded from
//! ([`lines`](super::lines)). A file is mapped at the first lookup of one of its addresses. Results
//! are cached. When a library was loaded or unloaded, the cached addresses are cleared, and the
//! files of libraries are closed: the same path may lead to another file now.
//!
//! A resolver is used by one thread at a time; nothing here is shared. The first stack takes a few
//! ms, a stack of cached calls some tens of µs.
//!
//! # Limits
//!
//! At most [`FILES_MAX`] mapped files, [`ADDRESSES_MAX`] cached addresses and [`FRAMES_MAX`] frames
//! per stack. If a library was replaced on disk since it was loaded, the new file is used for the
//! lookup.
//!
//! Resolving allocates, and may have to wait for the allocator. If a thread is stuck in a handler
//! that interrupted `malloc`, it may hold a lock of the allocator, and then the resolver blocks as
//! well.
//!
//! # Rejected alternatives
//!
//! * The crate `backtrace`: its cache is behind a lock that panicking threads of the application
//!   also take, and has no bound.
//! * `blazesym`: it does more than is needed (kernel, other processes), and demangles through C++.
//! * Symbols only: they name functions, but neither lines nor inlined calls, and nearly all async
//!   code is inlined.
//! * A child process (`addr2line`): it is not installed in production.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use volt_telemetry::Frame;

use super::capture::{CaptureError, Sampler, Thread};
use super::lines::{Found, Lines};
use super::modules::{self, Module};
use super::names;
use super::raw::RawStack;
use super::units::Place;
use super::unwind::{Call, End, Marker, Unwinding, Unwound};

/// Maximum number of mapped files; the least recently used one is closed. Only programs with
/// plug-ins have more.
const FILES_MAX: usize = 16;
/// Maximum number of cached addresses, some 100 bytes each. The cache is cleared when it is larger,
/// or when a module was loaded or unloaded.
const ADDRESSES_MAX: usize = 4096;
/// Maximum number of frames in a result, including inlined ones; the innermost are kept.
const FRAMES_MAX: usize = 128;

/// Like [`FRAMES_MAX`], for the calls of a chain of futures, in which each future has several
/// frames.
const CHAIN_FRAMES_MAX: usize = 512;
/// The error if a library panics while it reads debug information.
const UNREADABLE: &str = "reading the debug information failed";

/// How many stacks are captured until one is not lost. In a thread that panics all the time, one in
/// twenty is lost.
const TRIES: usize = 4;

/// Pause between two tries: longer than the time slice that other threads may use in between.
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// A stack that is resolved to functions, files and lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// The frames, innermost first. `address` is relative to the file of `module`, as for
    /// `addr2line -e`.
    pub frames: Vec<Frame>,
    /// Why frames, or some of their details, are missing.
    pub error: Option<String>,
    /// Whether the next stack of the same thread may be complete, because this one was captured in
    /// an inconsistent moment.
    pub is_lost: bool,
}

/// The calls of a stack that was unwound but not resolved: stacks of the same code are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Calls {
    calls: Vec<Call>,
    /// Why calls are missing.
    error: Option<String>,
}

impl Calls {
    /// Returns why calls are missing, if some are.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Resolves stacks to functions, files and lines. Used by one thread at a time.
#[derive(Default)]
pub struct Resolver {
    unwinding: Unwinding,
    files: Files,
    known: HashMap<u64, Vec<Frame>>,
}

impl Resolver {
    /// Creates a resolver. This is cheap: nothing is read before the first stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// Captures the current stack of `thread` with `sampler`, which waits at most for `timeout`,
    /// and resolves it. Repeats this, up to `TRIES` times in total, if the stack was captured in an
    /// inconsistent moment.
    ///
    /// # Errors
    /// Returns a [`CaptureError`] with the reason if there was no answer.
    pub fn stack_of(
        &mut self,
        sampler: &Sampler,
        thread: &Thread,
        marker: Option<Marker>,
        timeout: Duration,
    ) -> Result<Resolved, CaptureError> {
        let mut resolved = self.resolve(&sampler.capture(thread, timeout)?, marker);
        for _ in 1..TRIES {
            if !resolved.is_lost {
                break;
            }
            // Answering wakes the requester, which may take the processor from the thread. Let the
            // thread continue.
            thread::sleep(BETWEEN_TRIES);
            // The next stack may also be lost, be shorter, or not arrive in time.
            let Ok(stack) = sampler.capture(thread, timeout) else { break };
            let next = self.resolve(&stack, marker);
            if !next.is_lost || next.frames.len() > resolved.frames.len() {
                resolved = next;
            }
        }
        Ok(resolved)
    }

    /// Resolves the calls of `stack`, down to and including the function of `marker`, or to the
    /// thread's first function if the marker is not among them.
    pub fn resolve(&mut self, stack: &RawStack, marker: Option<Marker>) -> Resolved {
        // The debug information was written by compilers, linkers and other tools. If a library
        // panics while reading it, only this stack is lost.
        catch_unwind(AssertUnwindSafe(|| self.try_resolve(stack, marker))).unwrap_or_else(|_| {
            *self = Self::new();
            Resolved { error: Some(UNREADABLE.into()), ..Resolved::default() }
        })
    }

    /// Unwinds `stack` down to the function of `marker`, without resolving it. For many stacks of
    /// which most are equal.
    pub fn calls(&mut self, stack: &RawStack, marker: Marker) -> Calls {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            self.refresh();
            self.unwinding.unwind(stack, Some(marker))
        }));
        match unwound {
            Ok(Unwound { calls, end: End::Whole }) => Calls { calls, error: None },
            Ok(Unwound { calls, end }) => Calls { calls, error: Some(end.to_string()) },
            Err(_) => {
                *self = Self::new();
                Calls { calls: Vec::new(), error: Some(UNREADABLE.into()) }
            }
        }
    }

    /// Resolves calls to frames, innermost first; at most 512.
    pub fn frames(&mut self, calls: &Calls) -> Resolved {
        let resolved = catch_unwind(AssertUnwindSafe(|| {
            self.refresh();
            self.learn(&calls.calls);
            let mut frames = self.frames_of(&calls.calls);
            frames.truncate(CHAIN_FRAMES_MAX);
            let error = calls.error.clone().or_else(|| self.lack(&frames));
            Resolved { frames, error, is_lost: false }
        }));
        resolved.unwrap_or_else(|_| {
            *self = Self::new();
            Resolved { error: Some(UNREADABLE.into()), ..Resolved::default() }
        })
    }

    /// Clears the cached addresses if a module was loaded or unloaded, or if there are too many.
    fn refresh(&mut self) {
        let has_changed = self.unwinding.refresh();
        if has_changed {
            self.files.close_libraries();
        }
        if has_changed || self.known.len() > ADDRESSES_MAX {
            self.known.clear();
        }
    }

    fn frames_of(&self, calls: &[Call]) -> Vec<Frame> {
        calls.iter().filter_map(|call| self.known.get(&call.lookup)).flatten().cloned().collect()
    }

    /// Returns a message if information on the program's code is missing, with the remedy.
    fn lack(&self, frames: &[Frame]) -> Option<String> {
        let home = self.unwinding.modules.list().iter().find(|module| module.is_home)?;
        lack(&home.name, self.files.state(home), frames)
    }

    fn try_resolve(&mut self, stack: &RawStack, marker: Option<Marker>) -> Resolved {
        self.refresh();
        let Unwound { calls, end } = self.unwinding.unwind(stack, marker);
        self.learn(&calls);
        let mut frames = self.frames_of(&calls);
        let mut errors = Vec::from_iter(self.lack(&frames));
        if end != End::Whole {
            errors.push(end.to_string());
        }
        if frames.len() > FRAMES_MAX {
            frames.truncate(FRAMES_MAX);
            errors.push(format!("deeper than {FRAMES_MAX} frames: the outer ones are left out"));
        }
        let is_lost = matches!(end, End::Lost(_));
        Resolved { frames, error: (!errors.is_empty()).then(|| errors.join("; ")), is_lost }
    }

    /// Looks up the calls that are not cached: for each, the functions that were inlined there, and
    /// last the function that contains it. Reads each file once for all of its calls.
    fn learn(&mut self, calls: &[Call]) {
        let Self { unwinding, files, known } = self;
        // The key is not `call.address`. Two calls may share it but have different lookup
        // addresses: an interrupted instruction, and one that will be returned to.
        let mut unknown: Vec<_> = calls.iter().copied().filter(|call| !known.contains_key(&call.lookup)).collect();
        while let Some(first) = unknown.first() {
            let Some(module) = unwinding.modules.find(first.lookup) else {
                known.insert(first.lookup, vec![Frame { address: first.address, ..Frame::default() }]);
                unknown.swap_remove(0);
                continue;
            };
            let (of_module, others) = unknown.into_iter().partition(|call| module.range.contains(&call.lookup));
            known.extend(files.get(module).frames(module, of_module));
            unknown = others;
        }
    }
}

/// Returns a message if information on the code of program `name` is missing, with the remedy.
/// `file` is the program's file, or why it cannot be read.
fn lack(name: &str, file: Result<FileState, &str>, frames: &[Frame]) -> Option<String> {
    match file {
        Err(error) => return Some(format!("{name} cannot be read: {error}")),
        Ok(FileState::Compressed) => {
            return Some(format!(
                "the debug information of {name} is compressed: link it without `--compress-debug-sections`, \
                 or enable the feature `compressed-debug-info` of volt-runtime"
            ));
        }
        Ok(FileState::Readable) => {}
    }
    let mut own = frames.iter().filter(|frame| frame.module.as_deref() == Some(name)).peekable();
    if own.peek().is_some() && own.all(|frame| frame.function.is_none()) {
        return Some(format!("{name} is stripped: build it with `strip = false` and `debug = \"limited\"`"));
    }
    // Only application code counts, since Rust's own libraries include their line tables.
    let mut user = frames.iter().filter(|frame| frame.is_user_code).peekable();
    if user.peek().is_some() && user.all(|frame| frame.line.is_none()) {
        return Some(format!("{name} has no line tables: build it with `debug = \"limited\"`"));
    }
    None
}

/// A file from which code was loaded.
struct File {
    path: PathBuf,
    /// Whether it contains the runtime, so that it is never unloaded.
    is_home: bool,
    /// Its contents, or why it cannot be read.
    lines: Result<Lines, String>,
    /// For the program itself: the folder of Volt's crates, as written in its debug information.
    volt_folder: Option<String>,
}

impl File {
    fn open(module: &Module) -> Self {
        let lines = Lines::open(&module.file);
        let volt_folder = lines.as_ref().ok().filter(|_| module.is_home).and_then(|lines| {
            let own = lines.find(&[modules::own_code().wrapping_sub(module.bias)]).pop()?;
            Some(own.places.first()?.file.as_deref()?.strip_suffix(modules::OWN_FILE)?.to_owned())
        });
        Self { path: module.file.clone(), is_home: module.is_home, lines, volt_folder }
    }

    /// Returns the frames of each of these calls, with the lookup address of the call.
    fn frames(&self, module: &Module, calls: Vec<Call>) -> Vec<(u64, Vec<Frame>)> {
        let lookups: Vec<_> = calls.iter().map(|call| call.lookup.wrapping_sub(module.bias)).collect();
        let found = match &self.lines {
            Ok(lines) => lines.find(&lookups),
            Err(_) => vec![Found::default(); calls.len()],
        };
        calls.iter().zip(found).map(|(call, found)| (call.lookup, self.frames_of(module, *call, &found))).collect()
    }

    fn frames_of(&self, module: &Module, call: Call, found: &Found) -> Vec<Frame> {
        let symbol = found.symbol.as_deref().map(names::demangled);
        let holder = symbol.as_deref().map(|symbol| names::readable(symbol, None));
        let describe = |demangled: Option<&str>, place: &Place| Frame {
            address: call.address.wrapping_sub(module.bias),
            function: demangled.map(|demangled| names::readable(demangled, holder.as_deref())),
            file: place.file.clone(),
            line: place.line,
            module: Some(module.name.clone()),
            is_user_code: module.is_home
                && names::is_user_code(demangled, place.file.as_deref(), self.volt_folder.as_deref()),
        };
        let Some((outermost, inlined)) = found.places.split_last() else {
            return vec![describe(symbol.as_deref(), &Place::default())];
        };
        let function_of = |place: &Place| place.function.as_deref().map(names::demangled);
        let mut frames = Vec::from_iter(inlined.iter().map(|place| describe(function_of(place).as_deref(), place)));
        // The last place is the function itself, whose symbol is more complete than a bare name.
        let own = function_of(outermost).filter(|function| names::is_whole(function)).or_else(|| symbol.clone());
        frames.push(describe(own.or_else(|| function_of(outermost)).as_deref(), outermost));
        frames
    }
}

/// The readable parts of a file, as far as reading was tried.
#[derive(Clone, Copy)]
enum FileState {
    Readable,
    /// All but its debug information, which is compressed.
    Compressed,
}

/// The files of modules, the most recently used one last.
#[derive(Default)]
struct Files {
    open: Vec<File>,
}

impl Files {
    fn get(&mut self, module: &Module) -> &File {
        let file = match self.open.iter().position(|file| file.path == module.file) {
            Some(index) => self.open.remove(index),
            None => {
                if self.open.len() == FILES_MAX {
                    self.open.remove(0);
                }
                File::open(module)
            }
        };
        self.open.push(file);
        &self.open[self.open.len() - 1]
    }

    /// Closes the files of libraries that may have been unloaded and loaded again, perhaps from
    /// another file of the same path.
    fn close_libraries(&mut self) {
        self.open.retain(|file| file.is_home);
    }

    /// Returns whether the module's file can be read, or why not if opening it failed.
    fn state(&self, module: &Module) -> Result<FileState, &str> {
        let file = self.open.iter().find(|file| file.path == module.file);
        match file.map(|file| file.lines.as_ref().map_err(String::as_str)).transpose()? {
            Some(lines) if lines.is_incomplete() => Ok(FileState::Compressed),
            _ => Ok(FileState::Readable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::tape::Tape;

    fn frame(function: Option<&str>, line: Option<u32>, is_user_code: bool) -> Frame {
        Frame {
            function: function.map(str::to_owned),
            line,
            module: Some("demo".into()),
            is_user_code,
            ..Frame::default()
        }
    }

    #[test]
    fn known_calls_are_resolved_without_reading_a_file() {
        let mut tape = Tape::new();
        tape.record(&mut || Tape::note());
        let [stack] = &tape.take().stacks[..] else { panic!("one note") };
        let mut resolver = Resolver::new();
        let first = resolver.resolve(stack, Some(Tape::marker()));
        assert!(first.frames.iter().any(|frame| frame.line.is_some()), "{first:#?}");
        assert!(!resolver.files.open.is_empty());
        resolver.files.open.clear();
        let again = resolver.resolve(stack, Some(Tape::marker()));
        assert_eq!(again, first);
        assert!(resolver.files.open.is_empty(), "a file was read");
    }

    #[test]
    fn a_library_that_is_loaded_again_is_read_again() {
        let name = |which: &str| format!("volt-again-{}-{which}", std::process::id());
        let [link, other] = ["link", "other"].map(|which| std::env::temp_dir().join(name(which)));
        std::fs::write(&other, "not an ELF file").unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let mut resolver = Resolver::new();
        resolver.refresh();
        let mut library = resolver.unwinding.modules.find(modules::own_code()).unwrap().clone();
        (library.file, library.is_home) = (link.clone(), false);
        assert!(resolver.files.get(&library).lines.is_err());
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", &link).unwrap();
        // As after a change of the loader's list.
        resolver.unwinding = Unwinding::default();
        resolver.refresh();
        let is_read = resolver.files.get(&library).lines.is_ok();
        [link, other].iter().for_each(|path| std::fs::remove_file(path).unwrap());
        assert!(is_read, "it was resolved by its former file");
    }

    #[test]
    fn a_stripped_program_gets_advice_on_its_profile() {
        let library = Frame { module: Some("libc.so.6".into()), ..Frame::default() };
        let rust = frame(Some("std::thread::sleep"), Some(1), false);
        let bare = frame(Some("demo::fetch"), None, true);
        let reason = |frames: &[Frame]| lack("demo", Ok(FileState::Readable), frames);
        assert_eq!(reason(&[]), None);
        assert_eq!(reason(&[library.clone(), rust.clone()]), None, "nothing of the application's was asked for");
        assert_eq!(
            reason(&[library.clone(), rust.clone(), bare.clone(), frame(Some("demo::main"), Some(7), true)]),
            None
        );
        assert!(reason(&[library.clone(), rust, bare]).unwrap().contains("demo has no line tables"));
        assert!(reason(&[library, frame(None, None, false)]).unwrap().contains("demo is stripped"));
        assert!(lack("demo", Ok(FileState::Compressed), &[]).unwrap().contains("is compressed"));
        assert!(lack("demo", Err("no such file"), &[]).unwrap().contains("no such file"));
    }
}
