//! Tests of difficult cases (a stack that is too deep or foreign, no answer, no thread), and of the
//! cost of one stack.

use std::ffi::c_void;
use std::os::unix::thread::JoinHandleExt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

#[inline(never)]
fn deep(levels: usize, work: &dyn Fn()) {
    let frame = black_box([0_u8; 4096]);
    if levels == 0 {
        guilty_line(work)
    } else {
        deep(levels - 1, work)
    }
    black_box(frame);
}

#[test]
fn a_stack_deeper_than_the_page_is_truncated_with_a_note() {
    let sampler = sampler();
    let victim = Victim::run(&sampler, |is_over, begun| deep(40, &|| repeat(is_over, begun, &|| {})));
    let resolved = stack_of(&sampler, &victim);
    assert_eq!(names(&resolved, "::guilty_line").unwrap().line, Some(GUILTY_LINE));
    let deep =
        resolved.frames.iter().filter(|frame| frame.function.as_ref().is_some_and(|name| name.ends_with("::deep")));
    assert!((3..20).contains(&deep.count()), "{resolved:#?}");
    assert_eq!(resolved.error.as_deref(), Some("deeper than the 64 KiB that were copied: the outer calls are missing"));
    victim.end();
}

#[inline(never)]
fn narrow(levels: usize, work: &dyn Fn()) {
    if levels == 0 {
        guilty_line(work)
    } else {
        narrow(levels - 1, work)
    }
    black_box(levels);
}

#[test]
fn a_deep_recursion_is_truncated_with_a_note() {
    let sampler = sampler();
    let victim = Victim::run(&sampler, |is_over, begun| narrow(400, &|| repeat(is_over, begun, &|| {})));
    let resolved = stack_of(&sampler, &victim);
    assert_eq!(names(&resolved, "::guilty_line").unwrap().line, Some(GUILTY_LINE));
    assert!(resolved.frames.len() <= 128, "{}", resolved.frames.len());
    assert!(
        resolved.error.as_ref().is_some_and(|error| error.contains("deeper than 256 calls")),
        "{:?}",
        resolved.error
    );
    victim.end();
}

