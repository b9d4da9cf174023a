//! The spans and events that tokio-console's subscriber receives, read as it reads them. Each test
//! runs in a separate program, since it receives the events of the whole program.

use crate::watchdog::alone;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Fields by name. Those that the console reads as numbers and texts are separate from those that
/// it reads as they print.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fields {
    numbers: HashMap<&'static str, u64>,
    texts: HashMap<&'static str, String>,
    printed: HashMap<&'static str, String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.printed.insert(field.name(), format!("{value:?}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.texts.insert(field.name(), value.to_owned());
    }
}

/// A task as tokio-console displays it.
#[derive(Clone, Debug, Default)]
struct Seen {
    target: &'static str,
    fields: Fields,
    polls: u64,
    ops: Vec<String>,
    is_over: bool,
}

/// Records what `console-subscriber` records.
#[derive(Clone, Default)]
struct Console {
    tasks: Arc<Mutex<HashMap<u64, Seen>>>,
    last_id: Arc<AtomicU64>,
}

impl Console {
    fn task(&self, is_it: impl Fn(&Seen) -> bool) -> Option<Seen> {
        self.tasks.lock().unwrap().values().find(|seen| is_it(seen)).cloned()
    }
}

impl Subscriber for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "runtime.spawn" || metadata.target() == "tokio::task::waker"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        assert!(attributes.is_root(), "a task has no parent");
        let mut seen = Seen { target: attributes.metadata().target(), ..Seen::default() };
        attributes.record(&mut seen.fields);
        let id = 1000 + self.last_id.fetch_add(1, Ordering::Relaxed);
        self.tasks.lock().unwrap().insert(id, seen);
        Id::from_u64(id)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let id = fields.numbers["task.id"];
        let op = fields.texts["op"].clone();
        self.tasks.lock().unwrap().get_mut(&id).expect("the id of a span").ops.push(op);
    }

    fn enter(&self, id: &Id) {
        self.tasks.lock().unwrap().get_mut(&id.into_u64()).unwrap().polls += 1;
    }

    fn try_close(&self, id: Id) -> bool {
        self.tasks.lock().unwrap().get_mut(&id.into_u64()).unwrap().is_over = true;
        true
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn tokio_console_sees_tasks_polls_and_wakers() {
    alone(|| {
        let console = Console::default();
        tracing::subscriber::set_global_default(console.clone()).unwrap();
        let runtime = volt::Builder::new_multi_thread().worker_threads(2).control_socket(false).build().unwrap();
        let (to, mut from) = tokio::sync::mpsc::unbounded_channel::<()>();
        let receive = async move { while from.recv().await.is_some() {} };
        let named = volt::task::Builder::new().name("feed");
        let line = line!() + 1;
        let task = named.spawn_on(receive, runtime.handle());
        let id: u64 = task.id().to_string().parse().unwrap();
        let has_waited = |seen: &Seen| seen.ops.iter().any(|op| op == "waker.clone");
        let is_it = |seen: &Seen| seen.fields.numbers["task.id"] == id;
        let until = |is_enough: &dyn Fn(&Seen) -> bool| {
            let began = Instant::now();
            loop {
                let seen = console.task(is_it).expect("it was spawned");
                if is_enough(&seen) {
                    return seen;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{seen:?}");
            }
        };
        until(&has_waited);
        to.send(()).unwrap();
        let seen = until(&|seen| seen.polls >= 2);
        assert_eq!(seen.target, "tokio::task");
        let printed = |seen: &Seen| ["kind", "task.name"].map(|name| seen.fields.printed[name].clone());
        assert_eq!(printed(&seen), ["task", "feed"].map(String::from));
        let Fields { numbers, texts, .. } = &seen.fields;
        assert_eq!((numbers["loc.line"], texts["loc.file"].as_str()), (line.into(), file!()));
        assert!(numbers["loc.col"] > 0);
        assert!(seen.ops.iter().any(|op| op.starts_with("waker.wake")), "{:?}", seen.ops);
        let of_task = |id: String| console.task(|seen| seen.fields.numbers["task.id"].to_string() == id).unwrap();
        let last = volt::task::Builder::new().name("job").spawn_blocking_on(|| (), runtime.handle());
        let id = last.id().to_string();
        runtime.block_on(last).unwrap();
        let job = of_task(id);
        assert_eq!((job.target, printed(&job)), ("tokio::task::blocking", ["blocking", "job"].map(String::from)));
        assert_eq!(job.polls, 1);
        let set = volt::task::LocalSet::new();
        let local = volt::task::Builder::new().name("local").spawn_local_on(volt::task::yield_now(), &set);
        let id = local.id().to_string();
        runtime.block_on(set);
        runtime.block_on(local).unwrap();
        let seen = of_task(id);
        assert_eq!((seen.target, printed(&seen)), ("tokio::task", ["local", "local"].map(String::from)));
        assert_eq!(seen.polls, 2);

        drop(to);
        runtime.block_on(task).unwrap();
        until(&|seen| seen.is_over);
        drop(runtime);
        let known = ["waker.wake", "waker.wake_by_ref", "waker.clone", "waker.drop"];
        let tasks = console.tasks.lock().unwrap();
        assert!(tasks.values().flat_map(|seen| &seen.ops).all(|op| known.contains(&op.as_str())));
        assert!(tasks.values().all(|seen| seen.is_over), "{tasks:?}");
        // Every waker that is created ends: by a wake-up that consumes it, or by a drop.
        for seen in tasks.values() {
            let count = |wanted: &[&str]| seen.ops.iter().filter(|op| wanted.contains(&op.as_str())).count();
            assert_eq!(count(&["waker.clone"]), count(&["waker.wake", "waker.drop"]), "{seen:?}");
        }
    });
}
