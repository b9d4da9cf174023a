//! The word of a process: what it does, and who has asked for what meanwhile.
//!
//! Shape: `| flags 8 | lifecycle 8 |`, low bits.
//!
//! | part | meaning | when set | who changes it |
//! |---|---|---|---|
//! | WOKEN | it is to step once more, whatever it waits for | while READY or RUNNING | who completes a yield, tells of an end, cancels; cleared by `begin` |
//! | MAIL | it is to step once more if it waits for messages | while READY, RUNNING or BLOCKED | who sends; cleared by `begin` |
//! | DOOMED | it is to end instead of its next step | from `doom` on, for good | anyone |
//! | lifecycle | READY 0, RUNNING 1, BLOCKED 2, IDLE 3, COMPLETE 4 | | see below |
//!
//! Lifecycle, one line an arrow; any other is a bug, and asserted (`is_legal`):
//!
//! | from | to | transition | by | when |
//! |---|---|---|---|---|
//! | READY | RUNNING | `begin` | its runner | polled |
//! | RUNNING | READY | `end` | its runner | the step said so, or WOKEN; or MAIL, if the step wants messages |
//! | RUNNING | BLOCKED | `end` | its runner | the step waits for its yields |
//! | RUNNING | IDLE | `end` | its runner | the step waits for messages |
//! | BLOCKED, IDLE | READY | `wake`, `doom` | anyone | a yield is completed, something ended, it is to end |
//! | IDLE | READY | `mail` | who sends | a message is in the mailbox |
//! | any but COMPLETE | COMPLETE | `complete` | its runner, or a shutdown that waits no longer | it has ended |
//!
//! Invariants:
//! * *One runner*: the task of the process, and only it, calls `begin` and `end`; between the two
//!   it owns the state machine.
//! * *No lost event*: who has an event for a process first puts it in (E1), then changes the word
//!   (E2), then wakes the task if the word says so (E3). The runner first changes the word
//!   (`begin`, R1), then takes out what is in (R2), steps (R3), and changes the word again (`end`,
//!   R4). E2 before R1 in the word's order: R2 sees the event, since R1 acquires what E2 released.
//!   E2 between R1 and R4: R4 sees the flag, and the process is READY again. E2 after R4: it finds
//!   BLOCKED or IDLE, and says that the task is to be woken. E2 is a read-modify-write even where
//!   it changes nothing, or it would not stand in that order.
//! * *Mail does not disturb*: a BLOCKED process is not stepped for a message; the message is there
//!   when its yield is completed. MAIL stays set meanwhile; the step that follows sees the mailbox.
//! * *One end*: exactly one call of `complete` returns true.
//!
//! Rejected: one flag for both reasons, as the source has it. A message that arrives in the middle
//! of a step that ends BLOCKED would step the process again for nothing, and one that arrives a
//! moment later would not.
//!
//! Source: seed 004, "Process States". Its wake-up flag covers completions that race with the end
//! of a step; sends race just the same.

use std::fmt;

use volt_shim::{AtomicU32, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

const READY: u32 = 0;
const RUNNING: u32 = 1;
const BLOCKED: u32 = 2;
const IDLE: u32 = 3;
const COMPLETE: u32 = 4;

const LIFECYCLE: u32 = 0xff;
const WOKEN: u32 = 1 << 8;
const MAIL: u32 = 1 << 9;
const DOOMED: u32 = 1 << 10;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct State(AtomicU32);

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifecycle {
    /// Its task is queued.
    Ready,
    /// A worker is in its step.
    Running,
    /// It waits for a yield to be completed.
    Blocked,
    /// It waits for messages.
    Idle,
    /// It has ended.
    Complete,
}

/// One reading of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u32);

impl Word {
    fn lifecycle(self) -> u32 {
        self.0 & LIFECYCLE
    }

    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    fn with_lifecycle(self, lifecycle: u32) -> Word {
        Word(self.0 & !LIFECYCLE | lifecycle)
    }

    fn with(self, flag: u32) -> Word {
        Word(self.0 | flag)
    }

    fn without(self, flags: u32) -> Word {
        Word(self.0 & !flags)
    }

    /// The first table in the header of this file: which flags may stand beside which lifecycle.
    fn is_possible(self) -> bool {
        match self.lifecycle() {
            READY | RUNNING | COMPLETE => true,
            BLOCKED => !self.has(WOKEN | DOOMED),
            IDLE => !self.has(WOKEN | MAIL | DOOMED),
            _ => false,
        }
    }

    /// The second table in the header of this file.
    fn is_legal(self, next: Word) -> bool {
        let arrow = match (self.lifecycle(), next.lifecycle()) {
            (COMPLETE, _) => self == next,
            (from, to) if from == to => true,
            (READY, RUNNING) => !next.has(WOKEN | MAIL | DOOMED),
            (RUNNING, READY | BLOCKED | IDLE) => true,
            (BLOCKED | IDLE, READY) => true,
            (_, COMPLETE) => true,
            _ => false,
        };
        arrow && next.is_possible()
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("lifecycle", &named(self.lifecycle()))
            .field("is_woken", &self.has(WOKEN))
            .field("has_mail", &self.has(MAIL))
            .field("is_doomed", &self.has(DOOMED))
            .finish()
    }
}

fn named(lifecycle: u32) -> Lifecycle {
    match lifecycle {
        READY => Lifecycle::Ready,
        RUNNING => Lifecycle::Running,
        BLOCKED => Lifecycle::Blocked,
        IDLE => Lifecycle::Idle,
        _ => Lifecycle::Complete,
    }
}

/// What a runner does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a process that is to step and does not is lost"]
pub(crate) enum Begin {
    /// It steps.
    Step,
    /// It ends: somebody wants it to.
    Doomed,
    /// Nothing: there is no event; the task was polled for another reason.
    Rest,
    /// It has been ended by somebody else.
    Complete,
}

/// What a step wants to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Nothing.
    // Said by the runner, which loom's models leave out.
    #[cfg_attr(loom, allow(dead_code))]
    Again,
    /// Its yields.
    Completed,
    /// Messages, yields, anything.
    Event,
}