/// Calls, with prologues and epilogues that can be interrupted.
#[inline(never)]
fn fibonacci(n: u32) -> u32 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[test]
fn the_frame_below_a_handler_is_found_at_any_instruction() {
    const ROUNDS: usize = 500;
    let (sampler, signal) = (sampler(), own_signal(3));
    handle(signal, 0, do_in_handler);
    let (entered, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let victim = Victim::run(&sampler, {
        let (entered, left) = (entered.clone(), left.clone());
        move |is_over, begun| {
            let wait = || {
                let round = entered.fetch_add(1, Ordering::Relaxed);
                while left.load(Ordering::Relaxed) <= round {}
            };
            // Must not take a lock, as malloc does: it would be held until the handler returns, and
            // the resolver allocates.
            let step = || assert_eq!(black_box(fibonacci(black_box(6))), 8);
            with_handler(&wait, || guilty_line(&|| repeat(is_over, begun, &step)));
        }
    });
    let pthread = victim.handle.as_ref().unwrap().as_pthread_t();
    for round in 0..ROUNDS {
        // SAFETY: the thread runs until the end of this test.
        assert_eq!(unsafe { libc::pthread_kill(pthread as libc::pthread_t, signal) }, 0);
        until(|| entered.load(Ordering::Relaxed) > round);
        let resolved = stack_of(&sampler, &victim);
        assert!(names(&resolved, "::do_in_handler").is_some(), "{resolved:#?}");
        if let Some(fault) = fault(&resolved) {
            panic!("round {round}: {fault}");
        }
        left.fetch_add(1, Ordering::Relaxed);
    }
    victim.end();
}

/// The line where [`outer`] waits for [`inner`], and [`inner`] is stuck.
const OUTER_LINE: u32 = line!() + 4;
const INNER_LINE: u32 = line!() + 8;

async fn outer(work: &dyn Fn()) {
    black_box(inner(work).await);
    black_box(OUTER_LINE);
}

async fn inner(work: &dyn Fn()) -> u32 {
    guilty_line(work);
    black_box(INNER_LINE)
}

#[test]
fn a_stack_of_async_functions_reads_down_to_the_line() {
    let sampler = sampler();
    let victim = Victim::run(&sampler, |is_over, begun| {
        let work = || repeat(is_over, begun, &|| {});
        let future = pin!(outer(&work));
        assert_eq!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
    });
    let resolved = stack_of(&sampler, &victim);
    assert_eq!(fault(&resolved), None);
    let own = resolved.frames.iter().skip_while(|frame| frame.line != Some(GUILTY_LINE)).skip(1);
    let own: Vec<_> = own.map(|frame| (frame.function.as_deref().unwrap_or_default(), frame.line)).collect();
    for (index, (function, line)) in [("inner", INNER_LINE), ("outer", OUTER_LINE)].into_iter().enumerate() {
        // With line tables only, an inlined call has its line, but not its name.
        let is_read = own[index].0.ends_with(&format!("::edges::{function}"))
            || own[index].0.starts_with("async fn inlined into ");
        assert!(is_read && own[index].1 == Some(line), "{own:?}");
    }
    assert!(!own.iter().any(|(function, _)| function.contains(['{', '}'])), "{own:?}");
    victim.end();
}

#[test]
fn a_thread_that_ends_is_not_waited_for() {
    let sampler = sampler();
    for spins in 0..500 {
        let (tell, told) = mpsc::channel();
        let handle = thread::spawn({
            let sampler = sampler.clone();
            move || {
                let registered = sampler.register().unwrap();
                tell.send(registered.thread().clone()).unwrap();
                for spin in 0..spins {
                    black_box(spin);
                }
            }
        });
        let thread = told.recv().unwrap();
        loop {
            match sampler.capture(&thread, TIMEOUT) {
                Ok(_) => {}
                Err(CaptureError::Ended) => break,
                Err(error) => panic!("{error}"),
            }
        }
        handle.join().unwrap();
    }
}

#[test]
fn a_registration_ends_with_its_thread_if_the_guard_is_leaked() {
    let sampler = sampler();
    let thread = thread::spawn({
        let sampler = sampler.clone();
        move || {
            let registered = sampler.register().unwrap();
            let thread = registered.thread().clone();
            std::mem::forget(registered);
            thread
        }
    });
    let thread = thread.join().unwrap();
    assert!(matches!(sampler.capture(&thread, TIMEOUT), Err(CaptureError::Ended)));
}

#[test]
fn a_second_registration_of_a_thread_leaves_the_first_as_it_is() {
    let sampler = sampler();
    let first = sampler.register().unwrap();
    let second = sampler.register().unwrap();
    assert!(Arc::ptr_eq(first.thread(), second.thread()));
    drop(second);
    let thread = first.thread().clone();
    assert!(sampler.capture(&thread, TIMEOUT).is_ok(), "a thread may capture itself");
    drop(first);
    assert!(matches!(sampler.capture(&thread, TIMEOUT), Err(CaptureError::Ended)));
}

#[test]
fn a_capture_times_out_and_its_late_answer_is_discarded() {
    let signal = own_signal(4);
    let sampler = Arc::new(Sampler::new(Some(signal)).unwrap());
    let ignores_signals = Arc::new(AtomicBool::new(true));
    let silent = Victim::run(&sampler, {
        let ignores_signals = ignores_signals.clone();
        move |is_over, begun| {
            mask(libc::SIG_BLOCK, signal);
            begun.store(true, Ordering::Relaxed);
            until(|| !ignores_signals.load(Ordering::Relaxed));
            mask(libc::SIG_UNBLOCK, signal);
            guilty_line(&|| repeat(is_over, begun, &|| {}));
        }
    });
    let other = Victim::run(&sampler, |is_over, begun| deep(2, &|| repeat(is_over, begun, &|| {})));
    for _ in 0..10 {
        let error = no_answer(&sampler, &silent.thread);
        assert!(matches!(error, CaptureError::NoAnswer { waited: SOON, is_replaced: false, .. }), "{error:?}");
        let resolved = stack_of(&sampler, &other);
        assert_eq!((fault(&resolved), names(&resolved, "::deep").is_some()), (None, true));
    }
    // The signals of all these requests arrive now, during other requests.
    ignores_signals.store(false, Ordering::Relaxed);
    for _ in 0..STACKS / 10 {
        let resolved = stack_of(&sampler, &other);
        assert!(names(&resolved, "::deep").is_some());
    }
    let resolved = stack_of(&sampler, &silent);
    assert!(names(&resolved, "::deep").is_none());
    silent.end();
    other.end();
}

#[test]
fn simultaneous_requests_get_the_stacks_of_their_threads() {
    let sampler = sampler();
    let shallow = Victim::stuck(&sampler, || {});
    let below = Victim::run(&sampler, |is_over, begun| deep(2, &|| repeat(is_over, begun, &|| {})));
    thread::scope(|scope| {
        for (victim, is_deep) in [(&shallow, false), (&below, true), (&shallow, false), (&below, true)] {
            let sampler = &sampler;
            scope.spawn(move || {
                for _ in 0..STACKS / 10 {
                    let resolved = stack_of(sampler, victim);
                    assert_eq!((fault(&resolved), names(&resolved, "::deep").is_some()), (None, is_deep));
                }
            });
        }
    });
    shallow.end();
    below.end();
}

// Calls its argument. It has no unwind table, so its frame cannot be found.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl volt_test_without_tables",
    "volt_test_without_tables:",
    "push rbx",
    "sub rsp, 64",
    "call rdi",
    "add rsp, 64",
    "pop rbx",
    "ret",
);

