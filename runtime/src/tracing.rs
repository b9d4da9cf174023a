//! The current task in each line of a `tracing-subscriber` log.
//!
//! [`text`] and [`json`] wrap the writer of `tracing_subscriber::fmt`. They add the current task to
//! each event. This needs no span, so it does not depend on the filter for spans. Pass one of them
//! to `map_writer`, after all settings of the format and the writer:
//!
//! ```
//! # use std::io::Write;
//! # use std::sync::{Arc, Mutex};
//! # #[derive(Clone, Default)]
//! # struct Buffer(Arc<Mutex<Vec<u8>>>);
//! # impl Write for Buffer {
//! #     fn write(&mut self, line: &[u8]) -> std::io::Result<usize> { self.0.lock().unwrap().write(line) }
//! #     fn flush(&mut self) -> std::io::Result<()> { Ok(()) }
//! # }
//! # let written = Buffer::default();
//! # let stderr = { let written = written.clone(); move || written.clone() };
//! let log = tracing_subscriber::fmt()
//!     .with_writer(stderr) // std::io::stderr
//!     .map_writer(volt::tracing::text)
//!     .finish();
//! # let log = tracing::subscriber::set_default(log);
//! # let runtime = volt::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! volt::task::Builder::new().name("price feed").spawn(async {
//!     tracing::info!(symbol = "VLT", "connected");
//!     // 2026-01-01T00:00:00.000000Z  INFO feed: connected symbol="VLT" task.id=7 task.name="price
//!     // feed" task.worker=0 task.queue_delay_ns=2150
//! })
//! # .await.unwrap();
//! # });
//! # let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
//! # assert!(line.contains(" task.name=\"price feed\" task.worker=0 task.queue_delay_ns="), "{line}");
//! ```
//!
//! As JSON, with the feature `json` of `tracing-subscriber`:
//!
//! ```
//! # use std::io::Write;
//! # use std::sync::{Arc, Mutex};
//! # #[derive(Clone, Default)]
//! # struct Buffer(Arc<Mutex<Vec<u8>>>);
//! # impl Write for Buffer {
//! #     fn write(&mut self, line: &[u8]) -> std::io::Result<usize> { self.0.lock().unwrap().write(line) }
//! #     fn flush(&mut self) -> std::io::Result<()> { Ok(()) }
//! # }
//! # let written = Buffer::default();
//! # let stderr = { let written = written.clone(); move || written.clone() };
//! use tracing_subscriber::prelude::*;
//!
//! let format = tracing_subscriber::fmt::layer().json().with_writer(stderr); // std::io::stderr
//! let log = tracing_subscriber::registry().with(format.map_writer(volt::tracing::json));
//! # let log = tracing::subscriber::set_default(log);
//! # let runtime = volt::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! volt::spawn(async {
//!     tracing::info!("connected");
//!     // {"timestamp":"2026-01-01T00:00:00.000000Z","level":"INFO","fields":{"message":"connected"},
//!     // "target":"feed","task":{"id":8,"worker":0,"queue_delay_ns":1830}}
//! })
//! # .await.unwrap();
//! # });
//! # let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
//! # assert!(line.contains(r#","task":{"id":"#) && line.ends_with("}}\n"), "{line}");
//! ```
//!
//! | field | content |
//! |---|---|
//! | `id` | the [id](crate::task::id) of the task |
//! | `name` | its name, if it has one |
//! | `worker` | the [index](crate::runtime::worker_index) of the worker that polls it |
//! | `queue_delay_ns` | how long it waited for a worker before this poll, in nanoseconds |
//!
//! An event outside a task is written unchanged. `worker` is missing in `spawn_blocking`, in
//! `block_in_place` and on a spare worker. `queue_delay_ns` is missing in `spawn_blocking`, in
//! `block_in_place` and in a `LocalSet`.
//!
//! For an event outside a task, this costs one comparison. For an event inside a task, it costs a
//! copy of the line, in a buffer that each thread reuses.

// Why a writer. A layer of `tracing-subscriber` cannot add fields to the events that another layer
// formats. The formats have no place for more fields, either (tokio-rs/tracing, issue 1531); other
// libraries copy the JSON format to add some. A `FormatEvent` around another one has to give that
// one a `Writer` for its buffer, and only `tracing-subscriber` itself can create a `Writer` with
// colours. The bytes that reach the `MakeWriter` are complete: `fmt` writes each event by one call
// of `write_all`. So this works with every format, and keeps its colours.
//
// Rejected: to enter a span of the task whatever the filter, which costs two calls of the
// subscriber in each poll. Also rejected: to detect JSON by the first byte, which a text line may
// begin with, too.

