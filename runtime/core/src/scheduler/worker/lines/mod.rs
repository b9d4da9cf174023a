//! Counts the cache lines that move between workers, per operation and by the number of workers.
//!
//! A line that two workers write must move from the cache of one processor to that of the other
//! whenever they write in turns. On a machine with many processors such moves limit what a program
//! gains from more workers. They cannot be timed on a machine with two, but they can be counted:
//! the workers, queues, tasks, timers and the idle set here are the real ones, on a thread each.
//! One thread at a time does an operation, under valgrind, which prints each access to memory
//! (`trace`). `threads` has the threads and `cases` the operations. `runtime/benches/SCALE.md`
//! explains the figures.
//!
//! The workers do each operation in turn, so that every line that two of them write moves every
//! time. A real program moves it at most as often. The figures do not depend on the load of the
//! machine or on time: the clock stands still. Therefore readings of the clock are left out, and so
//! is the sleep itself. There are too few spawns for a worker to need a second block of ids. They
//! do depend on which data the allocator puts into the same line: in three runs of one build, 40 of
//! 45 cells were equal, three differed by at most 3 lines, and two by 10 and 20.
//!
//! An ordinary run: `.ci/measure lines` starts the test below. For each number of workers, the test
//! starts itself again under valgrind, as the *traced program*, and reads the trace from a pipe.
//! The traced program prints where its marks are, waits until the other side has read that, and
//! does the operations. At the end it prints which structures are at which addresses, so that the
//! lines that moved can be named.
//!
//! The test fails if an operation other than a sweep moves more lines, or takes more instructions,
//! with more workers. A *sweep* checks the queues of all workers; a worker does one before it
//! parks.

use std::fmt::Write;
use std::io::{BufRead, BufReader, Write as _};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::clock;

mod cases;
mod threads;
mod trace;

use cases::CASES;
use threads::{ANNOUNCED, NOW_NS, Threads, World, announce};
use trace::{Count, LINE, Mark, Trace};

const WORKERS: [usize; 6] = [1, 2, 4, 8, 32, 64];
/// Rounds before those that are counted, in which lines come to the workers for the first time.
const ROUNDS_BEFORE: usize = 1;
/// The rounds that are counted; a round is one operation for each worker.
const ROUNDS: usize = 2;
/// How many more lines an operation that is no sweep may move with the most workers. Which data
/// lies next to other data differs from one number of workers to the next. A line for each worker
/// would be twenty times as many.
const MORE_LINES_MAX: f64 = 3.0;
/// By which factor the instructions of such an operation may differ.
const INSTRUCTIONS_RATIO_MAX: f64 = 1.05;
/// In the traced program: the number of workers.
const VARIABLE: &str = "VOLT_LINES_WORKERS";

/// Returns the addresses of what `value` is made of.
fn place_of<T: ?Sized>(value: &T) -> Range<usize> {
    let begin = ptr::from_ref(value).addr();
    begin..begin + size_of_val(value)
}

/// Returns names of addresses. Of two that contain an address, the first one applies.
fn names_of(world: &World) -> Vec<(&'static str, Range<usize>)> {
    const COUNTS: usize = 2 * size_of::<usize>();
    let shared = &*world.shared;
    let driver = ptr::from_ref(&*shared.workers.driver).addr();
    let counts = driver - align_of_val(&*shared.workers.driver).max(COUNTS);
    let mut names = vec![
        ("global queue", place_of(&shared.workers.injector)),
        ("count of submits", place_of(&shared.workers.intake.submits)),
        ("idle set", place_of(&shared.workers.idle)),
        ("worker slots", place_of(&shared.workers.slots)),
        ("leases", place_of(&*shared.lifecycle.leases)),
        ("runtime, other", place_of(shared)),
        ("references to the driver", counts..driver),
        ("timers", place_of(&shared.workers.driver.timers)),
        ("driver, other", place_of(&*shared.workers.driver)),
    ];
    for remote in &shared.workers.remotes {
        names.push(("cells of a worker", place_of(&*remote.cells)));
        names.push(("inbox of a worker", place_of(&remote.inbox)));
        names.push(("LIFO slot", place_of(&remote.lifo)));
        names.push(("park word", place_of(&remote.parker)));
        names.push(("remote of a worker, other", place_of(&**remote)));
    }
    names.extend(world.tasks.sockets.iter().map(|socket| ("readiness of a socket", place_of(&**socket))));
    let tasks = world.tasks.all_wakers().map(|waker| waker.data().addr());
    names.extend(tasks.map(|task| ("task", task..task + 128)));
    names
}

