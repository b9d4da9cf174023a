//! One track of a trace: its open slices and its current time.
//!
//! Invariants: those of the trace (*Balanced*, *Nested*, *Never backwards*), for one track. The
//! caller passes times that are not before `last_ns`, as [`Lane::place`] returns them. After
//! [`Lane::close`] there are as many ends as begins.

use super::json::Line;

/// The activity that a slice represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    Poll { task: u64 },
    Search,
    Park,
    Driver,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Lane {
    pid: u32,
    tid: u32,
    open: Vec<Slice>,
    /// The last time that was written on this track; `None` if none was.
    last_ns: Option<u64>,
    /// Number of events that are missing since then.
    lost: u64,
    /// Where the next task to be polled was found.
    pub(super) source: Option<&'static str>,
}

impl Lane {
    pub(super) fn new(pid: u32, tid: u32) -> Self {
        Self { pid, tid, open: Vec::new(), last_ns: None, lost: 0, source: None }
    }

    /// Returns the time on this track for an event that was recorded at `at_ns`, and began at
    /// `began_ns` if it is the first one.
    pub(super) fn place(&mut self, at_ns: u64, began_ns: u64) -> u64 {
        at_ns.max(*self.last_ns.get_or_insert(began_ns))
    }

    fn line(&self, phase: char, at_ns: u64) -> Line {
        Line::at(self.pid, self.tid, phase, at_ns)
    }

    fn last_ns(&self) -> u64 {
        self.last_ns.unwrap_or(0)
    }

    /// Opens a slice, after ending those that cannot contain it.
    pub(super) fn begin(&mut self, out: &mut Vec<Line>, at_ns: u64, slice: Slice, fill: impl FnOnce(Line) -> Line) {
        self.settle(out, at_ns);
        // The driver may be polled during a search or a sleep; nothing else is nested.
        let outer = |open: &&Slice| slice == Slice::Driver && matches!(open, Slice::Search | Slice::Park);
        let kept = self.open.iter().take_while(outer).count();
        self.close_above(out, kept, at_ns, "end_lost");
        self.open.push(slice);
        self.last_ns = Some(at_ns);
        out.push(fill(self.line('B', at_ns)));
    }

    /// Ends a slice. If its begin was lost, first begins it at `began_ns` or at the track's current
    /// time, with the name that `fill` sets.
    pub(super) fn end(
        &mut self,
        out: &mut Vec<Line>,
        (began_ns, at_ns): (u64, u64),
        slice: Slice,
        fill: impl FnOnce(Line) -> Line,
        args: impl FnOnce(Line) -> Line,
    ) {
        if !self.open.contains(&slice) {
            let began_ns = began_ns.max(self.last_ns()).min(at_ns);
            self.begin(out, began_ns, slice, |line| fill(line).arg("begin_lost", true));
        }
        let place = self.open.iter().rposition(|open| *open == slice).unwrap_or(0);
        self.close_above(out, place + 1, at_ns, "end_lost");
        self.open.pop();
        self.last_ns = Some(at_ns);
        out.push(args(self.line('E', at_ns)));
    }

    /// Writes an instant event, inside the slice that is open, if any.
    pub(super) fn instant(&mut self, out: &mut Vec<Line>, at_ns: u64, name: &str, args: impl FnOnce(Line) -> Line) {
        self.settle(out, at_ns);
        self.last_ns = Some(at_ns);
        out.push(args(self.line('i', at_ns).category("worker").name(name).scope('t')));
    }

    /// Writes the begin of a flow. A flow must begin in a slice. If none is open, this writes an
    /// empty one with the name that `fill` sets.
    pub(super) fn begin_flow(&mut self, out: &mut Vec<Line>, at_ns: u64, flow: u64, fill: impl FnOnce(Line) -> Line) {
        self.settle(out, at_ns);
        self.last_ns = Some(at_ns);
        let needs_slice = self.open.is_empty();
        out.extend(needs_slice.then(|| fill(self.line('B', at_ns).category("wake"))));
        out.push(self.line('s', at_ns).category("wake").name("wake").flow(flow));
        out.extend(needs_slice.then(|| self.line('E', at_ns)));
    }

    /// Writes the end of a flow, in the slice that was opened last.
    pub(super) fn end_flow(&mut self, out: &mut Vec<Line>, at_ns: u64, flow: u64) {
        out.push(self.line('f', at_ns).category("wake").name("wake").flow(flow));
    }

    /// Records that events are missing from here on. The ends of open slices are unknown, so this
    /// ends them.
    pub(super) fn lose(&mut self, out: &mut Vec<Line>, count: u64) {
        self.close_above(out, 0, self.last_ns(), "end_lost");
        self.lost = self.lost.saturating_add(count);
        self.source = None;
    }

    /// Ends all open slices, at `at_ns` or at the track's current time if that is later.
    pub(super) fn close(&mut self, out: &mut Vec<Line>, at_ns: u64) {
        let Some(last_ns) = self.last_ns else { return };
        let at_ns = at_ns.max(last_ns);
        self.settle(out, at_ns);
        self.close_above(out, 0, at_ns, "unfinished");
    }

    /// Ends all but the outermost `kept` slices, with the reason.
    fn close_above(&mut self, out: &mut Vec<Line>, kept: usize, at_ns: u64, why: &str) {
        while self.open.len() > kept {
            self.open.pop();
            self.last_ns = Some(at_ns);
            out.push(self.line('E', at_ns).arg(why, true));
        }
    }

    /// Shows the time span up to `at_ns` in which events are missing; the caller continues there.
    fn settle(&mut self, out: &mut Vec<Line>, at_ns: u64) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let from_ns = self.last_ns.unwrap_or(at_ns);
            out.push(self.line('B', from_ns).category("lost").name(&format!("{lost} events lost")));
            out.push(self.line('E', at_ns));
        }
    }
}
