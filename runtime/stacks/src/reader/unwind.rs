//! Unwinds a copied stack: turns registers and stack memory into the list of active calls, by the
//! tables that compilers write for exceptions.
//!
//! [`Resolver`](super::symbols::Resolver) uses this module.
//!
//! # Shape
//!
//! framehop walks from frame to frame by `.eh_frame`. It needs neither frame pointers nor symbols,
//! and Rust writes those tables in every build for these targets, including `panic = "abort"`.
//! framehop does not support the frame of a signal handler, so this module handles it: the kernel
//! saved all registers of the interrupted code below that frame, and the walk continues from those.
//!
//! The stack of a poll ends at the function that the runtime marks with a [`Marker`]. The range of
//! that function is read from the unwind tables, so this also works in a program without symbols.
//!
//! # Code without tables
//!
//! Some code has no unwind tables, for example the C library musl. The walk skips such code: it
//! continues at the first word on the stack that is a return address from which a walk reaches the
//! marked function. The outermost calls found this way are correct. The first ones may be stale: a
//! call that has already returned may have left its return address on the stack. The result is
//! therefore reported to have a gap.
//!
//! # Invariants
//!
//! * *Ends*: a walk ends after [`CALLS_MAX`] calls, or at the first address that is not code.
//! * *Never faults*: stack memory is read from the copy. Code is only read to recognize the return
//!   from a handler, from modules that are never unloaded.
//!
//! # Rejected alternatives
//!
//! * libunwind and libgcc: they unwind live threads, not copies.
//! * Walking by frame pointers: default builds do not have them.

use std::fmt;
use std::ops::Range;

use framehop::{FrameAddress, ModuleSectionInfo, Unwinder};

use super::modules::{Module, Modules, Section, Table};
use super::raw::{RawStack, Registers};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, PtrAuthMask, UnwindRegsAarch64 as Regs, UnwinderAarch64 as Walker};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Regs, UnwinderX86_64 as Walker};

/// Maximum number of calls that are followed: more than an incident shows, fewer than a runaway
/// recursion has.
pub(super) const CALLS_MAX: usize = 256;

/// Number of stack words that are scanned to continue after code without tables. Such code is C,
/// whose frames are small.
const SEARCH_WORDS_MAX: usize = 512;
/// Maximum number of return addresses that are tried in these scans, per stack.
const SEARCHES_MAX: usize = 64;

/// The function at which the stack of a poll ends.
#[derive(Clone, Copy, Debug)]
pub struct Marker(u64);

impl Marker {
    /// Returns a marker for `function`, which must meet three conditions. It is `#[inline(never)]`.
    /// It does something after the call that it marks; otherwise that call becomes a jump, and the
    /// function is not on the stack. And no other function has the same code, since the linker may
    /// merge the two.
    pub fn function(function: *const ()) -> Self {
        Self(function.addr() as u64)
    }
}

/// One call: the address at which it will continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) address: u64,
    /// An address inside the calling instruction, for lookups: the next instruction may belong to
    /// another function.
    pub(super) lookup: u64,
}

impl From<FrameAddress> for Call {
    fn from(address: FrameAddress) -> Self {
        Self { address: address.address(), lookup: address.address_for_lookup() }
    }
}

/// The calls of a stack, innermost first.
#[derive(Debug)]
pub(super) struct Unwound {
    pub(super) calls: Vec<Call>,
    pub(super) end: End,
}

/// Why there are no more calls.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The walk reached the marked function, or the thread's first one if none is marked.
    Whole,
    /// The walk reached the marked function, but calls in code without unwind tables are left out.
    Gap,
    /// There are more than [`CALLS_MAX`] calls.
    TooDeep,
    /// There is more stack than was copied. Contains the number of bytes copied.
    Cut(usize),
    /// The thread ran on a stack whose bounds are not known.
    Foreign,
    /// The walk failed, for the reason given. A moment later it may succeed: while a panic passes
    /// from one frame to the next, the C library's unwinder leaves the stack inconsistent for some
    /// ten instructions.
    Lost(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Whole => f.write_str("the stack is whole"),
            End::Gap => f.write_str("calls in code without unwind tables are left out"),
            End::TooDeep => write!(f, "deeper than {CALLS_MAX} calls: the outer ones are missing"),
            End::Cut(bytes) => {
                write!(f, "deeper than the {} KiB that were copied: the outer calls are missing", bytes / 1024)
            }
            End::Foreign => f.write_str(
                "the thread ran on a stack that is not its own, as coroutines do: only its innermost call is known",
            ),
            End::Lost(why) => f.write_str(why),
        }
    }
}