/// The traced program.
fn be_traced(workers: usize) {
    clock::simulated::set(Some(NOW_NS));
    let threads = Threads::new(workers);
    (0..workers).for_each(|worker| threads.run(worker, cases::prepare, false));
    let passed = place_of(threads.world.tasks.passed());
    println!("marks {:x} {:x} {:x}", ptr::from_ref(&ANNOUNCED).addr(), passed.start, passed.end);
    std::io::stdin().read_line(&mut String::new()).expect("the other side continues");
    for (index, case) in CASES.iter().enumerate() {
        announce(Mark::Case(index));
        for round in 0..ROUNDS_BEFORE + ROUNDS {
            if round == ROUNDS_BEFORE {
                announce(Mark::Count);
            }
            (0..case.per_round(workers)).for_each(|worker| (case.step)(&threads, worker));
        }
    }
    for (name, place) in names_of(threads.world) {
        println!("name {:x} {:x} {name}", place.start, place.end);
    }
    // The tasks wait for ever.
    std::process::exit(0);
}

/// The counts with one number of workers, per operation.
struct Figures {
    moves: Vec<f64>,
    instructions: Vec<f64>,
    /// The moves by the name of the line, most first.
    named: Vec<Vec<(String, f64)>>,
}

fn measure(workers: usize) -> Figures {
    let this = std::env::current_exe().expect("the program has a path");
    let name = format!("{}::{TEST}", module_path!().split_once("::").expect("it is in a crate").1);
    let mut traced = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .arg(this)
        .args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, workers.to_string())
        // An arena for each thread, as on a machine with as many processors.
        .env("MALLOC_ARENA_MAX", "256")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("valgrind is installed");
    let stdout = BufReader::new(traced.stdout.take().expect("it is piped"));
    let stderr = BufReader::with_capacity(1 << 20, traced.stderr.take().expect("it is piped"));
    let places: Arc<OnceLock<[usize; 3]>> = Arc::default();
    let reader = thread::spawn({
        let places = places.clone();
        move || read_trace(stderr, &places)
    });
    let mut names = Vec::new();
    for line in stdout.lines().map(|line| line.expect("it is text")) {
        // The harness of the tests prints, too.
        if let Some((_, marks)) = line.split_once("marks ") {
            let numbers: Vec<_> = marks.split(' ').map(hexadecimal).collect();
            places.set(numbers.try_into().expect("three numbers")).expect("they are printed once");
            let stdin = traced.stdin.as_mut().expect("it is piped");
            stdin.write_all(b"\n").expect("the traced program waits");
        } else if let Some(name) = line.strip_prefix("name ") {
            let parts: Vec<_> = name.splitn(3, ' ').collect();
            names.push((hexadecimal(parts[0])..hexadecimal(parts[1]), parts[2].to_owned()));
        }
    }
    let (cases, messages) = reader.join().expect("the trace was read");
    assert!(traced.wait().expect("it has ended").success() && cases.len() == CASES.len(), "{messages}");
    let per_step = |case: usize, count: u64| count as f64 / (ROUNDS * CASES[case].per_round(workers)) as f64;
    let named = cases.iter().enumerate().map(|(case, count)| named(count, &names, |moves| per_step(case, moves)));
    Figures {
        named: named.collect(),
        moves: cases.iter().enumerate().map(|(case, count)| per_step(case, count.moves)).collect(),
        instructions: cases.iter().enumerate().map(|(case, count)| per_step(case, count.instructions)).collect(),
    }
}

