//! How long each cause of one stuck poll has lasted.
//!
//! The time from one sample of the thread to the next is charged to the cause of the earlier one:
//! a change of the cause counts from the sample that finds it. The array has a place for each
//! cause, so a sample allocates nothing.
//!
//! The cause of the incident is the longest one. If that is the machine's, it would hide a block of
//! the program, which the program's developers can mend. So a cause of the program that has
//! certainly lasted for `incident_after` takes precedence: the times are measured by samples, so it
//! must have lasted for one more step between two samples.
//!
//! A thread may not provide its stack in time: it waits in the kernel where no signal wakes it, or
//! gets no processor. That may last, so the stack is requested again each time that the poll has
//! lasted twice as long as at the last request, but only [`RETRIES_MAX`] times.

use volt_telemetry::incident::{Cause, CauseTime, Incident};

/// How many stacks of one poll are captured, one per cause.
pub(super) const STACKS_MAX: usize = 4;
/// How often stacks of one poll that were missed are requested again: for 10 s by default.
const RETRIES_MAX: u32 = 10;
/// The thread of an incident is sampled again when the poll has lasted longer by this part of its
/// duration, but not before `SAMPLED_AGAIN_NS`, after which the kernel's counts are up to date.
const SAMPLED_AGAIN_PART: u64 = 64;
const SAMPLED_AGAIN_NS: u64 = 10_000_000;

/// Returns the time between two samples of a poll that has lasted for this time.
pub(super) fn step_ns(for_ns: u64) -> u64 {
    (for_ns / SAMPLED_AGAIN_PART).max(SAMPLED_AGAIN_NS)
}

/// The times of the causes, and the causes whose stack was requested.
pub(super) struct Times {
    /// In the order of [`Cause::ALL`].
    parts: [Part; Cause::ALL.len()],
    /// The cause of the last sample.
    last: Cause,
    /// The sum of the parts.
    charged_ns: u64,
    /// The duration from which a poll is an incident.
    incident_after_ns: u64,
    /// How often a stack was requested again.
    retries: u32,
    /// The duration of the poll from which a stack may be requested again.
    retry_after_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Part {
    for_ns: u64,
    is_requested: bool,
}

impl Times {
    /// Charges the poll so far to the cause of its first samples.
    pub(super) fn new(cause: Cause, for_ns: u64, incident_after_ns: u64) -> Self {
        let mut times = Self {
            parts: Default::default(),
            last: cause,
            charged_ns: 0,
            incident_after_ns,
            retries: 0,
            retry_after_ns: 0,
        };
        times.advance(for_ns);
        times
    }

    /// Notes the cause of a sample, taken when the poll had lasted for `for_ns`.
    pub(super) fn sample(&mut self, cause: Cause, for_ns: u64) {
        self.advance(for_ns);
        self.last = cause;
    }

    /// Charges the time since the last call to the cause of the last sample.
    pub(super) fn advance(&mut self, for_ns: u64) {
        let more_ns = for_ns.saturating_sub(self.charged_ns);
        self.charged_ns += more_ns;
        self.part(self.last).for_ns += more_ns;
    }

    /// Returns the cause of the last sample.
    pub(super) fn last(&self) -> Cause {
        self.last
    }

    /// Writes the times into the incident. If another cause takes precedence now, it becomes that
    /// of the incident, whose wait channel is that of the former cause.
    pub(super) fn write_to(&self, incident: &mut Incident) {
        incident.for_ns = self.charged_ns;
        for (cause, part) in Cause::ALL.into_iter().zip(&self.parts).filter(|(_, part)| part.for_ns > 0) {
            match incident.causes.iter_mut().find(|known| known.cause == cause) {
                Some(known) => known.for_ns = part.for_ns,
                None => incident.causes.push(CauseTime { cause, for_ns: part.for_ns, at: None }),
            }
        }
        incident.causes.sort_by_key(|part| std::cmp::Reverse(part.for_ns));
        if incident.causes.first().is_some_and(|longest| longest.cause.is_of_machine())
            && let Some(first) = incident.causes.iter().position(|part| self.is_block_of_program(part))
        {
            incident.causes[..=first].rotate_right(1);
        }
        let first = incident.causes.first().map_or(self.last, |part| part.cause);
        if std::mem::replace(&mut incident.cause, first) != first {
            incident.wait_channel = None;
        }
    }

    /// Returns whether this is a known cause of the program that has certainly lasted for as long
    /// as makes a poll an incident.
    fn is_block_of_program(&self, part: &CauseTime) -> bool {
        let is_known = !part.cause.is_of_machine() && part.cause != Cause::Unknown;
        is_known && part.for_ns >= self.incident_after_ns.saturating_add(step_ns(self.charged_ns))
    }

    /// Notes that a stack of the last sample is requested, and returns whether it is to be
    /// captured: it is the first with this cause. Returns an error if there are enough.
    pub(super) fn request_stack(&mut self) -> Result<bool, &'static str> {
        let requested = self.parts.iter().filter(|part| part.is_requested).count();
        if std::mem::replace(&mut self.part(self.last).is_requested, true) {
            return Ok(false);
        }
        if requested >= STACKS_MAX {
            return Err("the stacks of other causes of this poll were captured");
        }
        self.retry_after_ns = self.charged_ns.saturating_mul(2);
        Ok(true)
    }

    /// Returns whether a stack that was missed may be requested again now.
    pub(super) fn may_retry(&self) -> bool {
        self.can_retry() && self.charged_ns >= self.retry_after_ns
    }

