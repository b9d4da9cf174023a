//! Compares the lists of `docs/operations.md` with what a real program has: its threads, file
//! descriptors, signal handlers, environment variables and system calls.

mod seccomp;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::folder::Folder;
use crate::watchdog::{alone, alone_with, watched};
use rustix::process::Signal;
use volt::{Builder, Runtime};
use volt_telemetry::client::Client;
use volt_telemetry::dump::Query;

const PAGE: &str = include_str!("../../../../docs/operations.md");

/// Returns the code spans in the first column of the table below a heading.
fn listed(heading: &str) -> BTreeSet<String> {
    let (_, section) = PAGE.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
    let names: BTreeSet<_> = names.map(str::to_owned).collect();
    assert!(!names.is_empty(), "the table below {heading} has no rows");
    names
}

/// Replaces each number in a name by `N`.
fn without_numbers(name: &str) -> String {
    let mut text = String::new();
    for char in name.chars() {
        match char {
            '0'..='9' if text.ends_with('N') => {}
            '0'..='9' => text.push('N'),
            other => text.push(other),
        }
    }
    text
}

/// A program with everything that starts a thread or opens a descriptor: stuck workers, a blocking
/// job, a dump that waits, and a client of its control socket.
struct Everything {
    runtime: Runtime,
    /// Ends the polls and the job.
    release: mpsc::Sender<()>,
    /// Ends the destructors of the thread-locals of a stuck worker.
    destructors: mpsc::Sender<()>,
    /// Ends the dump.
    permit: mpsc::Sender<()>,
    client: thread::JoinHandle<()>,
}

impl Everything {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).tokio_compat(true).build().unwrap();
        // From its second poll on, the task waits for permission, so a dump does, too.
        let (permit, permits) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let mut polls = 0;
        runtime.spawn(poll_fn(move |_| {
            polls += 1;
            match polls {
                1 => began.send(()).unwrap(),
                _ => _ = permits.recv(),
            }
            Poll::<()>::Pending
        }));
        begins.recv().unwrap();
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        // Each of them blocks its thread, the first one in `recv` and the others in the lock.
        let block = move || _ = released.lock().map(|released| released.recv());
        let (destructors, slow) = mpsc::channel();
        let (first, second, job) = (block.clone(), block.clone(), block);
        runtime.spawn(async move {
            SLOW.with(|own| _ = own.set(Slow(slow)));
            first();
        });
        runtime.spawn(async move { second() });
        runtime.spawn_blocking(job);
        let path = volt::observe::socket_path().expect("a control socket");
        let client = thread::spawn(move || {
            Client::connect(&path).unwrap().dump(None, &Query::default()).unwrap();
        });
        Self { runtime, release, destructors, permit, client }
    }

    /// Ends everything. Calls `until` while the shutdown waits for the thread of a worker.
    fn end(self, until: impl FnOnce()) {
        drop(self.permit);
        self.client.join().unwrap();
        drop(self.release);
        let shutdown = thread::spawn(|| self.runtime.shutdown_timeout(Duration::from_secs(60)));
        until();
        drop(self.destructors);
        shutdown.join().unwrap();
    }
}

/// Its destructor waits until the other side is dropped.
struct Slow(mpsc::Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        assert!(self.0.recv().is_err(), "nothing is sent");
    }
}

thread_local!(static SLOW: OnceCell<Slow> = const { OnceCell::new() });

/// Returns the names of this program's threads that begin with `volt`, without their numbers.
fn threads() -> BTreeSet<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| without_numbers(name.trim_end())).filter(|name| name.starts_with("volt")).collect()
}

#[test]
fn the_page_lists_every_thread() {
    let folder = Folder::new();
    let sockets = folder.path("sockets");
    let variables =
        [("VOLT_METRICS", "0"), ("VOLT_DUMP_ON_SIGQUIT", "1"), ("VOLT_SOCKET_DIR", sockets.to_str().unwrap())];
    alone_with(&variables, || {
        watched(|| {
            let listed = listed("Threads");
            let mut seen = BTreeSet::new();
            let mut until = |expected: &dyn Fn(&str) -> bool| {
                while !listed.iter().filter(|name| expected(name)).all(|name| seen.contains(name)) {
                    let now = threads();
                    if !now.is_subset(&seen) {
                        seen.extend(now);
                        println!("seen {seen:?}");
                        assert!(seen.is_subset(&listed), "listed {listed:?}");
                    }
                    thread::yield_now();
                }
            };
            assert_eq!(threads(), BTreeSet::new(), "before the first runtime");
            let everything = Everything::start();
            until(&|name| name != "volt-joiner");
            everything.end(|| until(&|_| true));
        });
    });
}

/// Returns whether the kernel has a file of the list. The kernel of gVisor lacks several files of a
/// thread. All other names are of files that Volt makes.
fn is_provided(name: &str) -> bool {
    let Some(file) = name.strip_prefix("/proc/N/task/N/") else { return true };
    fs::read_dir("/proc/self/task").unwrap().any(|task| task.unwrap().path().join(file).exists())
}