fn hexadecimal(digits: &str) -> usize {
    usize::from_str_radix(digits, 16).expect("a hexadecimal number")
}

/// Reads the trace until it ends. Returns what was counted, and the last messages.
fn read_trace(mut from: impl BufRead, places: &OnceLock<[usize; 3]>) -> (Vec<Count>, String) {
    const MESSAGES_MAX: usize = 10_000;
    let (mut trace, mut text, mut messages) = (None, Vec::new(), String::new());
    while from.read_until(b'\n', &mut text).expect("the pipe is open") > 0 {
        if !text.starts_with(b" ") && !text.starts_with(b"I") && messages.len() < MESSAGES_MAX {
            messages.push_str(&String::from_utf8_lossy(&text));
        }
        // Before the traced program has printed its marks, it makes none.
        if let Some(&[marks, begin, end]) = places.get() {
            trace.get_or_insert_with(|| Trace::new(marks, begin..end, CASES.len())).read(&text);
        }
        text.clear();
    }
    (trace.map_or_else(Vec::new, |trace| trace.cases), messages)
}

/// Returns the moves by name, per operation, most first.
fn named(count: &Count, names: &[(Range<usize>, String)], per_step: impl Fn(u64) -> f64) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = Vec::new();
    for (line, moves) in &count.by_line {
        let addresses = line * LINE..(line + 1) * LINE;
        let is_in = |place: &Range<usize>| place.start < addresses.end && addresses.start < place.end;
        let name = names.iter().find(|(place, _)| is_in(place)).map_or("not named", |(_, name)| name);
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += per_step(*moves),
            None => all.push((name.to_owned(), per_step(*moves))),
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// The name of the test below, which starts itself again.
const TEST: &str = "no_operation_but_a_sweep_costs_more_with_more_workers";

#[test]
#[ignore = "needs valgrind and minutes: .ci/measure lines"]
fn no_operation_but_a_sweep_costs_more_with_more_workers() {
    if let Ok(workers) = std::env::var(VARIABLE) {
        return be_traced(workers.parse().expect("a number of workers"));
    }
    let figures: Vec<_> = WORKERS.into_iter().map(measure).collect();
    let workers = WORKERS.map(|workers| workers.to_string()).join(" | ");
    let [few, many] = [1, WORKERS.len() - 1];
    let ratio_of = format!("instructions with {} workers, of those with {}", WORKERS[many], WORKERS[few]);
    let mut table = format!("\n\n| lines that move, by workers | {workers} | {ratio_of} |\n");
    let _ = writeln!(table, "|{}", "---|".repeat(WORKERS.len() + 2));
    let mut growing = Vec::new();
    for (index, case) in CASES.iter().enumerate() {
        let moves = figures.iter().map(|figures| figures.moves[index]).collect::<Vec<_>>();
        let cells = moves.iter().map(|moves| format!("{moves:.1}")).collect::<Vec<_>>().join(" | ");
        let ratio = figures[many].instructions[index] / figures[few].instructions[index];
        let _ = writeln!(table, "| {} | {cells} | {ratio:.2} |", case.name);
        let is_more = moves[many] > moves[few] + MORE_LINES_MAX || ratio > INSTRUCTIONS_RATIO_MAX;
        if is_more && !case.is_sweep {
            growing.push(case.name);
        }
    }
    println!("{table}");
    for (workers, figures) in WORKERS.into_iter().zip(&figures) {
        println!("with {workers} workers:");
        for (case, named) in CASES.iter().zip(&figures.named) {
            println!("  {}:", case.name);
            for (name, moves) in named {
                println!("    {moves:6.2} {name}");
            }
        }
    }
    assert!(growing.is_empty(), "these cost more with more workers: {growing:?}");
}