use std::cell::Cell;
use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;
use volt_core::scheduler::logged::{Logged, with_logged};

/// The largest buffer that a thread keeps for its next line.
const MAX_KEPT_BYTES: usize = 16 * 1024;

thread_local! {
    /// The buffer of this thread. It is taken while it is in use, so a log inside the log uses
    /// another one.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Adds the current task to the end of each event that is formatted as text:
/// `task.id=7 task.name="price feed" task.worker=0 task.queue_delay_ns=2150`.
///
/// For `tracing_subscriber::fmt` with any text format; see the [module](self).
pub fn text<W>(writer: W) -> WithTask<W> {
    WithTask { writer, form: Form::Text }
}

/// Adds the current task to each event that is formatted as a JSON object, as the member
/// `"task":{"id":7,"name":"price feed","worker":0,"queue_delay_ns":2150}`.
///
/// For `tracing_subscriber::fmt` with `json()`; see the [module](self). Lines that do not end with
/// a JSON object are written unchanged. With `flatten_event(true)`, do not call a field `task`.
pub fn json<W>(writer: W) -> WithTask<W> {
    WithTask { writer, form: Form::Json }
}

/// A `MakeWriter` whose writers add the current task to each event. Created by [`text`] and
/// [`json`].
#[derive(Clone, Debug)]
pub struct WithTask<W> {
    writer: W,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Json,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for WithTask<W> {
    type Writer = TaskWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        TaskWriter { writer: self.writer.make_writer(), form: self.form }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        TaskWriter { writer: self.writer.make_writer_for(metadata), form: self.form }
    }
}

/// Adds the current task to each event. Created by [`WithTask`].
///
/// Each call of [`write`](Write::write) or [`write_all`](Write::write_all) writes one event.
#[derive(Debug)]
pub struct TaskWriter<W> {
    writer: W,
    form: Form,
}

impl<W: Write> Write for TaskWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.write_all(event)?;
        Ok(event.len())
    }

    fn write_all(&mut self, event: &[u8]) -> io::Result<()> {
        with_logged(|task| {
            let Some((task, end)) = task.zip(self.form.end_of(event)) else { return self.writer.write_all(event) };
            // Fails while the thread ends.
            let mut line = LINE.try_with(Cell::take).unwrap_or_default();
            line.clear();
            line.extend_from_slice(&event[..end]);
            self.form.write(&mut line, &task)?;
            line.extend_from_slice(&event[end..]);
            let written = self.writer.write_all(&line);
            if line.capacity() <= MAX_KEPT_BYTES {
                let _thread_ends = LINE.try_with(|kept| kept.set(line));
            }
            written
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Form {
    /// Returns where in an event its task is inserted: before the final line break, or before the
    /// brace that ends the object. `None` if the event has no such place.
    fn end_of(self, event: &[u8]) -> Option<usize> {
        let text = event.trim_ascii_end();
        match self {
            Form::Text => Some(text.len()),
            // An object without members is no event.
            Form::Json => text.strip_suffix(b"}").filter(|members| members.len() > 1).map(<[u8]>::len),
        }
    }

    fn write(self, line: &mut Vec<u8>, task: &Logged<'_>) -> io::Result<()> {
        match self {
            Form::Text => {
                write!(line, " task.id={}", task.id)?;
                // Line breaks, quotation marks and control characters are escaped.
                task.name.map_or(Ok(()), |name| write!(line, " task.name={name:?}"))?;
                task.worker.map_or(Ok(()), |worker| write!(line, " task.worker={worker}"))?;
                task.queue_delay_ns.map_or(Ok(()), |delay_ns| write!(line, " task.queue_delay_ns={delay_ns}"))
            }
            Form::Json => {
                write!(line, r#","task":{{"id":{}"#, task.id)?;
                if let Some(name) = task.name {
                    line.extend_from_slice(br#","name":"#);
                    write_json(line, name)?;
                }
                task.worker.map_or(Ok(()), |worker| write!(line, r#","worker":{worker}"#))?;
                task.queue_delay_ns.map_or(Ok(()), |delay_ns| write!(line, r#","queue_delay_ns":{delay_ns}"#))?;
                line.write_all(b"}")
            }
        }
    }
}

/// Writes a string of JSON.
fn write_json(line: &mut Vec<u8>, text: &str) -> io::Result<()> {
    line.push(b'"');
    for char in text.chars() {
        match char {
            '"' | '\\' => write!(line, "\\{char}")?,
            '\0'..='\x1f' => write!(line, "\\u{:04x}", u32::from(char))?,
            _ => write!(line, "{char}")?,
        }
    }
    line.push(b'"');
    Ok(())
}
