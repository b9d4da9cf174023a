//! One track of a trace: which slices are open on it, and where in time it stands.
//!
//! Invariants: those of the trace, here for one track (*Balanced*, *Nested*, *Never backwards*):
//! every method takes a time that is not before `last_ns`, as [`Lane::place`] gives it, and leaves
//! as many ends as begins once [`Lane::close`] was called.

use super::json::Line;

/// What a slice stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    Poll { task: u64 },
    Search,
    Park,
    Driver,
}

/// See the header of this file.
#[derive(Debug)]
pub(super) struct Lane {
    pid: u32,
    tid: u32,
    open: Vec<Slice>,
    /// The last time that was written on it; `None` before anything was.
    last_ns: Option<u64>,
    /// Events that are missing since then.
    lost: u64,
    /// Where the next task to be polled was found.
    pub(super) source: Option<&'static str>,
}

impl Lane {
    pub(super) fn new(pid: u32, tid: u32) -> Self {
        Self { pid, tid, open: Vec::new(), last_ns: None, lost: 0, source: None }
    }

    /// Where on this track something stands that was told to be at `at_ns`, and began at `began_ns`
    /// if it is the first.
    pub(super) fn place(&mut self, at_ns: u64, began_ns: u64) -> u64 {
        at_ns.max(*self.last_ns.get_or_insert(began_ns))
    }

    fn line(&self, phase: char, at_ns: u64) -> Line {
        Line::at(self.pid, self.tid, phase, at_ns)
    }

    fn last_ns(&self) -> u64 {
        self.last_ns.unwrap_or(0)
    }

    /// Opens a slice, after what cannot go on beside it was ended.
    pub(super) fn begin(&mut self, out: &mut Vec<Line>, at_ns: u64, slice: Slice, fill: impl FnOnce(Line) -> Line) {
        self.settle(out, at_ns);
        // The driver may be polled in a search or a sleep; nothing else lies in anything.
        let outer = |open: &&Slice| slice == Slice::Driver && matches!(open, Slice::Search | Slice::Park);
        let kept = self.open.iter().take_while(outer).count();
        self.close_above(out, kept, at_ns, "end_lost");
        self.open.push(slice);
        self.last_ns = Some(at_ns);
        out.push(fill(self.line('B', at_ns)));
    }

    /// Ends a slice. If its begin was lost it began at `began_ns`, or where the track stands, and
    /// is drawn as `fill` says.
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

    /// A point, inside whatever is open.
    pub(super) fn instant(&mut self, out: &mut Vec<Line>, at_ns: u64, name: &str, args: impl FnOnce(Line) -> Line) {
        self.settle(out, at_ns);
        self.last_ns = Some(at_ns);
        out.push(args(self.line('i', at_ns).category("worker").name(name).scope('t')));
    }

    /// The begin of a flow. Outside any slice it gets one of no length, which is drawn as `fill`
    /// says, since a flow begins in one.
    pub(super) fn begin_flow(&mut self, out: &mut Vec<Line>, at_ns: u64, flow: u64, fill: impl FnOnce(Line) -> Line) {
        self.settle(out, at_ns);
        self.last_ns = Some(at_ns);
        let needs_slice = self.open.is_empty();
        out.extend(needs_slice.then(|| fill(self.line('B', at_ns).category("wake"))));
        out.push(self.line('s', at_ns).category("wake").name("wake").flow(flow));
        out.extend(needs_slice.then(|| self.line('E', at_ns)));
    }

    /// The end of a flow, in the slice that was opened last.
    pub(super) fn end_flow(&mut self, out: &mut Vec<Line>, at_ns: u64, flow: u64) {
        out.push(self.line('f', at_ns).category("wake").name("wake").flow(flow));
    }

    /// Events are missing from here on: nobody knows when what is open has ended.
    pub(super) fn lose(&mut self, out: &mut Vec<Line>, count: u64) {
        self.close_above(out, 0, self.last_ns(), "end_lost");
        self.lost = self.lost.saturating_add(count);
        self.source = None;
    }

    /// Ends all that is open, at `at_ns` or where the track stands.
    pub(super) fn close(&mut self, out: &mut Vec<Line>, at_ns: u64) {
        let Some(last_ns) = self.last_ns else { return };
        let at_ns = at_ns.max(last_ns);
        self.settle(out, at_ns);
        self.close_above(out, 0, at_ns, "unfinished");
    }

    /// Ends all but the outermost `kept` slices, and says why.
    fn close_above(&mut self, out: &mut Vec<Line>, kept: usize, at_ns: u64, why: &str) {
        while self.open.len() > kept {
            self.open.pop();
            self.last_ns = Some(at_ns);
            out.push(self.line('E', at_ns).arg(why, true));
        }
    }

    /// Shows the time up to `at_ns` of which events are missing; where that stands, the caller goes
    /// on.
    fn settle(&mut self, out: &mut Vec<Line>, at_ns: u64) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let from_ns = self.last_ns.unwrap_or(at_ns);
            out.push(self.line('B', from_ns).category("lost").name(&format!("{lost} events lost")));
            out.push(self.line('E', at_ns));
        }
    }
}
