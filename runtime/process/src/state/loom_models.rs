//! loom models of the state word. For each property there is a model of the protocol as built, and
//! twins with one step done wrong, in which loom must find an error. E1 to E3 and R1 to R4 are the
//! steps of the parent module.
//!
//! A mailbox of two relaxed cells replaces the real one, which has a lock: only the state word may
//! order the access to it. A task that is woken is polled after all threads have finished, as if it
//! had been queued.

use loom::thread;

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use volt_explore::{breaks, holds};

/// A process: its state word, its mailbox, and whether it must exit.
struct Process {
    state: State,
    messages: [AtomicBool; 2],
    completion: AtomicBool,
    has_exit_reason: AtomicBool,
    /// How often `complete` returned true.
    ends: AtomicU32,
}

/// The events that the steps have taken out of the mailbox.
#[derive(Debug, Default)]
struct Seen {
    messages: usize,
    completions: usize,
    steps: usize,
}

impl Process {
    fn new() -> Self {
        let places = || AtomicBool::new(false);
        Self {
            state: State::new(),
            messages: [places(), places()],
            completion: places(),
            has_exit_reason: places(),
            ends: AtomicU32::new(0),
        }
    }

    fn has_mail(&self) -> bool {
        self.messages.iter().any(|message| message.load(Ordering::Relaxed))
    }

