//! What subscribers of `tracing` are told of tasks.
//!
//! | what | target, level | for whom |
//! |---|---|---|
//! | span `volt.task{id, name, spawn}` | `volt`, INFO | log lines: polls enter it |
//! | span `runtime.spawn{kind, task.name, task.id, loc.file, loc.line, loc.col}` | `tokio::task`, TRACE; of a blocking job `tokio::task::blocking` | tokio-console: polls enter it, its end is the task's |
//! | event `{op, task.id}`, the span's id, not the task's | `tokio::task::waker`, TRACE | tokio-console: `waker.wake`, `waker.wake_by_ref`, `waker.clone`, `waker.drop` |
//!
//! The names and fields of the last two are those that tokio-console's subscriber expects (crate `console-subscriber`, `visitors`). Their span
//! outlives the task's last poll until its JoinHandle is gone.
//!
//! Invariant: *off when nobody subscribes*: a spawn and a waker's step look at the level that anybody listens to, one relaxed load, and
//! nothing is allocated.

use std::panic::Location;

use tracing::Span;
use tracing::level_filters::LevelFilter;

use super::header::Task;
use super::id::Id;
use super::origin::Extra;
use crate::config::MAX_NAME_BYTES;
use crate::stats::counting;

/// What runs a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Task,
    Blocking,
}

/// What is kept of a name and, if somebody listens, of spans. One relaxed load and no allocation if there is neither.
#[inline]
pub(crate) fn extra(
    id: Id,
    name: Option<&str>,
    location: &'static Location<'static>,
    kind: Kind,
) -> Option<Box<Extra>> {
    let is_heard = LevelFilter::current() >= LevelFilter::INFO;
    if !counting::IS_ON || (name.is_none() && !is_heard) {
        return None;
    }
    listened_to(id, name, location, kind)
}

#[cold]
fn listened_to(id: Id, name: Option<&str>, location: &'static Location<'static>, kind: Kind) -> Option<Box<Extra>> {
    let name = name.map(|name| &name[..name.floor_char_boundary(MAX_NAME_BYTES)]);
    let span = match kind {
        Kind::Task => {
            tracing::info_span!(target: "volt", parent: None, "volt.task", id = id.as_u64(), name, spawn = %location)
        }
        Kind::Blocking => Span::none(),
    };
    let console = console_span(id, name.unwrap_or_default(), location, kind);
    if name.is_none() && span.is_disabled() && console.is_disabled() {
        return None;
    }
    Some(Box::new(Extra { location, name: name.map(Box::from), span, console }))
}

fn console_span(id: Id, name: &str, location: &'static Location<'static>, kind: Kind) -> Span {
    match kind {
        Kind::Task => tracing::trace_span!(
            target: "tokio::task",
            parent: None,
            "runtime.spawn",
            kind = %"task",
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

/// A step of a waker of `task`'s.
#[inline]
pub(super) fn waker(task: &Task, op: &'static str) {
    if counting::IS_ON && LevelFilter::current() == LevelFilter::TRACE {
        tell_waker(task, op);
    }
}

#[cold]
fn tell_waker(task: &Task, op: &'static str) {
    if let Some(id) = task.header().extra().and_then(|extra| extra.console.id()) {
        tracing::trace!(target: "tokio::task::waker", op, task.id = id.into_u64());
    }
}
