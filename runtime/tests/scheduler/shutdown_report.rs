//! The report of a shutdown about what it could not end. Each test runs in a separate program,
//! since it receives the log of the whole program.

use std::cell::RefCell;
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::watchdog::{alone, builder, runtime, watched};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use volt::task;

/// Keeps the text of each warning.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Subscriber for Reports {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            fields += &format!("{field}={value:?} ");
        });
        self.0.lock().unwrap().push(fields);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Reports {
    fn take_one(&self) -> String {
        let mut reports = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(reports.len(), 1, "one report: {reports:?}");
        reports.remove(0)
    }
}

/// Waits in a destructor of its thread until the sender is dropped.
struct WaitsInDrop(mpsc::Receiver<()>);

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        let _closed = self.0.recv();
    }
}

thread_local! {
    static AT_THREAD_END: RefCell<Option<WaitsInDrop>> = const { RefCell::new(None) };
}

#[test]
#[cfg(target_os = "linux")]
fn a_shutdown_without_a_joining_thread_is_reported() {
    alone(|| {
        watched(|| {
            let reports = Reports::default();
            tracing::subscriber::set_global_default(reports.clone()).unwrap();
            let runtime = builder(1).name("no joiner").build().unwrap();
            // The shutdown itself joins threads that end without delay; this one waits in a
            // destructor.
            let (open, is_open) = mpsc::channel();
            let waits = async { AT_THREAD_END.with_borrow_mut(|end| *end = Some(WaitsInDrop(is_open))) };
            runtime.block_on(runtime.spawn(waits)).unwrap();
            // Room for ordinary allocations, not for a thread's stack.
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
            let size_kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
            let limit = rustix::process::Rlimit { current: Some((size_kib + 1024) * 1024), maximum: None };
            rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
            // Threads that find room nevertheless, in memory that was freed since, keep it.
            let keeps_room = || {
                std::thread::Builder::new().spawn(|| {
                    loop {
                        std::thread::park();
                    }
                })
            };
            while keeps_room().is_ok() {}
            drop(runtime);
            drop(open);
            let report = reports.take_one();
            for part in ["no thread could be started to join", "runtime=no joiner", "os error"] {
                assert!(report.contains(part), "no {part} in {report}");
            }
        });
    });
}

#[test]
fn work_left_after_the_shutdown_limit_is_named_in_a_report() {
    alone(|| {
        watched(|| {
            let reports = Reports::default();
            tracing::subscriber::set_global_default(reports.clone()).unwrap();
            let (open, is_open) = mpsc::channel::<()>();
            let (entered, has_entered) = mpsc::channel();
            let stuck_runtime = builder(2).name("left behind").build().unwrap();
            let stuck = {
                let entered = entered.clone();
                async move {
                    entered.send(()).unwrap();
                    let _closed = is_open.recv();
                }
            };
            task::Builder::new().name("price feed").spawn_on(stuck, stuck_runtime.handle());
            let (open_job, is_job_open) = mpsc::channel::<()>();
            stuck_runtime.spawn_blocking(move || {
                entered.send(()).unwrap();
                let _closed = is_job_open.recv();
            });
            (0..2).for_each(|_| has_entered.recv().unwrap());
            let ends_in_time = runtime(1);
            ends_in_time.spawn(pending::<()>());
            drop(ends_in_time);
            assert_eq!(*reports.0.lock().unwrap(), [""; 0], "nothing was left");
            stuck_runtime.shutdown_timeout(Duration::from_millis(20));
            let report = reports.take_one();
            for part in
                ["still run after the shutdown", "runtime=left behind", "workers=2", "tasks=1", "blocking_threads=1"]
            {
                assert!(report.contains(part), "no {part} in {report}");
            }
            assert!(report.contains(" price feed (runtime/tests/scheduler/shutdown_report.rs:"), "{report}");
            drop((open, open_job));

            let slow_runtime = builder(1).name("slow to end").build().unwrap();
            let (open, is_open) = mpsc::channel::<()>();
            let task =
                slow_runtime.spawn(async { AT_THREAD_END.with_borrow_mut(|end| *end = Some(WaitsInDrop(is_open))) });
            slow_runtime.block_on(task).unwrap();
            // Enough for the worker to end. The destructor of its thread waits until `open` is
            // dropped.
            slow_runtime.shutdown_timeout(Duration::from_secs(2));
            let report = reports.take_one();
            for part in ["runtime=slow to end", "workers=0", "tasks=0", "blocking_threads=0", "ending_threads=1"] {
                assert!(report.contains(part), "no {part} in {report}");
            }
            drop(open);
        });
    });
}