    fn end(&self) {
        if self.state.complete() {
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The steps that a twin can replace with a faulty one.
trait Steps: 'static {
    fn begin(process: &Process) -> Begin {
        process.state.begin()
    }

    fn end(process: &Process, until: Until) -> End {
        process.state.end(until)
    }

    /// E1 and E2.
    fn send(process: &Process, place: usize) -> bool {
        process.messages[place].store(true, Ordering::Relaxed);
        process.state.mail()
    }

    /// E1 and E2.
    fn complete_yield(process: &Process) -> bool {
        process.completion.store(true, Ordering::Relaxed);
        process.state.wake()
    }

    fn request_exit(process: &Process) -> bool {
        process.has_exit_reason.store(true, Ordering::Relaxed);
        process.state.request_exit()
    }

    fn complete(process: &Process) -> bool {
        process.state.complete()
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// Polls the process's task until it rests or has exited. The process waits for its yield until
/// that has completed, and for messages from then on.
fn polled<S: Steps>(process: &Process, seen: &mut Seen, has_yielded: bool) {
    loop {
        match S::begin(process) {
            Begin::Step => {}
            Begin::Exit => {
                assert!(process.has_exit_reason.load(Ordering::Relaxed), "it exits without a reason");
                return process.end();
            }
            Begin::Rest | Begin::Complete => return,
        }
        // R2.
        let (before, waited) = (seen.completions, has_yielded && seen.steps > 0 && seen.completions == 0);
        for message in &process.messages {
            // A cell is cleared only if it is set: R2 must not add a store to the order of the
            // cells.
            if message.load(Ordering::Relaxed) {
                message.store(false, Ordering::Relaxed);
                seen.messages += 1;
            }
        }
        if process.completion.load(Ordering::Relaxed) {
            process.completion.store(false, Ordering::Relaxed);
            seen.completions += 1;
        }
        // R3.
        seen.steps += 1;
        assert!(!waited || seen.completions > before, "a blocked process is disturbed");
        let until = if has_yielded && seen.completions == 0 { Until::Completed } else { Until::Event };
        if S::end(process, until) != End::Again {
            return;
        }
    }
}

type Other = fn(&Process) -> bool;

/// Runs the others and the runner concurrently. Then polls the task as often as the others had to
/// wake it.
fn together<S: Steps>(others: &[Other], has_yielded: bool) -> (Arc<Process>, Seen) {
    let process = Arc::new(Process::new());
    let others: Vec<_> = others
        .iter()
        .map(|&other| {
            let process = process.clone();
            thread::spawn(move || other(&process))
        })
        .collect();
    let runner = thread::spawn({
        let process = process.clone();
        move || {
            let mut seen = Seen::default();
            polled::<S>(&process, &mut seen, has_yielded);
            seen
        }
    });
    let mut seen = runner.join().unwrap();
    let woken = others.into_iter().map(|other| other.join().unwrap()).filter(|woken| *woken).count();
    assert!(woken <= 1, "a task that is queued is woken again");
    if woken == 1 {
        polled::<S>(&process, &mut seen, has_yielded);
    }
    (process, seen)
}

fn first<S: Steps>(process: &Process) -> bool {
    S::send(process, 0)
}

fn second<S: Steps>(process: &Process) -> bool {
    S::send(process, 1)
}

// ---- messages, and a completion, in the middle of a step ----------------------------------------

/// Two senders race with a process that steps and then waits for messages.
fn senders<S: Steps>() {
    let (process, seen) = together::<S>(&[first::<S>, second::<S>], false);
    assert_eq!((seen.messages, process.state.lifecycle()), (2, Lifecycle::Idle), "an event is lost");
}

/// A completion races with a process that steps and then waits for it.
fn completer<S: Steps>() {
    let (process, seen) = together::<S>(&[S::complete_yield], true);
    assert_eq!((seen.completions, process.state.lifecycle()), (1, Lifecycle::Idle), "an event is lost");
}

/// A message and a completion race with a process that waits for its yield. It steps only for the
/// completion, and receives both.
fn sender_and_completer<S: Steps>() {
    let (process, seen) = together::<S>(&[first::<S>, S::complete_yield], true);
    let found = (seen.messages, seen.completions, process.state.lifecycle());
    assert_eq!(found, (1, 1, Lifecycle::Idle), "an event is lost");
}

#[test]
fn a_message_that_meets_the_end_of_a_step_is_seen() {
    holds(Some(2), senders::<AsBuilt>);
}

#[test]
fn a_completion_that_meets_the_end_of_a_step_is_seen() {
    holds(None, completer::<AsBuilt>);
}

#[test]
fn a_message_starts_no_step_and_arrives_with_the_completion() {
    holds(Some(2), sender_and_completer::<AsBuilt>);
}

/// E2 before E1.
struct NotifiesFirst;

impl Steps for NotifiesFirst {
    fn send(process: &Process, place: usize) -> bool {
        let wakes = process.state.mail();
        process.messages[place].store(true, Ordering::Relaxed);
        wakes
    }

    fn complete_yield(process: &Process) -> bool {
        let wakes = process.state.wake();
        process.completion.store(true, Ordering::Relaxed);
        wakes
    }
}

#[test]
fn twin_a_message_announced_before_it_is_stored_is_found() {
    breaks("an event is lost", Some(2), senders::<NotifiesFirst>);
}

#[test]
fn twin_a_completion_announced_before_it_is_stored_is_found() {
    breaks("an event is lost", None, completer::<NotifiesFirst>);
}

/// E2 is only a plain load if the flag is already set.
struct ReturnsEarly;

impl Steps for ReturnsEarly {
    fn send(process: &Process, place: usize) -> bool {
        process.messages[place].store(true, Ordering::Relaxed);
        !Word(process.state.0.load(Ordering::Relaxed)).has(MAIL) && process.state.mail()
    }
}

#[test]
fn twin_an_early_return_on_a_flag_that_is_set_already_is_found() {
    breaks("an event is lost", Some(2), senders::<ReturnsEarly>);
}

/// R4 without the check of one flag.
fn end_without_a_check_of(process: &Process, flag: u32, until: Until) -> End {
    let word = process.state.change(|word| match (word.lifecycle(), until) {
        (COMPLETE, _) => None,
        _ if word.without(flag).has(WOKEN | EXIT) => Some(word.with_lifecycle(READY)),
        (_, Until::Event) if word.without(flag).has(MAIL) => Some(word.with_lifecycle(READY)),
        (_, Until::Completed) => Some(word.without(flag).with_lifecycle(BLOCKED)),
        _ => Some(word.without(flag).with_lifecycle(IDLE)),
    });
    match word.without(flag) {
        word if word.lifecycle() == COMPLETE => End::Complete,
        word if word.has(WOKEN | EXIT) || (until == Until::Event && word.has(MAIL)) => End::Again,
        _ => End::Rest,
    }
}

struct IgnoresMail;

impl Steps for IgnoresMail {
    fn end(process: &Process, until: Until) -> End {
        end_without_a_check_of(process, MAIL, until)
    }
}

#[test]
fn twin_an_end_of_a_step_that_ignores_mail_is_found() {
    breaks("an event is lost", Some(2), senders::<IgnoresMail>);
}

struct IgnoresWoken;

impl Steps for IgnoresWoken {
    fn end(process: &Process, until: Until) -> End {
        end_without_a_check_of(process, WOKEN, until)
    }
}

#[test]
fn twin_an_end_of_a_step_that_ignores_a_completion_is_found() {
    breaks("an event is lost", None, completer::<IgnoresWoken>);
}

/// R1 clears the flags without acquiring the events behind them.
struct BeginsRelaxed;

impl Steps for BeginsRelaxed {
    fn begin(process: &Process) -> Begin {
        let state = &process.state.0;
        let begin = |word: u32| {
            let ready = Word(word).lifecycle() == READY;
            ready.then(|| Word(word).with_lifecycle(RUNNING).without(WOKEN | MAIL).0)
        };
        match state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin) {
            Ok(_) => Begin::Step,
            Err(_) => Begin::Rest,
        }
    }

    fn end(process: &Process, until: Until) -> End {
        let word = Word(process.state.0.load(Ordering::Relaxed));
        let next = if word.has(WOKEN) || (until == Until::Event && word.has(MAIL)) {
            READY
        } else if until == Until::Event {
            IDLE
        } else {
            BLOCKED
        };
        let next = word.with_lifecycle(next).0;
        match process.state.0.compare_exchange(word.0, next, Ordering::Release, Ordering::Relaxed) {
            Ok(_) if Word(next).lifecycle() == READY => End::Again,
            Ok(_) => End::Rest,
            Err(_) => Self::end(process, until),
        }
    }
}

#[test]
fn twin_a_step_that_does_not_acquire_its_events_is_found() {
    breaks("an event is lost", Some(2), senders::<BeginsRelaxed>);
}

/// One flag for messages and completions: a message steps a process that waits for its yield.
struct OneFlag;

impl Steps for OneFlag {
    fn send(process: &Process, place: usize) -> bool {
        process.messages[place].store(true, Ordering::Relaxed);
        process.state.wake()
    }
}

#[test]
fn twin_one_flag_for_messages_and_completions_is_found() {
    breaks("a blocked process is disturbed", Some(2), sender_and_completer::<OneFlag>);
}

// ---- a process that must exit -------------------------------------------------------------------

/// A message, a completion and an exit request race with a step. The process exits once, and the
/// reason is visible.
fn exits<S: Steps>() {
    let (process, seen) = together::<S>(&[first::<S>, S::complete_yield, S::request_exit], true);
    let ends = process.ends.load(Ordering::Relaxed);
    assert_eq!((ends, process.state.lifecycle()), (1, Lifecycle::Complete), "a process that must exit lives");
    assert!(seen.messages + usize::from(process.has_mail()) == 1, "an event is lost");
}

#[test]
fn an_exit_request_at_the_end_of_a_step_ends_the_process() {
    holds(Some(2), exits::<AsBuilt>);
}

struct IgnoresExit;

impl Steps for IgnoresExit {
    fn end(process: &Process, until: Until) -> End {
        end_without_a_check_of(process, EXIT, until)
    }
}

#[test]
fn twin_an_end_of_a_step_that_ignores_an_exit_is_found() {
    breaks("a process that must exit lives", Some(2), exits::<IgnoresExit>);
}

/// The process finishes its step while a shutdown gives up waiting. The first of the two to call
/// `complete` notifies the others.
fn two_completions<S: Steps>() {
    let process = Arc::new(Process::new());
    let runner = thread::spawn({
        let process = process.clone();
        move || match process.state.begin() {
            Begin::Step => S::complete(&process),
            // The shutdown was faster.
            Begin::Complete => false,
            other => panic!("{other:?}"),
        }
    });
    let shutdown = thread::spawn({
        let process = process.clone();
        move || S::complete(&process)
    });
    let ended = [runner, shutdown].map(|end| end.join().unwrap());
    assert_eq!(ended.iter().filter(|ended| **ended).count(), 1, "it is notified {ended:?}");
    assert_eq!(process.state.begin(), Begin::Complete);
    assert!(!process.state.mail() && !process.state.wake() && !process.state.request_exit());
}

#[test]
fn of_two_completions_of_a_process_one_notifies_the_others() {
    holds(None, two_completions::<AsBuilt>);
}

struct CompletesByStore;

impl Steps for CompletesByStore {
    fn complete(process: &Process) -> bool {
        let was = Word(process.state.0.load(Ordering::Acquire)).lifecycle();
        process.state.0.store(COMPLETE, Ordering::Release);
        was != COMPLETE
    }
}

#[test]
fn twin_an_exit_by_a_store_is_reported_twice() {
    breaks("it is notified [true, true]", None, two_completions::<CompletesByStore>);
}

/// A shutdown completes a process in the middle of its step. `end` reports that, and changes
/// nothing.
fn step_that_outlives_its_process<S: Steps>() {
    let process = Arc::new(Process::new());
    assert_eq!(S::begin(&process), Begin::Step);
    let shutdown = thread::spawn({
        let process = process.clone();
        move || S::complete(&process)
    });
    let end = S::end(&process, Until::Event);
    assert!(shutdown.join().unwrap() && matches!(end, End::Rest | End::Complete));
    assert_eq!(process.state.lifecycle(), Lifecycle::Complete, "a process that has exited lives");
    assert_eq!(process.state.begin(), Begin::Complete);
}

#[test]
fn a_step_that_outlives_its_process_changes_nothing() {
    holds(None, step_that_outlives_its_process::<AsBuilt>);
}

/// R4 by a load and a store.
struct EndsByStore;

impl Steps for EndsByStore {
    fn end(process: &Process, _until: Until) -> End {
        let word = Word(process.state.0.load(Ordering::Acquire));
        if word.lifecycle() == COMPLETE {
            return End::Complete;
        }
        process.state.0.store(word.with_lifecycle(IDLE).0, Ordering::Release);
        End::Rest
    }
}

#[test]
fn twin_a_step_that_ends_by_a_store_is_found() {
    breaks("a process that has exited lives", None, step_that_outlives_its_process::<EndsByStore>);
}
