//! From a copied stack to lines of source: functions, files, lines, with the calls that the
//! compiler inlined put back.
//!
//! Shape: a [`Resolver`] unwinds ([`unwind`](super::unwind)) and looks up what it does not know yet
//! of the calls, in the symbol table and the debug information of the files that they were loaded
//! from ([`lines`](super::lines)). Files are mapped when the first address of theirs is asked for,
//! and what was found out is kept.
//!
//! Who calls: a plain thread, which owns the resolver; nothing here is shared. The first stack
//! costs some ms; one that was seen before, some tens of µs.
//!
//! Bounds: [`FILES_MAX`] mapped files, [`ADDRESSES_MAX`] addresses kept, [`FRAMES_MAX`] frames a
//! stack. A library that was replaced on disk since it was loaded is described by what is there
//! now.
//!
//! It allocates, and may have to wait for the allocator: a thread that is stuck while it holds a
//! lock of that, in a handler which interrupted `malloc`, holds the reader of its stack too.
//!
//! Rejected: the crate `backtrace`, whose cache is behind a lock that panicking threads of the
//! application take too, and has no bound on what it keeps; `blazesym`, which does more than is
//! needed (kernel, other processes) and demangles through C++ too; symbols only, which name
//! functions but neither lines nor what was inlined, and nearly all that is async is inlined; a
//! child process (`addr2line`), which is not there in production.

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

/// Files that are mapped at once; the one that was not asked for the longest goes. Programs with
/// more have plug-ins.
const FILES_MAX: usize = 16;
/// Addresses whose frames are kept, some 100 bytes each. All go when there are more, or when
/// anything was loaded or unloaded.
const ADDRESSES_MAX: usize = 4096;
/// Frames of a stack that are shown, with those that were inlined: the innermost.
const FRAMES_MAX: usize = 128;

/// Stacks that are taken until one is not lost. In a thread that panics all the time, one in twenty
/// is.
const TRIES: usize = 4;

/// From one to the next: longer than the slice of processor time that others may take in between.
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// A stack for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// Innermost first. `address` is the one in the file of `module`, as `addr2line -e` takes it.
    pub frames: Vec<Frame>,
    /// Why there are not all frames, or not all that could be known of them.
    pub error: Option<String>,
    /// Whether the next stack of the same thread may well be whole: this one was taken at a bad
    /// moment.
    pub is_lost: bool,
}

/// Makes stacks readable; owned by one thread.
#[derive(Default)]
pub struct Resolver {
    unwinding: Unwinding,
    files: Files,
    known: HashMap<u64, Vec<Frame>>,
}

impl Resolver {
    /// Cheap: nothing is read before the first stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// The stack of `thread` as it is now: taken by `sampler`, which waits no longer than
    /// `patience`, and resolved. Taken again, up to `TRIES` times, if it came at a bad moment.
    ///
    /// # Errors
    /// There is no answer, and the error says why.
    pub fn stack_of(
        &mut self,
        sampler: &Sampler,
        thread: &Thread,
        marker: Option<Marker>,
        patience: Duration,
    ) -> Result<Resolved, CaptureError> {
        let mut resolved = self.resolve(&sampler.capture(thread, patience)?, marker);
        for _ in 1..TRIES {
            if !resolved.is_lost {
                break;
            }
            // An answer wakes the requester, which may take the thread's processor from it: let it
            // go on.
            thread::sleep(BETWEEN_TRIES);
            // The next may be as bad, or worse, or not come in time.
            let Ok(stack) = sampler.capture(thread, patience) else { break };
            let next = self.resolve(&stack, marker);
            if !next.is_lost || next.frames.len() > resolved.frames.len() {
                resolved = next;
            }
        }
        Ok(resolved)
    }

    /// The calls of `stack`, down to the function of `marker`, it included; down to the thread's
    /// start if that is not among them.
    pub fn resolve(&mut self, stack: &RawStack, marker: Option<Marker>) -> Resolved {
        // What is read was written by compilers, linkers and whoever packed the file: a library
        // that panics over it costs this stack only.
        catch_unwind(AssertUnwindSafe(|| self.try_resolve(stack, marker))).unwrap_or_else(|_| {
            *self = Self::new();
            Resolved { error: Some("reading the debug information failed".into()), ..Resolved::default() }
        })
    }