/// Unwinds stacks of this program.
#[derive(Default)]
pub(super) struct Unwinding {
    pub(super) modules: Modules,
    walker: Walker<Table>,
    cache: Cache,
}

impl Unwinding {
    /// Updates the list of modules. Returns whether any module was loaded or unloaded.
    pub(super) fn refresh(&mut self) -> bool {
        if !self.modules.refresh() {
            return false;
        }
        self.read_tables();
        true
    }

    /// Gives the tables of the modules to the walker.
    fn read_tables(&mut self) {
        self.walker = Walker::new();
        for module in self.modules.list() {
            let tables = framehop::Module::new(module.name.clone(), module.range.clone(), module.bias, Tables(module));
            self.walker.add_module(tables);
        }
    }

    #[cfg(fuzzing)]
    pub(super) fn of(module: Module) -> Self {
        let mut unwinding = Self { modules: Modules::of(module), ..Self::default() };
        unwinding.read_tables();
        unwinding
    }

    /// Returns the calls of `stack`, down to `marker` if it is among them.
    pub(super) fn unwind(&mut self, stack: &RawStack, marker: Option<Marker>) -> Unwound {
        let Self { modules, walker, cache } = self;
        let marked = marker.and_then(|Marker(address)| modules.find(address)?.function(address));
        let mut walk = Walk { modules, walker, cache, stack, marked, calls: Vec::new(), searches: SEARCHES_MAX };
        let regs = regs(stack.registers, walk.walker);
        let end = walk.go(FrameAddress::from_instruction_pointer(stack.registers.ip), regs);
        Unwound { calls: walk.calls, end }
    }
}

/// The state of unwinding one stack.
struct Walk<'w> {
    modules: &'w Modules,
    walker: &'w Walker<Table>,
    cache: &'w mut Cache,
    stack: &'w RawStack,
    /// The range of the marked function.
    marked: Option<Range<u64>>,
    /// The calls found so far.
    calls: Vec<Call>,
    /// How many return addresses may still be tried.
    searches: usize,
}

impl Walk<'_> {
    /// Walks from one call to the next, until there is none.
    fn go(&mut self, mut at: FrameAddress, mut regs: Regs) -> End {
        let stack = self.stack;
        loop {
            let call = Call::from(at);
            let Some(module) = self.modules.find(call.lookup).filter(|module| module.has_code_at(call.lookup)) else {
                return End::Lost(format!(
                    "0x{:x} is not in a loaded module: it is generated code, or not a return address",
                    call.address
                ));
            };
            self.calls.push(call);
            if self.marked.as_ref().is_some_and(|marked| marked.contains(&call.lookup)) {
                return End::Whole;
            }
            if stack.is_foreign {
                return End::Foreign;
            }
            if self.calls.len() >= CALLS_MAX {
                return End::TooDeep;
            }
            if at.is_return_address()
                && let Some(registers) = interrupted(module, call.address, regs.sp(), stack)
            {
                regs = self::regs(registers, self.walker);
                at = FrameAddress::from_instruction_pointer(registers.ip);
                continue;
            }
            if self.marked.is_some() && module.function(call.lookup).is_none() {
                let link = if at.is_return_address() { 0 } else { stack.registers.lr };
                return self
                    .search(link, regs)
                    .unwrap_or_else(|| End::Lost(format!("{} has no unwind tables there", module.name)));
            }
            let next =
                self.walker.unwind_frame(at, &mut regs, self.cache, &mut |address| stack.read(address).ok_or(()));
            match next.map(|address| address.and_then(FrameAddress::from_return_address)) {
                Ok(Some(next)) => at = next,
                Ok(None) if self.marked.is_none() => return End::Whole,
                Ok(None) => return End::Lost("the stack ends before the runtime's poll".into()),
                Err(_) if stack.is_cut => {
                    return End::Cut(stack.parts.iter().map(|part| part.words.len() * 8).sum());
                }
                Err(error) => {
                    let address = call.address.wrapping_sub(module.bias);
                    return End::Lost(format!("cannot unwind beyond 0x{address:x} in {}: {error}", module.name));
                }
            }
        }
    }

    /// Continues after code without tables, at the first return address, in the link register or on
    /// the stack, from which a walk reaches the marked function.
    fn search(&mut self, link: u64, regs: Regs) -> Option<End> {
        let (found, sp, fp) = (self.calls.len(), regs.sp(), regs_fp(&regs));
        let stack = self.stack;
        // A wrong stack pointer may be at the end of the addresses.
        let on_stack = (0..SEARCH_WORDS_MAX as u64).map_while(|index| {
            let at = sp.checked_add(8 * index)?;
            Some((stack.read(at)?, at.checked_add(8)?))
        });
        for (address, sp_behind) in std::iter::once((link, sp)).chain(on_stack) {
            let Some(at) = FrameAddress::from_return_address(address) else { continue };
            let lookup = at.address_for_lookup();
            let module = self.modules.find(lookup).filter(|module| module.has_code_at(lookup));
            if module.and_then(|module| module.function(lookup)).is_none() {
                continue;
            }
            self.searches = self.searches.checked_sub(1)?;
            let registers = Registers { ip: address, sp: sp_behind, fp, lr: 0 };
            let end = self.go(at, self::regs(registers, self.walker));
            // An innermost function that has not touched the stack has called nothing, so nothing
            // is left out.
            let is_leaf = found == 1 && sp_behind - sp <= 8;
            match end {
                End::Whole if is_leaf => return Some(End::Whole),
                End::Whole | End::Gap => return Some(End::Gap),
                _ => self.calls.truncate(found),
            }
        }
        None
    }
}

