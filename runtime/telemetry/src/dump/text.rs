//! The text form of a dump, as `volt-console dump` and the log show it.

use std::fmt::{self, Display, Write as _};

use super::{BlockOn, Dump, Group, Link, MAX_LINKS, Running, TaskRef};
use crate::text::{counted, duration};
use crate::waits::permit_holders;

impl Dump {
    /// Returns the dump as text, one line per call.
    ///
    /// ```
    /// use volt_telemetry::dump::Dump;
    ///
    /// let text = Dump { runtime: "volt".into(), ..Dump::default() }.text();
    /// assert!(text.starts_with("runtime volt: 0 tasks"));
    /// ```
    pub fn text(&self) -> String {
        self.to_string()
    }

    /// Returns the remarks, and what the numbers of the dump say about missing tasks. The text form
    /// ends with them.
    ///
    /// ```
    /// use volt_telemetry::dump::Dump;
    ///
    /// let dump = Dump { waiting: 9, read: 5, ..Dump::default() };
    /// assert_eq!(dump.notes(), ["4 tasks of 9 not read"]);
    /// ```
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.remarks.clone();
        if self.groups_left_out > 0 {
            let groups = counted(self.groups_left_out, "more group");
            notes.push(format!("{groups} of tasks left out: select fewer tasks with a filter"));
        }
        if self.progressed > 0 {
            let tasks = counted(self.progressed, "task");
            notes.push(format!("{tasks} made progress during the dump and {} not shown", is_or_are(self.progressed)));
        }
        let unread = self.waiting.saturating_sub(self.read.saturating_add(self.progressed));
        if unread > 0 {
            notes.push(format!("{} of {} not read", counted(unread, "task"), self.waiting));
        }
        notes
    }
}

impl Group {
    /// Describes what the tasks wait for, as far as the chain does not: the holders of locks, the
    /// numbers of other primitives, and why the chain is missing. The text form has these lines
    /// below the chain.
    ///
    /// ```
    /// use volt_telemetry::dump::{Group, Lock};
    ///
    /// let lock = Lock { tasks: 1, held_by: Some(7), held_at: "src/a.rs:3:9".into(), ..Lock::default() };
    /// let group = Group { tasks: 1, locks: vec![lock], ..Group::default() };
    /// assert_eq!(group.details(), ["held by task 7, acquired at src/a.rs:3:9"]);
    /// ```
    pub fn details(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.chain.is_empty()
            && let Some(awaits) = &self.awaits
        {
            let at = self.awaits_at.as_ref().map(|at| format!("  {at}")).unwrap_or_default();
            lines.push(format!("awaits {awaits}{at}"));
        }
        for lock in &self.locks {
            lines.push(format!("{}held by {}", lock.waiting(self.tasks), lock.holder(duration)));
            lines.extend(lock.order().map(|order| format!("waiting in this order: {order}")));
        }
        if self.locks_left_out > 0 {
            lines.push(format!("and {} with other holders", counted(self.locks_left_out, "lock")));
        }
        for resource in &self.resources {
            let is_of_some = resource.tasks < self.tasks;
            let tasks = if is_of_some { format!("{}: ", counted(resource.tasks, "task")) } else { String::new() };
            lines.push(format!("{tasks}{}", resource.describe()));
            lines.extend(permit_holders(&resource.permit_holders, resource.permit_holders_left_out, duration));
            lines.extend(resource.waiters().map(|waiters| format!("awaited by {waiters}")));
        }
        if self.resources_left_out > 0 {
            lines.push(format!("and {} in other states", counted(self.resources_left_out, "more object")));
        }
        lines.extend(self.error.as_ref().map(|error| format!("({error})")));
        lines
    }
}

