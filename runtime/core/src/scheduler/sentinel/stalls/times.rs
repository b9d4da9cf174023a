//! How long each cause of one stuck poll has lasted.
//!
//! The time from one sample of the thread to the next is charged to the cause of the earlier one:
//! a change of the cause counts from the sample that finds it. The array has a place for each
//! cause, so a sample allocates nothing.

use volt_telemetry::incident::{Cause, CauseTime, Incident};

/// How many stacks of one poll are captured, one per cause.
pub(super) const STACKS_MAX: usize = 4;

/// The times of the causes, and the causes whose stack was requested.
pub(super) struct Times {
    /// In the order of [`Cause::ALL`].
    parts: [Part; Cause::ALL.len()],
    /// The cause of the last sample.
    last: Cause,
    /// The sum of the parts.
    charged_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Part {
    for_ns: u64,
    is_requested: bool,
}

impl Times {
    /// Charges the poll so far to the cause of its first samples.
    pub(super) fn new(cause: Cause, for_ns: u64) -> Self {
        let mut times = Self { parts: Default::default(), last: cause, charged_ns: 0 };
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

    /// Writes the times into the incident. If another cause has become the longest, it becomes that
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
        let longest = incident.causes.first().map_or(self.last, |part| part.cause);
        if std::mem::replace(&mut incident.cause, longest) != longest {
            incident.wait_channel = None;
        }
    }

    /// Notes that a stack of the last sample is requested, and returns whether it is to be
    /// captured: it is the first with this cause. Returns an error if there are enough.
    pub(super) fn request_stack(&mut self) -> Result<bool, &'static str> {
        let requested = self.parts.iter().filter(|part| part.is_requested).count();
        if std::mem::replace(&mut self.part(self.last).is_requested, true) {
            return Ok(false);
        }
        if requested < STACKS_MAX { Ok(true) } else { Err("the stacks of other causes of this poll were captured") }
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

    fn parts(times: &Times) -> Vec<(Cause, u64)> {
        let mut incident = Incident::default();
        times.write_to(&mut incident);
        assert_eq!(incident.causes.iter().map(|part| part.for_ns).sum::<u64>(), incident.for_ns);
        assert_eq!(incident.cause, incident.causes[0].cause);
        incident.causes.iter().map(|part| (part.cause, part.for_ns)).collect()
    }

    #[test]
    fn each_cause_lasts_until_the_sample_that_finds_another() {
        let mut times = Times::new(Cause::Lock, 10);
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
    fn a_pause_is_charged_to_no_cause() {
        let mut times = Times::new(Cause::Io, 100);
        // The poll is shorter than it was before the pause was subtracted.
        times.sample(Cause::Io, 80);
        assert_eq!(parts(&times), [(Cause::Io, 100)]);
        times.advance(110);
        assert_eq!(parts(&times), [(Cause::Io, 110)]);
    }

    #[test]
    fn the_first_stack_of_each_cause_is_requested_up_to_a_limit() {
        let mut times = Times::new(Cause::Cpu, 10);
        for (n, cause) in Cause::ALL.into_iter().enumerate() {
            times.sample(cause, 20 + n as u64);
            let first = times.request_stack();
            assert_eq!(first.is_ok(), n < STACKS_MAX, "{cause:?}");
            assert_eq!(times.request_stack(), Ok(false), "{cause:?}");
        }
    }

    #[test]
    fn causes_that_were_over_before_have_no_stack() {
        let mut times = Times::new(Cause::Lock, 10);
        times.sample(Cause::Sleep, 50);
        times.advance(60);
        assert_eq!(times.request_stack(), Ok(true));
        assert_eq!(times.without_stack().collect::<Vec<_>>(), [Cause::Lock]);
    }
}