    fn try_resolve(&mut self, stack: &RawStack, marker: Option<Marker>) -> Resolved {
        if self.unwinding.refresh() || self.known.len() > ADDRESSES_MAX {
            self.known.clear();
        }
        let Unwound { calls, end } = self.unwinding.unwind(stack, marker);
        self.learn(&calls);
        let mut frames: Vec<_> =
            calls.iter().filter_map(|call| self.known.get(&call.lookup)).flatten().cloned().collect();
        let home = self.unwinding.modules.list().iter().find(|module| module.is_home);
        let mut errors = Vec::from_iter(home.and_then(|home| lack(&home.name, self.files.error(home), &frames)));
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

    /// Finds out what is to be known of these calls: of each the functions that were inlined there,
    /// and last the one that it is in. Each file is asked once for all of them.
    fn learn(&mut self, calls: &[Call]) {
        let Self { unwinding, files, known } = self;
        // Not by `call.address`, which another call may look up elsewhere: an instruction that was
        // interrupted, and one that will be returned to.
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

/// What could not be said of code in the program `name`, and what to do about it. `error` is why
/// its file cannot be read.
fn lack(name: &str, error: Option<&str>, frames: &[Frame]) -> Option<String> {
    if let Some(error) = error {
        return Some(format!("{name} cannot be read: {error}"));
    }
    let mut own = frames.iter().filter(|frame| frame.module.as_deref() == Some(name)).peekable();
    if own.peek().is_some() && own.all(|frame| frame.function.is_none()) {
        return Some(format!("{name} is stripped: build it with `strip = false` and `debug = \"limited\"`"));
    }
    // Rust's own libraries bring their line tables with them: what counts are the application's.
    let mut user = frames.iter().filter(|frame| frame.is_user_code).peekable();
    if user.peek().is_some() && user.all(|frame| frame.line.is_none()) {
        return Some(format!("{name} has no line tables: build it with `debug = \"limited\"`"));
    }
    None
}

/// A file that code was loaded from.
struct File {
    path: PathBuf,
    /// Its contents; or why it cannot be read.
    lines: Result<Lines, String>,
    /// The folder of Volt's crates, as its debug information calls it, if it is the program.
    volt_folder: Option<String>,
}

impl File {
    fn open(module: &Module) -> Self {
        let lines = Lines::open(&module.file);
        let volt_folder = lines.as_ref().ok().filter(|_| module.is_home).and_then(|lines| {
            let own = lines.find(&[modules::own_code().wrapping_sub(module.bias)]).pop()?;
            Some(own.places.first()?.file.as_deref()?.strip_suffix(modules::OWN_FILE)?.to_owned())
        });
        Self { path: module.file.clone(), lines, volt_folder }
    }

    /// The frames of each of these calls, by what it is looked up by.
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
        // The last is the function itself, which has a symbol: that tells more than a bare name.
        let own = function_of(outermost).filter(|function| names::is_whole(function)).or_else(|| symbol.clone());
        frames.push(describe(own.or_else(|| function_of(outermost)).as_deref(), outermost));
        frames
    }
}

/// The files of modules, the one asked for last at the end.
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

    /// Why the module's file cannot be read, if it was tried and cannot.
    fn error(&self, module: &Module) -> Option<&str> {
        self.open.iter().find(|file| file.path == module.file)?.lines.as_ref().err().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_program_that_was_stripped_is_told_how_not_to_be() {
        let library = Frame { module: Some("libc.so.6".into()), ..Frame::default() };
        let rust = frame(Some("std::thread::sleep"), Some(1), false);
        let bare = frame(Some("demo::fetch"), None, true);
        let said = |frames: &[Frame]| lack("demo", None, frames);
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[library.clone(), rust.clone()]), None, "nothing of the application's was asked for");
        assert_eq!(
            said(&[library.clone(), rust.clone(), bare.clone(), frame(Some("demo::main"), Some(7), true)]),
            None
        );
        assert!(said(&[library.clone(), rust, bare]).unwrap().contains("demo has no line tables"));
        assert!(said(&[library, frame(None, None, false)]).unwrap().contains("demo is stripped"));
        assert!(lack("demo", Some("no such file"), &[]).unwrap().contains("no such file"));
    }
}
