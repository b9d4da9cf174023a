//! The current task in the lines of `tracing-subscriber`'s formats, and the spans of tasks. Each
//! test runs in a separate program, since the subscriber belongs to the whole program.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::watchdog::{alone, builder, runtime, watched};
use serde_json::Value;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::prelude::*;
use volt::sync::oneshot;
use volt::task::{self, LocalSet};
use volt::{Builder, Runtime};

/// Collects what the log writes. Each call of `write` is one element.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(String::from_utf8(line.to_vec()).unwrap());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn take_one(&self) -> String {
        let [line] = self.take().try_into().unwrap();
        line
    }

    /// Returns the object of the only line.
    fn take_json(&self) -> Value {
        serde_json::from_str(&self.take_one()).unwrap()
    }
}

fn use_log(log: impl Subscriber + Send + Sync) {
    tracing::subscriber::set_global_default(log).unwrap();
}

/// Logs as text, as an ordinary program does: without the spans of tasks that have no name.
fn log_text() -> Lines {
    let lines = Lines::default();
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new("info")).with_ansi(false).without_time();
    use_log(log.with_writer(Arc::new(lines.clone())).map_writer(volt::tracing::text).finish());
    lines
}

fn log_json() -> Lines {
    let lines = Lines::default();
    let format = tracing_subscriber::fmt::layer().json().with_writer(Arc::new(lines.clone()));
    let filter = EnvFilter::new("info,volt::task=off");
    use_log(tracing_subscriber::registry().with(filter).with(format.map_writer(volt::tracing::json)));
    lines
}

fn number_after(line: &str, field: &str) -> u64 {
    let (_, rest) = line.split_once(field).unwrap_or_else(|| panic!("no {field}: {line}"));
    let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().unwrap()
}

