//! A case: a task that waits in a known place, and the chain that the dump must show.
//!
//! A case is a function that creates a future with [`Case::new`]. In the future, each `.await` that
//! the dump must show has the comment `// AWAIT` on its line, and nothing else must be shown. So
//! the expectations are read from the source, and stay true when lines move.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::time::{Duration, Instant};

use volt::Runtime;
use volt::telemetry::dump::{Group, Link, Query};

/// The maximum time for an event that a case expects.
pub const LONG: Duration = Duration::from_secs(20);

/// The comment on lines that must be in the chain.
const MARK: &str = "// AWAIT";
/// The comment, before a name, on lines outside of a case that its marks name:
/// `// AWAIT left right`.
const POINT: &str = "// POINT ";

/// The sources with cases.
const SOURCES: [(&str, &str); 6] = [
    ("src/case.rs", include_str!("case.rs")),
    ("src/combinators.rs", include_str!("combinators.rs")),
    ("src/leaves.rs", include_str!("leaves.rs")),
    ("src/limits.rs", include_str!("limits.rs")),
    ("src/servers.rs", include_str!("servers.rs")),
    ("src/volt_own.rs", include_str!("volt_own.rs")),
];

type Body = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The awaited operations of a task.
enum End {
    /// Operations with these texts in their name or file, one for each branch.
    Operations(Vec<&'static str>),
    /// Nothing has cloned the waker.
    NoWaker,
}

/// See the module's documentation.
pub struct Case {
    name: String,
    file: &'static str,
    line: u32,
    body: Body,
    end: End,
    wake: Option<Box<dyn FnOnce() + Send>>,
}

impl Case {
    /// A task that runs `body` inside of two other async functions.
    #[track_caller]
    pub fn new(body: impl Future<Output = ()> + Send + 'static) -> Self {
        let at = Location::caller();
        let name = function_around(at.file(), at.line()).0;
        let body = Box::pin(outer(body));
        Self { name, file: at.file(), line: at.line(), body, end: End::NoWaker, wake: None }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The chain has a branch for each of these operations: parts of its name or file.
    pub fn ends_at<const N: usize>(mut self, operations: [&'static str; N]) -> Self {
        self.end = End::Operations(operations.into());
        self
    }

    /// After the dump, this wakes the task, and the task ends.
    pub fn then(mut self, wake: impl FnOnce() + Send + 'static) -> Self {
        self.wake = Some(Box::new(wake));
        self
    }

    /// Runs the case. Returns the text of the dump, and what is wrong.
    pub fn run(self, runtime: &Runtime) -> (String, String, Vec<String>) {
        let task = volt::task::Builder::new().name(&self.name).spawn_on(self.body, runtime.handle());
        let query = Query { task: Some(task.id().to_string()), ..Query::default() };
        let mut lines = lines_of(self.file, self.line);
        lines.extend(["outer", "middle"].map(|name| point("src/case.rs", name)));
        let began = Instant::now();
        let (text, mut wrong) = loop {
            let (handle, query) = (runtime.handle().clone(), query.clone());
            let dump = runtime.block_on(async move { handle.dump_with(query).await });
            let wrong = match &dump.groups[..] {
                [group] => check(group, &self.end, &lines),
                groups => vec![format!("{} groups", groups.len())],
            };
            // The task may not have come to its wait yet.
            if wrong.is_empty() || began.elapsed() > LONG / 4 {
                break (dump.text(), wrong);
            }
        };
        if let Some(wake) = self.wake {
            wake();
            let ended = runtime.block_on(async move { volt::time::timeout(LONG, task).await });
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => wrong.push(format!("the task failed: {error}")),
                Err(_) => wrong.push("the task was woken after the dump and did not end".to_owned()),
            }
        } else {
            task.abort();
        }
        (self.name, text, wrong)
    }
}

async fn outer<F: Future<Output = ()>>(body: F) {
    middle(body).await; // POINT outer
    std::hint::black_box(0);
}

async fn middle<F: Future<Output = ()>>(body: F) {
    let number = std::hint::black_box(1);
    body.await; // POINT middle
    std::hint::black_box(number);
}

/// Returns what is wrong with the chain of a group.
fn check(group: &Group, end: &End, lines: &[(String, u32)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let End::Operations(operations) = end else {
        if !group.chain.is_empty() || !group.error.as_deref().is_some_and(|error| error.contains("no waker registered"))
        {
            wrong.push("it should have no waker".to_owned());
        }
        return wrong;
    };
    let found: Vec<(&str, u32)> = group
        .chain
        .iter()
        .filter(|link| link.is_user_code)
        .map(|link| (link.file.as_deref().unwrap_or("?"), link.line.unwrap_or(0)))
        .collect();
    for (file, line) in lines {
        if !found.iter().any(|(found, at)| found.ends_with(file.as_str()) && at == line) {
            wrong.push(format!("{file}:{line} is missing"));
        }
    }
    for (file, line) in found {
        if !lines.iter().any(|(wanted, at)| file.ends_with(wanted.as_str()) && *at == line) {
            wrong.push(format!("{file}:{line} should not be there"));
        }
    }
    let mut ends: Vec<&Link> = ends(&group.chain);
    if ends.len() != operations.len() {
        wrong.push(format!("{} branches instead of {}", ends.len(), operations.len()));
    }
    for operation in operations {
        let is_it =
            |link: &&Link| [&link.function, &link.file].into_iter().flatten().any(|text| text.contains(operation));
        match ends.iter().position(is_it) {
            Some(at) => drop(ends.remove(at)),
            None => wrong.push(format!("no branch ends at {operation}")),
        }
    }
    wrong
}

/// Returns the links without a link below.
fn ends(chain: &[Link]) -> Vec<&Link> {
    let is_end = |at: usize| chain.get(at + 1).is_none_or(|next| next.depth <= chain[at].depth);
    (0..chain.len()).filter(|&at| is_end(at)).map(|at| &chain[at]).collect()
}

fn source(file: &str) -> &'static str {
    let found = SOURCES.iter().find(|(name, _)| *name == file);
    found.unwrap_or_else(|| panic!("{file} is not in SOURCES")).1
}

/// Returns the name of the function around a line, and its lines, from 0.
fn function_around(file: &str, line: u32) -> (String, std::ops::Range<usize>) {
    let lines: Vec<&str> = source(file).lines().collect();
    let is_function = |text: &&str| text.starts_with("fn ") || text.starts_with("async fn ");
    let first = (0..line as usize).rev().find(|&at| is_function(&lines[at])).expect("a case is in a function");
    let end = (first..lines.len()).find(|&at| lines[at] == "}").expect("a function has an end");
    let name = lines[first].split_once("fn ").expect("a function").1;
    let name = name.split(['(', '<']).next().expect("the first part").to_owned();
    (name, first..end)
}

/// Returns the marked lines of the function around a line, and the points that their marks name.
fn lines_of(file: &'static str, line: u32) -> Vec<(String, u32)> {
    let (_, range) = function_around(file, line);
    let mut marked = Vec::new();
    for at in range {
        let text = source(file).lines().nth(at).expect("in the file");
        if let Some((_, points)) = text.split_once(MARK) {
            marked.push((file.to_owned(), at as u32 + 1));
            marked.extend(points.split_whitespace().map(|name| point(file, name)));
        }
    }
    marked
}

/// Returns the line with this point.
fn point(file: &'static str, name: &str) -> (String, u32) {
    let mark = format!("{POINT}{name}");
    let at = source(file).lines().position(|text| text.ends_with(&mark));
    (file.to_owned(), at.unwrap_or_else(|| panic!("no {mark} in {file}")) as u32 + 1)
}
