//! Makes a reply that is too large fit a frame. The least useful parts are removed first.
//!
//! A snapshot loses parts in the order of `recorder::cuts`. A list loses rows. A dump loses the
//! outer ends of the stacks of running tasks, then groups, then all of these stacks and the running
//! tasks. Its `groups_left_out` and `remarks` report that.

use std::io;

use volt_telemetry::dump::Dump;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::wire::Reply;

use super::registry::Registry;
use crate::recorder::cuts;

/// Calls of a running task, or of a `block_on`, that are kept while there are groups to remove.
const CALLS_KEPT: usize = 16;
/// The remark if calls of running tasks, or of a `block_on`, were removed.
const CALLS_CUT: &str =
    "calls of running tasks or of block_on were left out, since the dump was too large for a message";
/// The remark if running tasks were removed.
const RUNNING_CUT: &str = "running tasks were left out, since the dump was too large for a message";
/// The remark if futures of `block_on` were removed.
const BLOCK_ON_CUT: &str = "futures of block_on were left out, since the dump was too large for a message";

/// Encodes the reply as a frame. Removes parts of its snapshots until it fits.
///
/// # Errors
/// Returns an error if it does not fit even then.
pub(super) fn encode_cutting(reply: &mut Reply, max_bytes: usize, registry: &Registry) -> io::Result<Vec<u8>> {
    let mut fitting = reply.to_frame(max_bytes);
    if fitting.is_err() {
        registry.count(|health| health.snapshots_cut += 1);
    }
    for step in 0..cuts::STEPS {
        if fitting.is_ok() {
            break;
        }
        snapshots(reply).iter_mut().for_each(|snapshot| _ = cuts::cut(snapshot, step));
        fitting = reply.to_frame(max_bytes);
    }
    fitting
}

fn snapshots(reply: &mut Reply) -> &mut [Snapshot] {
    match reply {
        Reply::Snapshot { program, .. } => &mut program.runtimes,
        Reply::Flush { flush } => flush.snapshot.as_deref_mut().map_or(&mut [], std::slice::from_mut),
        _ => &mut [],
    }
}

/// Encodes the reply as a frame. Shortens its list until it fits. If it does not fit even then,
/// returns the frame of an error.
pub(super) fn encode_shortening(reply: &mut Reply, max_bytes: usize) -> Option<Vec<u8>> {
    loop {
        let error = match reply.to_frame(max_bytes) {
            Ok(frame) => return Some(frame),
            Err(error) => error,
        };
        let is_shorter = match reply {
            Reply::Tasks(list) => halve(&mut list.rows) > 0,
            Reply::Processes(list) => halve(&mut list.rows) > 0,
            Reply::Dump(dump) => shorten(dump),
            Reply::Error { .. } => return None,
            _ => false,
        };
        if !is_shorter {
            *reply = Reply::Error { message: format!("the reply does not fit: {error}") };
        }
    }
}

/// Removes the second half of a list. Returns how many items were removed.
fn halve<T>(list: &mut Vec<T>) -> usize {
    let removed = list.len().div_ceil(2);
    list.truncate(list.len() - removed);
    removed
}

/// Removes the least useful part that is left of a dump. Returns whether there was one.
fn shorten(dump: &mut Dump) -> bool {
    let remark = |dump: &mut Dump, remark: &str| {
        if !dump.remarks.iter().any(|known| known == remark) {
            dump.remarks.push(remark.to_owned());
        }
    };
    let cut_calls = |dump: &mut Dump, kept: usize| {
        let mut is_any = false;
        let running = dump.running.iter_mut().map(|running| &mut running.chain);
        let block_on = dump.block_on.iter_mut().map(|block_on| &mut block_on.chain);
        for chain in running.chain(block_on).filter(|chain| chain.len() > kept) {
            // The outer calls are the same for each poll; the inner ones are where it is stuck.
            chain.drain(..chain.len() - kept);
            let removed = chain.first().map_or(0, |link| link.depth);
            chain.iter_mut().for_each(|link| link.depth = link.depth.saturating_sub(removed));
            is_any = true;
        }
        if is_any {
            remark(dump, CALLS_CUT);
        }
        is_any
    };
    if cut_calls(dump, CALLS_KEPT) {
        return true;
    }
    let removed = halve(&mut dump.groups);
    dump.groups_left_out += removed as u64;
    if removed > 0 || cut_calls(dump, 0) {
        return true;
    }
    let removed = halve(&mut dump.running);
    if removed > 0 {
        remark(dump, RUNNING_CUT);
        return true;
    }
    let removed = halve(&mut dump.block_on);
    if removed > 0 {
        remark(dump, BLOCK_ON_CUT);
    }
    removed > 0
}

#[cfg(test)]
mod tests {
    use volt_telemetry::dump::{BlockOn, Group, Link, Running};
    use volt_telemetry::wire::decode;

    use super::*;

    fn dump() -> Dump {
        let link = |depth| Link { depth, line: Some(depth), function: Some("deep::".repeat(20)), ..Link::default() };
        let chain: Vec<_> = (0..400).map(link).collect();
        let running = Running { chain: chain.clone(), ..Running::default() };
        let group = Group { chain: chain[..10].to_vec(), ..Group::default() };
        let block_on = BlockOn { chain: chain.clone(), ..BlockOn::default() };
        Dump { running: vec![running; 64], groups: vec![group; 8], block_on: vec![block_on; 4], ..Dump::default() }
    }

    /// Returns the reply that a client receives for the dump.
    fn sent(max_bytes: usize) -> Reply {
        let frame = encode_shortening(&mut Reply::Dump(Box::new(dump())), max_bytes).unwrap();
        assert!(frame.len() <= max_bytes);
        decode(&frame[4..]).unwrap()
    }

    #[test]
    fn a_dump_that_is_too_large_loses_calls_before_groups() {
        // The stacks of running tasks take some megabytes.
        let Reply::Dump(cut) = sent(400_000) else { panic!("no dump") };
        assert_eq!((cut.running.len(), cut.groups.len(), cut.groups_left_out), (64, 8, 0));
        assert_eq!(cut.block_on[3].chain.len(), CALLS_KEPT);
        let kept = &cut.running[0].chain;
        let lines: Vec<_> = kept.iter().filter_map(|link| link.line).collect();
        assert_eq!(lines, Vec::from_iter(400 - CALLS_KEPT as u32..400), "the inner ones");
        assert_eq!((kept[0].depth, kept[CALLS_KEPT - 1].depth), (0, CALLS_KEPT as u32 - 1));
        assert_eq!(cut.remarks, [CALLS_CUT]);
        let Reply::Dump(cut) = sent(2_000) else { panic!("no dump") };
        assert_eq!((cut.groups.len(), cut.groups_left_out), (0, 8));
        assert!(cut.running.len() < 64 && cut.running.iter().all(|running| running.chain.is_empty()));
        assert_eq!(cut.remarks, [CALLS_CUT, RUNNING_CUT]);
    }

    #[test]
    fn a_reply_that_cannot_be_shortened_is_an_error() {
        let Reply::Error { message } = sent(150) else { panic!("no error") };
        assert!(message.contains("does not fit"), "{message}");
    }
}
