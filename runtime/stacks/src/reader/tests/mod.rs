//! Tests with threads in every state in which a poll can be stuck, and thousands of stacks of each.
//! Every stack must name the right line, and no thread may be disturbed.

mod children;
mod edges;
mod files;
mod signals;
mod tape;

use std::cell::Cell;
use std::ffi::c_int;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{panic, ptr};

use volt_telemetry::Frame;

use super::capture::{CaptureError, Sampler, Thread};
use super::raw::RawStack;
use super::symbols::{Resolved, Resolver};
use super::unwind::Marker;

/// Number of stacks per state.
const STACKS: usize = 2_000;
/// How long a thread may take to answer; other tests share the processors.
const TIMEOUT: Duration = Duration::from_secs(20);
/// For threads that do not answer.
const SOON: Duration = Duration::from_millis(20);
/// The line where [`guilty_line`] is stuck.
const GUILTY_LINE: u32 = line!() + 5;

/// The function that each stack must name.
#[inline(never)]
fn guilty_line(work: &dyn Fn()) {
    work();
    // Differs from `poll_frame`: the linker may merge functions with the same code.
    black_box(GUILTY_LINE);
}

/// Stands for the runtime's poll.
#[inline(never)]
fn poll_frame(work: &dyn Fn()) {
    work();
    black_box(());
}

fn marker() -> Marker {
    Marker::function(poll_frame as *const ())
}

/// A registered thread that runs `work` in [`poll_frame`].
struct Victim {
    thread: Arc<Thread>,
    is_over: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Victim {
    /// Starts a thread that repeats `step` in [`guilty_line`]. Returns after the thread has
    /// started.
    fn stuck(sampler: &Arc<Sampler>, step: impl Fn() + Send + 'static) -> Self {
        Self::run(sampler, move |is_over, begun| guilty_line(&|| repeat(is_over, begun, &step)))
    }

    /// Starts a thread that runs `work`, which gets two flags: one that stops it, and one by which
    /// it signals that it has started.
    fn run(sampler: &Arc<Sampler>, work: impl Fn(&AtomicBool, &AtomicBool) + Send + 'static) -> Self {
        let (is_over, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (tell, told) = mpsc::channel();
        let handle = thread::spawn({
            let (sampler, is_over, begun) = (sampler.clone(), is_over.clone(), begun.clone());
            move || {
                let registered = sampler.register().unwrap();
                tell.send(registered.thread().clone()).unwrap();
                poll_frame(&|| work(&is_over, &begun));
            }
        });
        let thread = told.recv().unwrap();
        until(|| begun.load(Ordering::Relaxed));
        Self { thread, is_over, handle: Some(handle) }
    }

    fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.handle.take().unwrap().join().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn repeat(is_over: &AtomicBool, begun: &AtomicBool, step: &dyn Fn()) {
    while !is_over.load(Ordering::Relaxed) {
        begun.store(true, Ordering::Relaxed);
        step();
    }
}

fn until(mut happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < TIMEOUT, "it did not happen in {TIMEOUT:?}");
        thread::yield_now();
    }
}

fn sampler() -> Arc<Sampler> {
    Arc::new(Sampler::new(None).unwrap())
}

fn names<'r>(resolved: &'r Resolved, function: &str) -> Option<&'r Frame> {
    resolved.frames.iter().find(|frame| frame.function.as_ref().is_some_and(|name| name.ends_with(function)))
}

/// Returns what is wrong with the stack of a thread that is stuck in [`guilty_line`], called by
/// [`poll_frame`].
fn fault(resolved: &Resolved) -> Option<String> {
    let guilty = names(resolved, "::guilty_line");
    let is_named = guilty.is_some_and(|guilty| {
        guilty.file.as_ref().is_some_and(|file| file.ends_with("reader/tests/mod.rs"))
            && guilty.line == Some(GUILTY_LINE)
    });
    let reaches_the_poll = resolved
        .frames
        .last()
        .and_then(|last| last.function.as_ref())
        .is_some_and(|name| name.ends_with("::poll_frame"));
    // The functions of musl have no unwind tables.
    let has_gap = cfg!(target_env = "musl")
        && resolved.error.as_ref().is_some_and(|error| error.contains("without unwind tables"));
    let is_whole = reaches_the_poll && (resolved.error.is_none() || has_gap);
    (!is_named || !is_whole).then(|| format!("{resolved:#?}"))
}