#[cfg(target_arch = "x86_64")]
#[test]
fn code_without_unwind_tables_is_skipped_and_reported() {
    unsafe extern "C" {
        fn volt_test_without_tables(work: extern "C" fn());
    }
    extern "C" fn run() {
        do_in_handler(0);
    }
    let sampler = sampler();
    let victim = Victim::run(&sampler, |is_over, begun| {
        let work = || guilty_line(&|| repeat(is_over, begun, &|| {}));
        // SAFETY: it calls the function that is passed to it, with the stack aligned.
        with_handler(&work, || unsafe { volt_test_without_tables(run) });
    });
    let resolved = stack_of(&sampler, &victim);
    let at = |function: &str| {
        let is_it = |frame: &Frame| frame.function.as_ref().is_some_and(|name| name.ends_with(function));
        resolved.frames.iter().position(is_it).unwrap_or_else(|| panic!("{function} in {resolved:#?}"))
    };
    assert_eq!(resolved.frames[at("::guilty_line")].line, Some(GUILTY_LINE));
    assert_eq!(at("volt_test_without_tables"), at("::run") + 1);
    assert_eq!(at("::poll_frame"), resolved.frames.len() - 1);
    let error = "calls in code without unwind tables are left out";
    assert_eq!(resolved.error.as_deref(), Some(error));
    victim.end();
}

#[cfg(target_env = "gnu")]
#[test]
fn the_innermost_call_of_an_unknown_stack_is_found() {
    let sampler = sampler();
    let victim = Victim::run(&sampler, |is_over, begun| on_other_stack(&|| repeat(is_over, begun, &|| {})));
    for _ in 0..STACKS / 10 {
        let resolved = stack_of(&sampler, &victim);
        assert!(resolved.frames[0].function.is_some(), "{resolved:#?}");
        assert!(resolved.error.as_ref().is_some_and(|error| error.contains("not its own")), "{resolved:#?}");
    }
    victim.end();
}

/// Runs `work` on another stack, as a coroutine would.
#[cfg(target_env = "gnu")]
fn on_other_stack(work: &dyn Fn()) {
    extern "C" fn run() {
        do_in_handler(0);
    }
    let mut stack = vec![0_u8; 256 * 1024];
    let (mut inside, mut outside) =
        (MaybeUninit::<libc::ucontext_t>::uninit(), MaybeUninit::<libc::ucontext_t>::uninit());
    // SAFETY: writes the current context.
    assert_eq!(unsafe { libc::getcontext(inside.as_mut_ptr()) }, 0);
    // SAFETY: it was written.
    let inside = unsafe { inside.assume_init_mut() };
    inside.uc_stack.ss_sp = stack.as_mut_ptr().cast::<c_void>();
    inside.uc_stack.ss_size = stack.len();
    inside.uc_link = outside.as_mut_ptr();
    // SAFETY: it has a stack, and a context to continue with, which `swapcontext` writes.
    unsafe { libc::makecontext(inside, run, 0) };
    // SAFETY: both are valid contexts, and the stack lives until the call returns.
    with_handler(work, || assert_eq!(unsafe { libc::swapcontext(outside.as_mut_ptr(), inside) }, 0));
}