impl Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runtime {}: {}", self.runtime, counted(self.alive, "task"))?;
        // A task that was woken after the waiting ones were counted may also be in a queue.
        let queued = self.queued.min(self.alive.saturating_sub(self.waiting));
        let parts = [(self.waiting, "waiting"), (queued, "queued")];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let mut before = ": ";
        for (count, state) in parts {
            write!(f, "{before}{count} {state}")?;
            before = ", ";
        }
        if !self.running.is_empty() {
            write!(f, "; {} running when the dump ended", self.running.len())?;
        }
        writeln!(f)?;
        for running in &self.running {
            writeln!(f)?;
            write_running(f, running)?;
        }
        for group in &self.groups {
            writeln!(f)?;
            write_group(f, group)?;
        }
        for block_on in &self.block_on {
            writeln!(f)?;
            write_block_on(f, block_on)?;
        }
        let notes = self.notes();
        if !notes.is_empty() {
            writeln!(f)?;
        }
        notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn is_or_are(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn write_running(f: &mut fmt::Formatter<'_>, running: &Running) -> fmt::Result {
    let Running { task, spawned_at, worker, for_ns, chain } = running;
    let for_ = duration(*for_ns);
    writeln!(f, "1 task running for {for_} on worker {worker}, spawned at {spawned_at}  {}", label(task))?;
    write_chain(f, chain)
}

fn write_group(f: &mut fmt::Formatter<'_>, group: &Group) -> fmt::Result {
    let oldest = duration(group.oldest_ns);
    match group.tasks {
        1 => write!(f, "1 task waiting for {oldest}")?,
        tasks if duration(group.newest_ns) == oldest => write!(f, "{tasks} tasks waiting for {oldest}")?,
        tasks => write!(f, "{tasks} tasks waiting for {} to {oldest}", duration(group.newest_ns))?,
    }
    write!(f, ", spawned at {}", group.spawned_at)?;
    const NAMED_MAX: usize = 3;
    let named = group.examples.iter().take(NAMED_MAX).map(label).collect::<Vec<_>>().join(", ");
    let more = if group.tasks > NAMED_MAX as u64 { ", …" } else { "" };
    writeln!(f, "  {named}{more}")?;
    write_chain(f, &group.chain)?;
    group.details().iter().try_for_each(|detail| writeln!(f, "  {detail}"))
}

fn write_block_on(f: &mut fmt::Formatter<'_>, block_on: &BlockOn) -> fmt::Result {
    let BlockOn { called_at, waiting_ns, chain, error } = block_on;
    let state =
        waiting_ns.map_or("being polled".to_owned(), |waiting_ns| format!("waiting for {}", duration(waiting_ns)));
    writeln!(f, "block_on {state}, called at {called_at}")?;
    write_chain(f, chain)?;
    error.iter().try_for_each(|error| writeln!(f, "  ({error})"))
}

fn label(task: &TaskRef) -> String {
    match &task.name {
        Some(name) => format!("#{} {name:?}", task.id),
        None => format!("#{}", task.id),
    }
}

/// Writes a chain as an indented tree, with the places of the code in one column.
fn write_chain(f: &mut fmt::Formatter<'_>, chain: &[Link]) -> fmt::Result {
    /// How far to the right the column of places is moved by long names.
    const COLUMN_MAX: usize = 60;
    let rows = rows(chain);
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.filter(|width| *width <= COLUMN_MAX).max().unwrap_or(0)
    };
    let (names, places) = (width(0), width(1));
    rows.iter().try_for_each(|[name, place, code]| {
        writeln!(f, "{}", format!("{name:names$}  {place:places$}  {code}").trim_end())
    })
}

/// Returns the lines of a chain: the indented tree of names, the places, and the source lines.
///
/// ```
/// use volt_telemetry::dump::{Link, rows};
///
/// let main = Link { function: Some("main".into()), ..Link::default() };
/// let wait = Link { function: Some("Mutex::lock".into()), depth: 1, ..Link::default() };
/// let names: Vec<String> = rows(&[main, wait]).into_iter().map(|[name, ..]| name).collect();
/// assert_eq!(names, ["  main", "  └ Mutex::lock"]);
/// ```
pub fn rows(chain: &[Link]) -> Vec<[String; 3]> {
    chain.iter().enumerate().map(|(at, link)| row(chain, at, link)).collect()
}

/// Returns the name of a link, with its branch of the tree, its place and its source line.
fn row(chain: &[Link], at: usize, link: &Link) -> [String; 3] {
    let mut name = String::from("  ");
    // No chain is deeper than it is long, but a hostile program may send any depth.
    let link_depth = link.depth.min(MAX_LINKS as u32);
    if link_depth > 0 {
        // Whether links of a smaller depth continue below is shown by a bar.
        for depth in 1..link_depth {
            name.push_str(if has_sibling(chain, at, depth) { "│ " } else { "  " });
        }
        name.push_str(if has_sibling(chain, at, link_depth) { "├ " } else { "└ " });
    }
    name.push_str(link.function.as_deref().unwrap_or("(name unknown)"));
    if link.times > 1 {
        // Writing to a String never fails.
        let _ = write!(name, " × {}", link.times);
    }
    [name, link.place().unwrap_or_default(), link.code.clone().unwrap_or_default()]
}