/// Resolves with one resolver for all tests: reading the line tables of a debug build is slow.
fn resolve(stack: &RawStack) -> Resolved {
    static RESOLVER: LazyLock<Mutex<Resolver>> = LazyLock::new(|| Mutex::new(Resolver::new()));
    RESOLVER.lock().unwrap_or_else(PoisonError::into_inner).resolve(stack, Some(marker()))
}

/// Captures the current stack of `victim`, without retries.
fn stack_of(sampler: &Sampler, victim: &Victim) -> Resolved {
    resolve(&sampler.capture(&victim.thread, TIMEOUT).unwrap())
}

/// Captures [`STACKS`] stacks, and returns the faults.
fn faults(sampler: &Sampler, victim: &Victim) -> Vec<String> {
    (0..STACKS).filter_map(|_| fault(&stack_of(sampler, victim))).collect()
}

#[track_caller]
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} of {STACKS}: {}", faults.len(), faults[0]);
}

#[test]
fn a_thread_that_spins_is_found() {
    let sampler = sampler();
    let victim = Victim::stuck(&sampler, || {});
    none(&faults(&sampler, &victim));
    victim.end();
}

#[test]
fn a_thread_that_sleeps_is_found() {
    let sampler = sampler();
    let victim = Victim::stuck(&sampler, || thread::sleep(Duration::from_millis(50)));
    none(&faults(&sampler, &victim));
    victim.end();
}

#[test]
fn a_thread_that_waits_for_a_lock_is_found() {
    let (sampler, lock) = (sampler(), Arc::new(Mutex::new(())));
    let held = lock.lock().unwrap();
    let victim = Victim::stuck(&sampler, {
        let lock = lock.clone();
        move || drop(lock.lock())
    });
    none(&faults(&sampler, &victim));
    drop(held);
    victim.end();
}

#[test]
fn a_thread_in_the_allocator_is_found() {
    let (sampler, size) = (sampler(), AtomicUsize::new(1));
    let victim = Victim::stuck(&sampler, move || {
        // From the smallest allocations to mapped ones, each grown in place or moved.
        let len = size.fetch_add(7919, Ordering::Relaxed) % 300_000;
        let mut bytes: Vec<u8> = Vec::with_capacity(len);
        bytes.reserve_exact(len + 4096);
        black_box(bytes);
    });
    none(&faults(&sampler, &victim));
    victim.end();
}

struct Bomb<'c>(&'c Cell<usize>);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[inline(never)]
fn unwound(depth: usize, dropped: &Cell<usize>) {
    let _bomb = Bomb(dropped);
    if depth == 0 {
        // Without the panic hook, which prints.
        panic::resume_unwind(Box::new(()));
    }
    unwound(depth - 1, dropped);
}

#[test]
fn a_thread_that_unwinds_has_a_stack_or_a_reason() {
    let (sampler, mut resolver) = (sampler(), Resolver::new());
    let victim = Victim::stuck(&sampler, || {
        let dropped = Cell::new(0);
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| unwound(10, &dropped))).is_err());
        assert_eq!(dropped.get(), 11);
    });
    let once =
        (0..STACKS).map(|_| resolver.resolve(&sampler.capture(&victim.thread, TIMEOUT).unwrap(), Some(marker())));
    let lost = once
        .filter(|resolved| fault(resolved).is_some())
        .inspect(|resolved| assert!(resolved.error.is_some(), "{resolved:#?}"))
        .count();
    // While a panic passes from frame to frame, the stack is inconsistent for some instructions.
    println!("{lost} of {STACKS} were taken at a bad moment");

    let again = (0..STACKS)
        .filter_map(|_| fault(&resolver.stack_of(&sampler, &victim.thread, Some(marker()), TIMEOUT).unwrap()));
    let lost: Vec<_> = again.collect();
    assert!(lost.len() <= STACKS / 100, "{}: {}", lost.len(), lost[0]);
    victim.end();
}