    /// Notes that a stack is requested again.
    pub(super) fn retry(&mut self) {
        self.retries += 1;
        self.retry_after_ns = self.charged_ns.saturating_mul(2);
    }

    /// Returns whether a stack that is missed now can be requested again later.
    pub(super) fn can_retry(&self) -> bool {
        self.retries < RETRIES_MAX
    }

    /// Returns the causes so far whose stack was not requested.
    pub(super) fn without_stack(&self) -> impl Iterator<Item = Cause> + '_ {
        let parts = Cause::ALL.into_iter().zip(&self.parts);
        parts.filter(|(_, part)| part.for_ns > 0 && !part.is_requested).map(|(cause, _)| cause)
    }

    fn part(&mut self, cause: Cause) -> &mut Part {
        // A cause that is not in the list does not occur: `classify` returns only those.
        let index = Cause::ALL.iter().position(|other| *other == cause).unwrap_or(Cause::ALL.len() - 1);
        &mut self.parts[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(cause: Cause, for_ns: u64) -> Times {
        Times::new(cause, for_ns, 10_000_000)
    }

    fn parts(times: &Times) -> Vec<(Cause, u64)> {
        let mut incident = Incident::default();
        times.write_to(&mut incident);
        assert_eq!(incident.causes.iter().map(|part| part.for_ns).sum::<u64>(), incident.for_ns);
        assert_eq!(incident.cause, incident.causes[0].cause);
        incident.causes.iter().map(|part| (part.cause, part.for_ns)).collect()
    }

    #[test]
    fn each_cause_lasts_until_the_sample_that_finds_another() {
        let mut times = times(Cause::Lock, 10);
        times.sample(Cause::Lock, 50);
        times.sample(Cause::Sleep, 130);
        assert_eq!(parts(&times), [(Cause::Lock, 130)], "it was not sleeping before");
        times.advance(160);
        assert_eq!((parts(&times), times.last()), (vec![(Cause::Lock, 130), (Cause::Sleep, 30)], Cause::Sleep));
        times.sample(Cause::Lock, 200);
        times.sample(Cause::Cpu, 210);
        times.advance(1_000);
        assert_eq!(parts(&times), [(Cause::Cpu, 790), (Cause::Lock, 140), (Cause::Sleep, 70)]);
    }

    #[test]
    fn a_block_of_the_program_is_not_hidden_by_the_machine() {
        const MS: u64 = 1_000_000;
        let mut times = times(Cause::NotScheduled, 100 * MS);
        times.sample(Cause::Sleep, 400 * MS);
        // Of this time, a step between two samples may not have been slept.
        times.advance(419 * MS);
        assert_eq!(parts(&times), [(Cause::NotScheduled, 400 * MS), (Cause::Sleep, 19 * MS)]);
        times.sample(Cause::Unknown, 420 * MS);
        times.sample(Cause::Stopped, 520 * MS);
        times.advance(540 * MS);
        let order = [(Cause::Sleep, 20), (Cause::NotScheduled, 400), (Cause::Unknown, 100), (Cause::Stopped, 20)];
        assert_eq!(parts(&times), order.map(|(cause, ms)| (cause, ms * MS)));
        times.sample(Cause::Io, 540 * MS);
        times.advance(570 * MS);
        assert_eq!(parts(&times)[0], (Cause::Io, 30 * MS), "the longest one of the program");
        // In a long poll, the samples are further apart.
        times.sample(Cause::Stopped, 570 * MS);
        times.advance(5_000 * MS);
        assert_eq!(parts(&times)[0].0, Cause::Stopped);
    }

    #[test]
    fn a_pause_is_charged_to_no_cause() {
        let mut times = times(Cause::Io, 100);
        // The poll is shorter than it was before the pause was subtracted.
        times.sample(Cause::Io, 80);
        assert_eq!(parts(&times), [(Cause::Io, 100)]);
        times.advance(110);
        assert_eq!(parts(&times), [(Cause::Io, 110)]);
    }

    #[test]
    fn the_first_stack_of_each_cause_is_requested_up_to_a_limit() {
        let mut times = times(Cause::Cpu, 10);
        for (n, cause) in Cause::ALL.into_iter().enumerate() {
            times.sample(cause, 20 + n as u64);
            let first = times.request_stack();
            assert_eq!(first.is_ok(), n < STACKS_MAX, "{cause:?}");
            assert_eq!(times.request_stack(), Ok(false), "{cause:?}");
        }
    }

    #[test]
    fn a_missed_stack_is_requested_again_a_limited_number_of_times() {
        let mut times = times(Cause::Io, 10);
        assert_eq!((times.request_stack(), times.may_retry()), (Ok(true), false));
        let mut retried_at = Vec::new();
        for for_ns in 11..100_000 {
            times.advance(for_ns);
            if times.may_retry() {
                times.retry();
                retried_at.push(for_ns);
            }
        }
        assert_eq!(retried_at, (1..=RETRIES_MAX).map(|n| 10 << n).collect::<Vec<_>>());
        assert!(!times.can_retry());
    }

    #[test]
    fn causes_that_were_over_before_have_no_stack() {
        let mut times = times(Cause::Lock, 10);
        times.sample(Cause::Sleep, 50);
        times.advance(60);
        assert_eq!(times.request_stack(), Ok(true));
        assert_eq!(times.without_stack().collect::<Vec<_>>(), [Cause::Lock]);
    }
}