#[cfg(target_env = "gnu")]
#[test]
fn the_list_of_modules_is_read_again_when_it_changes() {
    let mut modules = super::super::modules::Modules::default();
    assert!(modules.refresh());
    let home = modules.find(poll_frame as *const () as u64).unwrap();
    assert!(home.is_home && home.eh_frame.is_some(), "{}", home.name);
    assert!(modules.list().iter().any(|module| !module.is_home && module.eh_frame.is_some()));
    // Other tests may load libraries meanwhile.
    until(|| !modules.refresh());
    let count = modules.list().len();
    // SAFETY: a library of the C library, without initializers.
    let library = unsafe { libc::dlopen(c"libanl.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    assert!(modules.refresh() && modules.list().len() > count);
    // SAFETY: opened above, and nothing of it is in use.
    unsafe { libc::dlclose(library) };
    assert!(modules.refresh());
}

/// Processor time of this thread, to which other threads do not add.
fn own_ns() -> usize {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as usize * 1_000_000_000 + time.tv_nsec as usize
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations[durations.len() / 2]
}

/// The cost is not asserted, because it depends on what else the machine does. A test of the
/// resolver covers that it reads each call only once.
#[test]
fn a_stack_of_any_depth_is_read_and_its_cost_is_printed() {
    let (sampler, mut resolver) = (sampler(), Resolver::new());
    for (name, levels) in [("shallow", 0), ("64 KiB deep", 20)] {
        let (longest_ns, reset) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let victim = Victim::run(&sampler, {
            let (longest_ns, reset) = (longest_ns.clone(), reset.clone());
            move |is_over, begun| {
                let last_ns = Cell::new(own_ns());
                let measure_gap = || {
                    let now_ns = own_ns();
                    let gap_ns = now_ns - last_ns.replace(now_ns);
                    let before_ns =
                        if reset.swap(false, Ordering::Relaxed) { 0 } else { longest_ns.load(Ordering::Relaxed) };
                    longest_ns.store(before_ns.max(gap_ns), Ordering::Relaxed);
                };
                deep(levels, &|| repeat(is_over, begun, &measure_gap));
            }
        });
        let (mut held, mut taken, mut resolved, mut lines) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for index in 0..STACKS / 4 {
            reset.store(true, Ordering::Relaxed);
            until(|| !reset.load(Ordering::Relaxed));
            let began = Instant::now();
            let stack = sampler.capture(&victim.thread, TIMEOUT).unwrap();
            taken.push(began.elapsed());
            let before_ns = longest_ns.load(Ordering::Relaxed);
            until(|| longest_ns.load(Ordering::Relaxed) >= before_ns.max(1));
            held.push(Duration::from_nanos(longest_ns.load(Ordering::Relaxed) as u64));
            let began = Instant::now();
            let read = resolver.resolve(&stack, Some(marker()));
            let took = began.elapsed();
            let Some(frame) = names(&read, "::repeat") else { panic!("{read:#?}") };
            // Some instructions have no line, and the signal may arrive at one of them.
            lines += u32::from(frame.line.is_some());
            match index {
                0 => println!("{name}: the first of {} frames resolved in {took:?}", read.frames.len()),
                _ => resolved.push(took),
            }
        }
        assert!(lines > 0, "no stack has the line of the call");
        let (held, taken, resolved) = (median(held), median(taken), median(resolved));
        println!(
            "{name}: costs the thread {held:?} of its processor; taken in {taken:?}, resolved in {resolved:?} (medians)"
        );
        victim.end();
    }
}