/// Installs `handler` for `signal`.
fn handle(signal: c_int, flags: c_int, handler: extern "C" fn(c_int)) {
    handle_with_mask(signal, flags, signal, handler);
}

/// Like [`handle`], with another signal blocked while the handler runs.
fn handle_with_mask(signal: c_int, flags: c_int, blocked: c_int, handler: extern "C" fn(c_int)) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero is valid for all of its fields.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = flags;
    // SAFETY: a valid set.
    unsafe { libc::sigaddset(&raw mut action.sa_mask, blocked) };
    // SAFETY: the action is complete.
    assert_eq!(unsafe { libc::sigaction(signal, action, ptr::null_mut()) }, 0);
}

fn raise(signal: c_int) {
    // SAFETY: sends this thread a signal that is handled.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Blocks or unblocks `signal` in this thread. Returns whether it was blocked.
fn mask(how: c_int, signal: c_int) -> bool {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: initializes it as an empty set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: it is a valid set.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: likewise; and there is room for the former one.
    assert_eq!(unsafe { libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr()) }, 0);
    // SAFETY: it was written.
    unsafe { libc::sigismember(before.as_ptr(), signal) == 1 }
}

/// Returns the error for a thread that does not answer. Retries while other requesters are busy.
fn no_answer(sampler: &Sampler, thread: &Thread) -> CaptureError {
    let began = Instant::now();
    loop {
        let requested_at = Instant::now();
        match sampler.capture(thread, SOON).unwrap_err() {
            // Other tests make requests, too.
            CaptureError::Busy => assert!(began.elapsed() < TIMEOUT),
            error => {
                assert!(requested_at.elapsed() >= SOON);
                return error;
            }
        }
    }
}

/// A signal that only one test uses.
fn own_signal(index: c_int) -> c_int {
    libc::SIGRTMIN() + index
}

thread_local! {
    /// The action of the handlers of these tests on this thread.
    static IN_HANDLER: Cell<Option<&'static dyn Fn()>> = const { Cell::new(None) };
}

extern "C" fn do_in_handler(_signal: c_int) {
    if let Some(work) = IN_HANDLER.get() {
        work();
    }
}

/// Makes the handlers run `work` while this thread runs `meanwhile`.
fn with_handler(work: &dyn Fn(), meanwhile: impl FnOnce()) {
    // SAFETY: removed again below, before its borrows end.
    IN_HANDLER.set(Some(unsafe { std::mem::transmute::<&dyn Fn(), &'static dyn Fn()>(work) }));
    meanwhile();
    IN_HANDLER.set(None);
}

/// A victim that is stuck in the handler of a signal that it sends to itself.
fn stuck_in_handler(sampler: &Arc<Sampler>, signal: c_int, prepare: fn()) -> Victim {
    Victim::run(sampler, move |is_over, begun| {
        prepare();
        with_handler(&|| guilty_line(&|| repeat(is_over, begun, &|| {})), || raise(signal));
    })
}

#[test]
fn a_thread_in_another_signal_handler_is_unwound_completely() {
    let (sampler, signal) = (sampler(), own_signal(1));
    handle(signal, 0, do_in_handler);
    let victim = stuck_in_handler(&sampler, signal, || {});
    none(&faults(&sampler, &victim));
    victim.end();
}

/// Gives this thread an alternate stack of 64 KiB, which is never freed.
fn use_alternate_stack() {
    let memory = Box::leak(vec![0_u8; 64 * 1024].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the memory belongs to this thread and is never freed.
    assert_eq!(unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) }, 0);
}

#[test]
fn a_thread_on_its_alternate_stack_is_unwound_completely() {
    let (sampler, signal) = (sampler(), own_signal(2));
    handle(signal, libc::SA_ONSTACK, do_in_handler);
    let victim = stuck_in_handler(&sampler, signal, use_alternate_stack);
    none(&faults(&sampler, &victim));
    victim.end();
}