/// Returns whether a link of this depth, with the same parent as the one at or above `at`, follows.
fn has_sibling(chain: &[Link], at: usize, depth: u32) -> bool {
    chain[at + 1..].iter().take_while(|link| link.depth >= depth).any(|link| link.depth == depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::Lock;

    fn link(depth: u32, function: &str, line: u32) -> Link {
        let (function, file) = (Some(function.to_owned()), Some("src/shop.rs".to_owned()));
        Link { depth, function, file, line: Some(line), is_user_code: true, times: 1, code: None }
    }

    #[test]
    fn a_group_shows_the_holders_of_its_locks() {
        let lock = Lock {
            tasks: 2,
            held_by: Some(7),
            held_by_name: Some("till".into()),
            held_at: "src/till.rs:9:5".into(),
            held_ns: Some(61_000_000_000),
            queue: vec![4, 3],
            waiters_len: Some(3),
        };
        let alone = Lock { tasks: 1, held_at: "src/main.rs:2:1".into(), queue: vec![5], ..Lock::default() };
        let group = Group { tasks: 3, locks: vec![lock, alone], locks_left_out: 1, ..Group::default() };
        let text = Dump { groups: vec![group], ..Dump::default() }.text();
        let shown: Vec<_> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(
            shown,
            [
                "  2 tasks: held by task 7 \"till\" for 1 min 1 s, acquired at src/till.rs:9:5",
                "  waiting in this order: #4, #3, …",
                "  #5: held by code outside of tasks, acquired at src/main.rs:2:1",
                "  and 1 lock with other holders",
            ]
        );
    }

    #[test]
    fn a_group_shows_its_tree_with_the_lines_in_a_column() {
        let examples = vec![
            TaskRef { id: 7, name: Some("till".into()), waiting_ns: 130_000_000_000 },
            TaskRef { id: 9, ..TaskRef::default() },
        ];
        let chain = vec![
            link(0, "shop::serve", 10),
            link(1, "shop::order", 20),
            Link { code: Some("lock().await".into()), ..link(2, "Mutex::lock", 30) },
            Link { times: 20, ..link(1, "sleep", 40) },
        ];
        let group = Group {
            spawned_at: "src/main.rs:3:5".into(),
            tasks: 2,
            oldest_ns: 130_000_000_000,
            newest_ns: 4_000_000_000,
            examples,
            chain,
            ..Group::default()
        };
        let dump = Dump {
            runtime: "shop".into(),
            alive: 3,
            waiting: 2,
            read: 2,
            queued: 1,
            groups: vec![group],
            remarks: vec!["no names".into()],
            ..Dump::default()
        };
        assert_eq!(
            dump.text(),
            "\
runtime shop: 3 tasks: 2 waiting, 1 queued

2 tasks waiting for 4 s to 2 min 10 s, spawned at src/main.rs:3:5  #7 \"till\", #9
  shop::serve      src/shop.rs:10
  ├ shop::order    src/shop.rs:20
  │ └ Mutex::lock  src/shop.rs:30  lock().await
  └ sleep × 20     src/shop.rs:40

note: no names
"
        );
    }

    #[test]
    fn a_future_of_block_on_follows_the_groups() {
        let called_at = "src/main.rs:4:1".to_owned();
        let waits =
            BlockOn { called_at, waiting_ns: Some(9_000_000_000), chain: vec![link(0, "shop::main", 7)], error: None };
        let polled = BlockOn { waiting_ns: None, chain: Vec::new(), error: Some("not read".into()), ..waits.clone() };
        let dump = Dump { runtime: "shop".into(), block_on: vec![waits, polled], ..Dump::default() };
        assert_eq!(
            dump.text(),
            "\
runtime shop: 0 tasks

block_on waiting for 9 s, called at src/main.rs:4:1
  shop::main  src/shop.rs:7

block_on being polled, called at src/main.rs:4:1
  (not read)
"
        );
    }

    #[test]
    fn the_numbers_of_tasks_sum_up_at_the_start_of_the_dump() {
        let running = vec![Running::default(); 2];
        let dump = Dump { runtime: "shop".into(), alive: 33, waiting: 32, queued: 2, running, ..Dump::default() };
        let text = dump.text();
        let wanted = "runtime shop: 33 tasks: 32 waiting, 1 queued; 2 running when the dump ended\n";
        assert!(text.starts_with(wanted), "{text}");
    }

    #[test]
    fn a_depth_beyond_any_chain_does_not_fill_the_memory() {
        let [name, ..] = &rows(&[link(1_000_000, "shop::serve", 1)])[0];
        assert!(name.ends_with("└ shop::serve") && name.len() < 8 * MAX_LINKS, "{} bytes", name.len());
    }

    #[test]
    fn impossible_numbers_of_tasks_do_not_panic() {
        let dump = Dump { waiting: 9, read: u64::MAX, progressed: 1, ..Dump::default() };
        assert!(!dump.notes().iter().any(|note| note.contains("not read")), "{:?}", dump.notes());
    }

    #[test]
    fn a_note_has_the_number_of_missing_tasks() {
        let dump = Dump { waiting: 9, read: 5, progressed: 1, groups_left_out: 2, ..Dump::default() };
        let text = dump.text();
        assert!(text.contains("2 more groups of tasks left out"), "{text}");
        assert!(text.contains("1 task made progress"), "{text}");
        assert!(text.contains("3 tasks of 9 not read"), "{text}");
    }
}
