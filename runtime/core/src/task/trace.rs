//! The spans and events of `tracing` for tasks.
//!
//! | what | target, level | used by |
//! |---|---|---|
//! | span `volt.task{id, name, spawn}` | `volt::task`, INFO for a task with a name, DEBUG for one without | log lines: polls enter it |
//! | span `runtime.spawn{kind, task.name, task.id, loc.file, loc.line, loc.col}` | `tokio::task`, TRACE; for a blocking job `tokio::task::blocking` | tokio-console: polls enter it |
//! | event `{op, task.id}`, with the id of the span, not of the task | `tokio::task::waker`, TRACE | tokio-console: `waker.wake`, `waker.wake_by_ref`, `waker.clone`, `waker.drop` |
//!
//! The names and fields of the last two are those that tokio-console's subscriber expects (crate
//! `console-subscriber`, `visitors`). `kind` is `task`, `local` or `blocking`. Both spans close
//! when the task is freed: after its last poll, once its JoinHandle and its wakers are dropped.
//!
//! Invariant: *Free without a subscriber*: a spawn and each operation of a waker check the maximum
//! level of all subscribers with one relaxed load, and allocate nothing.
//!
//! Why two levels: a span is expensive. The subscriber formats and stores its fields; the task gets
//! a box, a place in the registry, and two calls of the subscriber per poll. A task that does
//! nothing costs 5 to 19 times as much with a span (`benches/peers/RESULTS.md`). An ordinary logger
//! at INFO should not multiply the cost of tasks that nothing in the log refers to. Therefore it
//! gets only the spans of tasks with a name. The filter `volt::task=debug` enables the spans of all
//! tasks, and `volt::task=off` those of none. A filter that names only the application, such as
//! `myapp=info`, needs `volt::task=info` in addition.
//!
//! The span of a task has no parent, unless `Builder::inherit_spans` is set: then it is a child of
//! the span in which the task is spawned. If the filter disables the task's span, and in a blocking
//! job, polls enter the spawner's span itself. Each task then has one reference to that span, which
//! keeps it, and all its parents, in the subscriber until the task is freed. The default is no
//! parent, because a task that lasts as long as the program would keep them forever, and tasks that
//! spawn their successors would make an endless chain. The span for tokio-console never has a
//! parent, and a task never inherits one: that console counts each enter as a poll of the task.
//!
//! Rejected: a setting of the Builder in addition to the subscriber's filter, which can be changed
//! at run time. A span that is created when the task first logs something: only the subscriber can
//! detect that. The level TRACE, as for tokio-console's spans: it enables too much else for users
//! who only want the task in their log lines.

use std::panic::Location;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::details::origin::{Extra, MAX_NAME_BYTES};
use super::header::Task;
use super::id::Id;
use crate::stats::counting;

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Task,
    /// A task of a `LocalSet`.
    Local,
    Blocking,
}

/// Returns the name of a task and its spans, as far as subscribers are interested in them. Costs
/// one relaxed load, and allocates nothing, if there is neither. `inherits`: see
/// `Builder::inherit_spans`.
#[inline]
pub(crate) fn extra(
    id: Id,
    name: Option<&str>,
    location: &'static Location<'static>,
    kind: Kind,
    inherits: bool,
) -> Option<Box<Extra>> {
    let lowest = if inherits { LevelFilter::ERROR } else { LevelFilter::DEBUG };
    if !counting::IS_ON || (name.is_none() && LevelFilter::current() < lowest) {
        return None;
    }
    listened_to(id, name, location, kind, inherits)
}

#[cold]
fn listened_to(
    id: Id,
    name: Option<&str>,
    location: &'static Location<'static>,
    kind: Kind,
    inherits: bool,
) -> Option<Box<Extra>> {
    let spawner = if inherits { spawner_span() } else { Span::none() };
    let name = name.map(|name| &name[..name.floor_char_boundary(MAX_NAME_BYTES)]);
    macro_rules! task_span {
        ($level:ident) => {
            tracing::span!(
                target: "volt::task",
                parent: spawner.id(),
                Level::$level,
                "volt.task",
                id = id.as_u64(),
                name,
                spawn = %location
            )
        };
    }
    let span = match kind {
        Kind::Task | Kind::Local if name.is_some() => task_span!(INFO),
        Kind::Task | Kind::Local => task_span!(DEBUG),
        Kind::Blocking => Span::none(),
    };
    let span = if span.is_disabled() { spawner } else { span };
    let console = console_span(id, name.unwrap_or_default(), location, kind);
    if name.is_none() && span.is_disabled() && console.is_disabled() {
        return None;
    }
    Some(Box::new(Extra { location, name: name.map(Box::from), span, console }))
}

/// Returns the span in which this thread spawns a task, unless it is one for tokio-console.
fn spawner_span() -> Span {
    let current = Span::current();
    let is_for_console = current.metadata().is_some_and(|span| span.target().starts_with("tokio::task"));
    if is_for_console { Span::none() } else { current }
}

fn console_span(id: Id, name: &str, location: &'static Location<'static>, kind: Kind) -> Span {
    match kind {
        Kind::Task | Kind::Local => tracing::trace_span!(
            target: "tokio::task",
            parent: None,
            "runtime.spawn",
            kind = %if kind == Kind::Local { "local" } else { "task" },
            task.name = %name,
            task.id = id.as_u64(),
            loc.file = location.file(),
            loc.line = location.line(),
            loc.col = location.column(),
        ),
        Kind::Blocking => tracing::trace_span!(
            target: "tokio::task::blocking",
            parent: None,
            "runtime.spawn",
            kind = %"blocking",
            task.name = %name,
            task.id = id.as_u64(),
            loc.file = location.file(),
            loc.line = location.line(),
            loc.col = location.column(),
        ),
    }
}

/// Returns whether operations of wakers are reported.
#[inline]
pub(super) fn is_on() -> bool {
    counting::IS_ON && LevelFilter::current() == LevelFilter::TRACE
}

/// Reports an operation of a waker of `task`.
pub(super) fn trace_waker(task: &Task, op: &'static str) {
    if let Some(id) = task.header().extra().and_then(|extra| extra.console.id()) {
        tracing::trace!(target: "tokio::task::waker", op, task.id = id.into_u64());
    }
}

#[cfg(test)]
mod tests {
    use tracing::span::{Attributes, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// A subscriber that enables spans up to a level, as an ordinary logger does.
    struct Logger(LevelFilter);

    impl Subscriber for Logger {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= self.0
        }
        fn max_level_hint(&self) -> Option<LevelFilter> {
            Some(self.0)
        }
        fn new_span(&self, _: &Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_logger_at_info_sees_named_tasks_and_at_debug_all() {
        // Whether there is a span that polls enter, and whether a name is stored.
        let extra_of = |level, name| {
            tracing::subscriber::with_default(Logger(level), || {
                let extra = extra(Id::next(), name, Location::caller(), Kind::Task, false);
                extra.map(|extra| (!extra.span.is_disabled(), extra.name.is_some()))
            })
        };
        assert_eq!(extra_of(LevelFilter::WARN, None), None);
        assert_eq!(extra_of(LevelFilter::WARN, Some("feed")), Some((false, true)));
        assert_eq!(extra_of(LevelFilter::INFO, None), None, "a task without a name costs nothing more");
        assert_eq!(extra_of(LevelFilter::INFO, Some("feed")), Some((true, true)));
        assert_eq!(extra_of(LevelFilter::DEBUG, None), Some((true, false)));
        assert_eq!(extra_of(LevelFilter::DEBUG, Some("feed")), Some((true, true)));
    }
}
