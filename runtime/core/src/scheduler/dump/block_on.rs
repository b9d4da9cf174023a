//! The part of a dump about the futures of `block_on`: see `readers::main_futures`.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use volt_telemetry::dump::BlockOn;
use volt_telemetry::text;
use volt_telemetry::text::counted;

use super::{LEFT_OUT, Maker, NO_WAKER, Stacks};
use crate::scheduler::readers::main_futures::{Requested, Target, Traced};

/// How long to wait for the replies of the threads, after all tasks were polled.
const TIMEOUT: Duration = Duration::from_millis(100);

impl Maker<'_> {
    /// Requests polls, if the dump polls at all. In a runtime with a seed, they would change the
    /// order of polls.
    pub(super) fn request_block_on(&self) -> Option<Requested> {
        let polls = self.query.polls && self.query.task.is_none() && self.shared.seeded.is_none();
        polls.then(|| self.shared.readers.main_futures.request())
    }

    /// Waits for the replies, and adds what they contain. Protocol (4) of `readers::main_futures`.
    pub(super) fn add_block_on(&mut self, requested: Option<Requested>) {
        let Some(Requested { targets, left_out, replies }) = requested else { return };
        if self.limit.is_cancelled() {
            return;
        }
        let until = Instant::now() + self.limit.left().min(TIMEOUT);
        let mut traced: Vec<Option<Traced>> = targets.iter().map(|_| None).collect();
        let end = loop {
            match replies.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((index, reply)) => traced[index] = Some(reply),
                Err(end) => break end,
            }
        };
        for (target, traced) in targets.into_iter().zip(traced) {
            if self.limit.is_cancelled() {
                return;
            }
            let block_on = match traced {
                Some(traced) if !traced.still_waits || traced.awaits_dump => None,
                Some(traced) => Some(self.waiting(&target, &traced)),
                // It has returned meanwhile.
                None if end == RecvTimeoutError::Disconnected => None,
                None => Some(self.polled(&target)),
            };
            let selection = &self.selection;
            let has = |block_on: &BlockOn| selection.has_block_on(&block_on.called_at, &block_on.chain);
            self.dump.block_on.extend(block_on.filter(has));
        }
        if left_out > 0 {
            self.dump.remarks.push(format!("{} of block_on not shown", counted(left_out as u64, "more call")));
        }
    }

    fn waiting(&mut self, target: &Target, traced: &Traced) -> BlockOn {
        let Stacks { calls, times, left_out } = self.unwind(&traced.recorded);
        let (chain, mut error, known) = self.chain(&calls, times);
        self.remark(known);
        if calls.is_empty() {
            error = Some(NO_WAKER.to_owned());
        }
        if left_out {
            error = Some(LEFT_OUT.to_owned());
        }
        // Without a time, it was being polled when the dump made its request, or not polled yet. It
        // began to wait after that. But if that poll was for an earlier dump, it may have waited
        // since before, and it is not known since when.
        let waiting_ns = self.began_at_ns.saturating_sub(target.waits_since_ns.unwrap_or(self.began_at_ns));
        BlockOn { called_at: text::location(target.called_at), waiting_ns: Some(waiting_ns), chain, error }
    }

    /// Returns the entry of a main future that its thread has not polled for the dump.
    fn polled(&self, target: &Target) -> BlockOn {
        let called_at = text::location(target.called_at);
        let Some(since_ns) = target.waits_since_ns else { return BlockOn { called_at, ..BlockOn::default() } };
        let waiting_ns = Some(self.began_at_ns.saturating_sub(since_ns));
        let error = Some(format!("its thread did not poll it within {TIMEOUT:?}"));
        BlockOn { called_at, waiting_ns, error, ..BlockOn::default() }
    }
}