/// Returns the open descriptors of this program, each with its target.
fn descriptors() -> BTreeSet<(u32, PathBuf)> {
    let found = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        // The descriptor of this listing itself is closed by then.
        let target = fs::read_link(&path).ok().filter(|target| fs::read_link(&path).ok().as_ref() == Some(target))?;
        Some((path.file_name()?.to_str()?.parse().ok()?, target))
    });
    let own = Path::new("/proc").join(std::process::id().to_string()).join("fd");
    found.filter(|(_, target)| *target != own).collect()
}

#[test]
fn the_page_lists_every_file_descriptor() {
    let folder = Folder::new();
    let (sockets, boxes) = (folder.path("sockets"), folder.path("boxes"));
    fs::create_dir(&boxes).unwrap();
    let (sockets, boxes) = (sockets.to_str().unwrap(), boxes.to_str().unwrap());
    let variables =
        [("VOLT_METRICS", "0"), ("VOLT_DUMP_ON_SIGQUIT", "1"), ("VOLT_SOCKET_DIR", sockets), ("VOLT_BLACK_BOX", boxes)];
    alone_with(&variables, || {
        watched(|| {
            let mut listed = listed("File descriptors");
            listed.retain(|name| is_provided(name));
            let folder_of = |name: &str| std::env::var(name).unwrap();
            let (sockets, boxes) = (folder_of("VOLT_SOCKET_DIR"), folder_of("VOLT_BLACK_BOX"));
            let name_of = |target: &Path| {
                let text = target.to_str().unwrap();
                match text {
                    text if text == sockets => "SOCKET-DIRECTORY".to_owned(),
                    text if text.starts_with(&boxes) && text.ends_with(".voltbox") => "BLACK-BOX.voltbox".to_owned(),
                    text => without_numbers(text),
                }
            };
            let before = descriptors();
            let mut seen = BTreeSet::new();
            let everything = Everything::start();
            while seen != listed {
                let opened = descriptors();
                // The quota is read once in a while, and its file closed immediately. The page
                // lists it with the files that Volt reads.
                let opened = opened.difference(&before).filter(|(_, target)| !target.starts_with("/sys/fs/cgroup"));
                seen.extend(opened.map(|(_, target)| name_of(target)));
                assert!(seen.is_subset(&listed), "seen {seen:?}, listed {listed:?}");
            }
            everything.end(|| ());
        });
    });
}

/// Returns the signals that this program handles.
fn handled() -> BTreeSet<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}

fn urg_and_quit() -> BTreeSet<i32> {
    BTreeSet::from([Signal::URG.as_raw(), Signal::QUIT.as_raw()])
}

#[test]
fn the_page_lists_every_signal_with_a_handler() {
    assert_eq!(listed("Signals"), ["SIGQUIT", "SIGURG"].map(str::to_owned).into());
    alone_with(&[("VOLT_DUMP_ON_SIGQUIT", "1")], || {
        watched(|| {
            let before = handled();
            let _runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
            assert_eq!(handled().difference(&before).copied().collect::<BTreeSet<_>>(), urg_and_quit());
        });
    });
}

#[test]
fn a_program_without_stacks_and_dumps_handles_no_signal() {
    alone(|| {
        watched(|| {
            let before = handled();
            let _runtime = Builder::new_multi_thread().worker_threads(1).incident_stacks(false).build().unwrap();
            assert_eq!(handled(), before);
        });
    });
}

#[test]
fn a_runtime_with_everything_off_starts_no_thread() {
    alone(|| {
        watched(|| {
            let before = descriptors();
            let builder = Builder::new_current_thread().sentinel_interval(None).control_socket(false);
            let runtime = builder.disable_io().build().unwrap();
            assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
            assert_eq!(threads(), BTreeSet::new());
            assert_eq!(volt::observe::socket_path(), None);
            let names: BTreeSet<_> = descriptors()
                .difference(&before)
                .map(|(_, target)| without_numbers(target.to_str().unwrap()))
                .collect();
            assert_eq!(names, BTreeSet::from(["anon_inode:[eventfd]", "anon_inode:[eventpoll]"].map(str::to_owned)));
        });
    });
}

/// Calls `f` with the text of each source file in a folder that is part of the program.
fn sources(folder: &Path, f: &mut dyn FnMut(&str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, f);
        } else if name.ends_with(".rs") && !["tests.rs", "loom_models.rs"].contains(&name) {
            let text = fs::read_to_string(&path).unwrap();
            // The tests are the last part of a file.
            f(text.split("#[cfg(test)]\nmod tests {").next().unwrap());
        }
    }
}

#[test]
fn the_page_lists_every_environment_variable() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = BTreeSet::new();
    for folder in ["src", "core/src", "stacks/src", "telemetry/src", "diagnosis/src", "process/src", "../exporter/src"]
    {
        sources(&root.join(folder), &mut |text| {
            let literals = text.split('"').skip(1).filter(|literal| {
                let mut parts = literal.split('_');
                let is_ours = matches!(parts.next(), Some("VOLT" | "XDG")) && parts.next().is_some();
                is_ours && literal.chars().all(|char| char.is_ascii_uppercase() || char == '_')
            });
            named.extend(literals.map(str::to_owned));
        });
    }
    // Read when Volt is compiled.
    named.remove("VOLT_BENCH_OBSERVE");
    // Only a test reads it, in a module that other builds leave out.
    named.remove("VOLT_LINES_WORKERS");
    assert_eq!(named, listed("Environment variables"));
}