/// What follows from the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a process that is to step again and does not is lost"]
pub(crate) enum End {
    /// The process waits; who has an event for it wakes its task.
    Rest,
    /// It is READY: the runner has its task polled again.
    Again,
    /// It has been ended by somebody else during the step.
    Complete,
}

impl State {
    /// READY: a new process's task is queued.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(READY))
    }

    /// R1. Runner only.
    pub(crate) fn begin(&self) -> Begin {
        let before = self.change(|word| match word.lifecycle() {
            READY if !word.has(DOOMED) => Some(word.with_lifecycle(RUNNING).without(WOKEN | MAIL)),
            _ => None,
        });
        match before.lifecycle() {
            COMPLETE => Begin::Complete,
            _ if before.has(DOOMED) => Begin::Doomed,
            READY => Begin::Step,
            _ => Begin::Rest,
        }
    }

    /// R4. Runner only.
    pub(crate) fn end(&self, until: Until) -> End {
        let mut end = End::Complete;
        self.change(|word| {
            let (next, rest) = match (word.lifecycle(), until) {
                (COMPLETE, _) => {
                    end = End::Complete;
                    return None;
                }
                _ if word.has(WOKEN | DOOMED) => (READY, false),
                (_, Until::Again) => (READY, false),
                (_, Until::Event) if word.has(MAIL) => (READY, false),
                (_, Until::Event) => (IDLE, true),
                (_, Until::Completed) => (BLOCKED, true),
            };
            end = if rest { End::Rest } else { End::Again };
            Some(word.with_lifecycle(next))
        });
        end
    }

    /// E2, for everything but messages. True if the caller must wake the task (E3).
    #[must_use = "a process that is READY and whose task is not woken is lost"]
    pub(crate) fn wake(&self) -> bool {
        self.event(WOKEN, |lifecycle| matches!(lifecycle, BLOCKED | IDLE))
    }

    /// E2, for a message. True if the caller must wake the task (E3).
    #[must_use = "a process that is READY and whose task is not woken is lost"]
    pub(crate) fn mail(&self) -> bool {
        self.event(MAIL, |lifecycle| lifecycle == IDLE)
    }

    /// It is to end before its next step. True if the caller must wake the task.
    #[must_use = "a process that is READY and whose task is not woken is lost"]
    pub(crate) fn doom(&self) -> bool {
        self.event(DOOMED, |lifecycle| matches!(lifecycle, BLOCKED | IDLE))
    }

    /// It has ended. True for one caller.
    #[must_use = "who completes a process tells everybody"]
    pub(crate) fn complete(&self) -> bool {
        let before = self.change(|word| match word.lifecycle() {
            COMPLETE => None,
            _ => Some(word.with_lifecycle(COMPLETE)),
        });
        before.lifecycle() != COMPLETE
    }

    /// What it does just now.
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        // ORDERING: Relaxed; a reading for show, nothing is concluded from it.
        named(self.0.load(Ordering::Relaxed) & LIFECYCLE)
    }

    /// Sets `flag`, and makes the process READY if `wakes` says that it waits for this.
    fn event(&self, flag: u32, wakes: fn(u32) -> bool) -> bool {
        let before = self.change(|word| match word.lifecycle() {
            COMPLETE => None,
            lifecycle if wakes(lifecycle) => Some(word.with(flag).with_lifecycle(READY)),
            _ => Some(word.with(flag)),
        });
        wakes(before.lifecycle())
    }

    /// Replaces the word by what `next` makes of it, unless that is `None`; gives the word as it
    /// was.
    fn change(&self, mut next: impl FnMut(Word) -> Option<Word>) -> Word {
        // ORDERING: Relaxed; a first guess for the read-modify-write below.
        let mut word = Word(self.0.load(Ordering::Relaxed));
        loop {
            let wanted = next(word).unwrap_or(word);
            debug_assert!(word.is_legal(wanted), "{word:?} to {wanted:?}");
            // ORDERING: AcqRel, also where nothing changes. Release: what was put in before (E1) is
            // seen by the `begin` that follows, and what a step wrote by the next. Acquire: its
            // other half. Relaxed on failure: the value is tried again only.
            match self.0.compare_exchange_weak(word.0, wanted.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return word,
                Err(now) => word = Word(now),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Every word that may be, and some that may not.
    fn words() -> impl Iterator<Item = Word> {
        (READY..=COMPLETE + 1).flat_map(|lifecycle| (0..8).map(move |flags| Word(flags << 8 | lifecycle)))
    }

    /// A row of the table in the header: from, to, by whom, and the flags that make it possible.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum By {
        Begin,
        End(Until),
        Wake,
        Mail,
        Doom,
        Complete,
    }

    const TRANSITIONS: [By; 8] = [
        By::Begin,
        By::End(Until::Again),
        By::End(Until::Completed),
        By::End(Until::Event),
        By::Wake,
        By::Mail,
        By::Doom,
        By::Complete,
    ];

    /// What the tables say that comes of `word`, and whether the caller has something to do: to
    /// step, to rest, to wake, to tell.
    fn wanted(word: Word, by: By) -> (Word, bool) {
        let lifecycle = word.lifecycle();
        let stays = (word, false);
        match by {
            By::Begin if lifecycle == READY && !word.has(DOOMED) => {
                (word.without(WOKEN | MAIL).with_lifecycle(RUNNING), true)
            }
            By::Begin => stays,
            By::End(_) if lifecycle == COMPLETE => stays,
            By::End(Until::Completed) if !word.has(WOKEN | DOOMED) => (word.with_lifecycle(BLOCKED), true),
            By::End(Until::Event) if !word.has(WOKEN | DOOMED | MAIL) => (word.with_lifecycle(IDLE), true),
            By::End(_) => (word.with_lifecycle(READY), false),
            By::Complete => (word.with_lifecycle(COMPLETE), lifecycle != COMPLETE),
            _ if lifecycle == COMPLETE => stays,
            By::Wake | By::Doom | By::Mail => {
                let flag = match by {
                    By::Wake => WOKEN,
                    By::Doom => DOOMED,
                    _ => MAIL,
                };
                let wakes = lifecycle == IDLE || (lifecycle == BLOCKED && by != By::Mail);
                (word.with(flag).with_lifecycle(if wakes { READY } else { lifecycle }), wakes)
            }
        }
    }

    fn made(word: Word, by: By) -> (Word, bool) {
        let state = State(AtomicU32::new(word.0));
        let acts = match by {
            By::Begin => state.begin() == Begin::Step,
            By::End(until) => state.end(until) == End::Rest,
            By::Wake => state.wake(),
            By::Mail => state.mail(),
            By::Doom => state.doom(),
            By::Complete => state.complete(),
        };
        (Word(state.0.load(Ordering::Relaxed)), acts)
    }

    #[test]
    fn every_transition_of_every_word_is_that_of_the_table() {
        for word in words().filter(|word| word.is_possible()) {
            for by in TRANSITIONS {
                // Between its steps a runner does not end one, and in its step it does not begin
                // one.
                let is_meant = match by {
                    By::End(_) => matches!(word.lifecycle(), RUNNING | COMPLETE),
                    By::Begin => word.lifecycle() != RUNNING,
                    _ => true,
                };
                if is_meant {
                    assert_eq!(made(word, by), wanted(word, by), "{word:?} {by:?}");
                    assert!(word.is_legal(wanted(word, by).0), "{word:?} {by:?}");
                }
            }
        }
    }

    #[test]
    fn every_arrow_that_the_table_does_not_have_is_illegal() {
        let legal = [
            (READY, RUNNING),
            (RUNNING, READY),
            (RUNNING, BLOCKED),
            (RUNNING, IDLE),
            (BLOCKED, READY),
            (IDLE, READY),
            (READY, COMPLETE),
            (RUNNING, COMPLETE),
            (BLOCKED, COMPLETE),
            (IDLE, COMPLETE),
        ];
        for from in words().filter(|word| word.is_possible()) {
            for to in words() {
                let arrow = (from.lifecycle(), to.lifecycle());
                if !to.is_possible() || (arrow.0 != arrow.1 && !legal.contains(&arrow)) {
                    assert!(!from.is_legal(to), "{from:?} to {to:?}");
                }
            }
        }
        assert!(!Word(COMPLETE).is_legal(Word(COMPLETE).with(MAIL)), "nothing changes after the end");
    }
}