#[test]
fn each_text_line_in_a_task_ends_with_the_task() {
    alone(|| {
        watched(|| {
            let (lines, runtime) = (log_text(), runtime(2));
            tracing::info!("outside");
            assert_eq!(lines.take_one(), format!(" INFO {}: outside\n", module_path!()));
            let task = runtime.spawn(async { tracing::warn!(size = 3, "in a task") });
            let id = task.id();
            runtime.block_on(task).unwrap();
            let line = lines.take_one();
            assert!(line.contains(&format!("in a task size=3 task.id={id} task.worker=")), "{line}");
            assert!(number_after(&line, " task.worker=") < 2);
            let delay_ns = number_after(&line, " task.queue_delay_ns=");
            assert!(line.ends_with(&format!(" task.queue_delay_ns={delay_ns}\n")), "{line}");
            // A span adds nothing and hides nothing.
            let log = async { tracing::error!("named") };
            let task = task::Builder::new().name("feed \"1\"\n").spawn_on(log, runtime.handle());
            let id = task.id();
            runtime.block_on(task).unwrap();
            let line = lines.take_one();
            assert!(line.contains(&format!(r#"named task.id={id} task.name="feed \"1\"\n" task.worker="#)), "{line}");
        });
    });
}

#[test]
fn each_json_event_in_a_task_has_a_member_for_it() {
    alone(|| {
        watched(|| {
            let (lines, runtime) = (log_json(), runtime(1));
            tracing::info!("outside");
            assert_eq!(lines.take_json().get("task"), None);
            let log = async { tracing::info!(size = 3, "in a task") };
            let name = "feed \"1\"\n\\ü\u{1}";
            let task = task::Builder::new().name(name).spawn_on(log, runtime.handle());
            let id = task.id();
            runtime.block_on(task).unwrap();
            let event = lines.take_json();
            assert_eq!(event["fields"]["size"], 3);
            let task = event["task"].as_object().unwrap();
            assert_eq!((&task["id"], &task["name"], &task["worker"]), (&id.as_u64().into(), &name.into(), &0.into()));
            assert!(task["queue_delay_ns"].is_u64() && task.len() == 4, "{event}");
        });
    });
}

#[test]
fn the_delay_is_the_time_before_the_present_poll() {
    alone(|| {
        watched(|| {
            let lines = log_json();
            let runtime = Builder::new_current_thread().build().unwrap();
            let waited_ns = runtime.block_on(async {
                let task = volt::spawn(async {
                    tracing::info!("first poll");
                    task::yield_now().await;
                    tracing::info!("second poll");
                });
                let spawned = Instant::now();
                // The only worker is this thread, so the task waits for as long.
                while spawned.elapsed().as_millis() < 3 {}
                let waited_ns = spawned.elapsed().as_nanos() as u64;
                task.await.unwrap();
                waited_ns
            });
            let delays_ns: Vec<u64> = lines
                .take()
                .iter()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()["task"]["queue_delay_ns"].as_u64().unwrap())
                .collect();
            assert!(delays_ns[0] >= waited_ns && delays_ns[1] != delays_ns[0], "{delays_ns:?}, {waited_ns}");
        });
    });
}

/// Logs when it is dropped.
struct Farewell;

impl Drop for Farewell {
    fn drop(&mut self) {
        tracing::info!("dropped");
    }
}

#[test]
fn jobs_local_tasks_and_destructors_have_an_id() {
    alone(|| {
        watched(|| {
            let (lines, runtime) = (log_json(), runtime(1));
            let task_of = |id: task::Id| {
                let event = lines.take_json();
                assert_eq!(event["task"]["id"], id.as_u64(), "{event}");
                event["task"].as_object().unwrap().clone()
            };
            let job = runtime.spawn_blocking(|| tracing::info!("in a job"));
            let id = job.id();
            runtime.block_on(job).unwrap();
            assert_eq!(task_of(id).len(), 1);
            let set = LocalSet::new();
            let local = set.spawn_local(async { tracing::info!("in a local task") });
            let id = local.id();
            runtime.block_on(set.run_until(local)).unwrap();
            assert_eq!(task_of(id).get("queue_delay_ns"), None);
            let task = runtime.spawn(async {
                let _farewell = Farewell;
                task::yield_now().await;
            });
            let id = task.id();
            runtime.block_on(task).unwrap();
            task_of(id);
            // The output is dropped with its handle, here, after the end.
            let task = runtime.spawn(async { Farewell });
            let id = task.id();
            while !task.is_finished() {
                std::thread::yield_now();
            }
            drop(task);
            assert_eq!(task_of(id).len(), 1);
            runtime.block_on(runtime.spawn(async { task::block_in_place(|| tracing::info!("blocks")) })).unwrap();
            let task = lines.take_json()["task"].as_object().unwrap().clone();
            assert_eq!(Vec::from_iter(task.keys()), ["id"]);
        });
    });
}

#[test]
fn text_keeps_its_colours_and_every_format_works() {
    alone(|| {
        watched(|| {
            let runtime = runtime(1);
            let line_of = |log: tracing::Dispatch, lines: &Lines| {
                let task = runtime.spawn(async move {
                    tracing::dispatcher::with_default(&log, || tracing::info!(size = 3, "in a task"));
                });
                runtime.block_on(task).unwrap();
                lines.take_one()
            };
            let lines = Lines::default();
            let log = || tracing_subscriber::fmt().with_ansi(true).with_writer(Arc::new(lines.clone()));
            let full = log().map_writer(volt::tracing::text).finish();
            let compact = log().compact().map_writer(volt::tracing::text).finish();
            let pretty = log().pretty().map_writer(volt::tracing::text).finish();
            for log in [full.into(), compact.into(), pretty.into()] {
                let line = line_of(log, &lines);
                assert!(line.contains("\x1b[32m") && line.contains(" task.queue_delay_ns="), "{line}");
                assert!(line.ends_with('\n'), "{line:?}");
            }
            // Not an object, so there is no place for a member.
            let log = log().map_writer(volt::tracing::json).finish();
            let line = line_of(log.into(), &lines);
            assert!(!line.contains("task\":"), "{line}");
        });
    });
}

#[test]
fn a_log_inside_the_log_is_complete() {
    struct Loud;
    impl std::fmt::Display for Loud {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            tracing::info!("inner");
            f.write_str("outer")
        }
    }
    alone(|| {
        watched(|| {
            let (lines, runtime) = (log_text(), runtime(1));
            runtime.block_on(runtime.spawn(async { tracing::info!("{Loud}") })).unwrap();
            let lines = lines.take();
            assert_eq!(lines.len(), 2, "{lines:?}");
            for (line, text) in lines.iter().zip(["inner", "outer"]) {
                assert!(line.contains(&format!(": {text} task.id=")), "{lines:?}");
            }
        });
    });
}

/// Logs as text, with the ends of spans. Returns a runtime whose tasks inherit spans or not.
fn log_spans(inherits: bool) -> (Lines, Runtime) {
    let lines = Lines::default();
    let log = tracing_subscriber::fmt().with_span_events(FmtSpan::CLOSE).with_ansi(false).without_time();
    use_log(log.with_target(false).with_writer(Arc::new(lines.clone())).finish());
    (lines, builder(1).inherit_spans(inherits).build().unwrap())
}

/// Waits until `lines` has a line with `expected`, and returns all that came until then.
fn lines_until(lines: &Lines, expected: &str) -> Vec<String> {
    let mut all = Vec::new();
    while !all.iter().any(|line: &String| line.contains(expected)) {
        all.extend(lines.take());
        std::thread::yield_now();
    }
    all
}

#[test]
fn tasks_inherit_no_span_by_default() {
    alone(|| {
        watched(|| {
            let (lines, runtime) = log_spans(false);
            let task = tracing::info_span!("request", n = 1).in_scope(|| {
                let builder = task::Builder::new().name("named");
                builder.spawn_on(async { tracing::info!("in a task") }, runtime.handle())
            });
            runtime.block_on(task).unwrap();
            let found = lines_until(&lines, "volt.task");
            let line = found.iter().find(|line| line.contains("in a task")).unwrap();
            assert!(line.starts_with(" INFO volt.task{id="), "{found:?}");
        });
    });
}

#[test]
fn tasks_and_jobs_inherit_the_spawners_span_on_request() {
    alone(|| {
        watched(|| {
            let (lines, runtime) = log_spans(true);
            let request = tracing::info_span!("request", n = 1);
            let log = |text: &'static str| async move { tracing::info!("{text}") };
            let named = request
                .in_scope(|| task::Builder::new().name("named").spawn_on(log("in a named task"), runtime.handle()));
            let id = named.id();
            runtime.block_on(named).unwrap();
            let start = format!(" INFO request{{n=1}}:volt.task{{id={id} name=\"named\" spawn=");
            let found = lines_until(&lines, "in a named task");
            assert!(found[0].starts_with(&start), "{found:?}");
            // The filter disables the span of a task without a name.
            let plain = request.in_scope(|| runtime.spawn(log("in a task")));
            let refusable = request.in_scope(|| runtime.handle().try_spawn(log("in a task")).unwrap());
            let job = request.in_scope(|| runtime.spawn_blocking(|| tracing::info!("in a task")));
            let set = LocalSet::new();
            let local = {
                let _entered = runtime.enter();
                request.in_scope(|| set.spawn_local(log("in a task")))
            };
            runtime.block_on(async {
                plain.await.unwrap();
                refusable.await.unwrap();
                job.await.unwrap();
                set.run_until(local).await.unwrap();
            });
            let inherited = lines.take().iter().filter(|line| *line == " INFO request{n=1}: in a task\n").count();
            assert_eq!(inherited, 4);
            // A task without a spawner's span has none, and a span ends with the last task in it.
            runtime.block_on(runtime.spawn(log("alone"))).unwrap();
            assert_eq!(lines_until(&lines, "alone").last().unwrap(), " INFO alone\n");
            let (open, gate) = oneshot::channel::<()>();
            let last = request.in_scope(|| runtime.spawn(gate));
            drop(request);
            tracing::info!("dropped");
            assert_eq!(lines.take(), [" INFO dropped\n"], "the task keeps the span");
            open.send(()).unwrap();
            runtime.block_on(last).unwrap().unwrap();
            lines_until(&lines, "request{n=1}: close");
        });
    });
}