/// A module's sections, looked up by framehop by their names.
struct Tables<'m>(&'m Module);

impl Tables<'_> {
    fn section(&self, name: &[u8]) -> Option<&Section> {
        match name {
            b".eh_frame" => self.0.eh_frame.as_ref(),
            b".eh_frame_hdr" => self.0.eh_frame_hdr.as_ref(),
            _ => None,
        }
    }
}

impl ModuleSectionInfo<Table> for Tables<'_> {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        self.section(name).map(Section::range)
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Table> {
        self.section(name).map(|section| section.bytes.clone())
    }
}

#[cfg(target_arch = "x86_64")]
fn regs(registers: Registers, _walker: &Walker<Table>) -> Regs {
    Regs::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "x86_64")]
fn regs_fp(regs: &Regs) -> u64 {
    regs.bp()
}

#[cfg(target_arch = "aarch64")]
fn regs_fp(regs: &Regs) -> u64 {
    regs.fp()
}

#[cfg(target_arch = "aarch64")]
fn regs(registers: Registers, walker: &Walker<Table>) -> Regs {
    // Return addresses may be signed in their upper bits.
    let mask = PtrAuthMask::from_max_known_address(walker.max_known_code_address());
    Regs::new_with_ptr_auth_mask(mask, registers.lr, registers.sp, registers.fp)
}

/// Returns the registers of the code that a handler interrupted, if `address` is where that handler
/// returns to. This is so if the C library's or the kernel's code for returning from handlers is
/// there. The saved registers are then at `sp`.
fn interrupted(module: &Module, address: u64, sp: u64, stack: &RawStack) -> Option<Registers> {
    let code = module.instructions(address)?;
    if !RETURNS_FROM_HANDLER.iter().any(|instructions| code.starts_with(instructions)) {
        return None;
    }
    let register = |offset: usize| stack.read(sp.checked_add(SAVED_AT + offset as u64)?);
    saved(register)
}

/// `mov $15, %rax` or `%eax`, and `syscall`: `rt_sigreturn`.
#[cfg(target_arch = "x86_64")]
const RETURNS_FROM_HANDLER: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];
/// `mov x8, #139` and `svc #0`.
#[cfg(target_arch = "aarch64")]
const RETURNS_FROM_HANDLER: [&[u8]; 1] = [&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]];

/// Where the kernel's `ucontext` begins: at the stack pointer, after the return address is popped.
#[cfg(target_arch = "x86_64")]
const SAVED_AT: u64 = 0;
/// The `ucontext` follows the `siginfo`.
#[cfg(target_arch = "aarch64")]
const SAVED_AT: u64 = size_of::<libc::siginfo_t>() as u64;

#[cfg(target_arch = "x86_64")]
fn saved(register: impl Fn(usize) -> Option<u64>) -> Option<Registers> {
    const REGISTERS: usize = std::mem::offset_of!(libc::ucontext_t, uc_mcontext.gregs);
    let register = |index: std::ffi::c_int| register(REGISTERS + 8 * index as usize);
    Some(Registers { ip: register(libc::REG_RIP)?, sp: register(libc::REG_RSP)?, fp: register(libc::REG_RBP)?, lr: 0 })
}

#[cfg(target_arch = "aarch64")]
fn saved(register: impl Fn(usize) -> Option<u64>) -> Option<Registers> {
    const REGISTERS: usize = std::mem::offset_of!(libc::ucontext_t, uc_mcontext.regs);
    Some(Registers {
        ip: register(std::mem::offset_of!(libc::ucontext_t, uc_mcontext.pc))?,
        sp: register(std::mem::offset_of!(libc::ucontext_t, uc_mcontext.sp))?,
        fp: register(REGISTERS + 8 * 29)?,
        lr: register(REGISTERS + 8 * 30)?,
    })
}
