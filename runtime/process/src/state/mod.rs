//! The state word of a process: its lifecycle, and the requests that arrived while it was busy.
//!
//! A process runs as a task. Other threads deliver events to it: messages, completed yields, exits
//! of other processes, requests to end. A thread that delivers an event must decide whether to wake
//! the task. At that moment, a worker may be in the middle of a step of the same process. The
//! decision is made by one atomic word. The process's own task changes the word before and after
//! each step; that code is the *runner*. All other threads change it after they have put an event
//! into the mailbox. The word only records that there is something to do. The event itself is in
//! the mailbox (`entry::mailbox`) or in the process's entry.
//!
//! An ordinary case: a process is IDLE. A sender puts a message into its mailbox, and changes the
//! word to READY. It finds that the process was IDLE, and wakes the task. The runner changes the
//! word to RUNNING, takes the message out, steps, and changes the word back to IDLE.
//!
//! The race: the message arrives after the runner has emptied the mailbox and before it is IDLE
//! again. The sender finds RUNNING, sets MAIL, and does not wake the task. The runner finds MAIL at
//! the end of the step, and the process becomes READY instead of IDLE.
//!
//! # Shape
//!
//! `| flags 8 | lifecycle 8 |`, low bits.
//!
//! | part | meaning | when set | changed by |
//! |---|---|---|---|
//! | WOKEN | the process must step again, whatever it waits for | while READY or RUNNING | a thread that completes a yield, reports an exit or cancels; cleared by `begin` |
//! | MAIL | the process must step again if it waits for messages | while READY, RUNNING or BLOCKED | a sender; cleared by `begin` |
//! | EXIT | the process must exit instead of taking its next step | from `request_exit` on, never cleared | any thread |
//! | lifecycle | READY 0, RUNNING 1, BLOCKED 2, IDLE 3, COMPLETE 4 | | see below |
//!
//! The lifecycle has these transitions. Any other is a bug, and asserted (`is_legal`):
//!
//! | from | to | transition | by | when |
//! |---|---|---|---|---|
//! | READY | RUNNING | `begin` | its runner | its task is polled |
//! | RUNNING | READY | `end` | its runner | the step returned `Continue`, or WOKEN or EXIT is set; or MAIL is set and the step waits for messages |
//! | RUNNING | BLOCKED | `end` | its runner | the step waits for its yields |
//! | RUNNING | IDLE | `end` | its runner | the step waits for messages |
//! | BLOCKED, IDLE | READY | `wake`, `request_exit` | any thread | a yield completed, another process exited, or this one must exit |
//! | IDLE | READY | `mail` | a sender | a message is in the mailbox |
//! | any but COMPLETE | COMPLETE | `complete` | its runner, or a shutdown whose time is over | the process has exited |
//!
//! # Invariants
//!
//! * *ONE RUNNER*: only the process's task calls `begin` and `end`. Between the two, it owns the
//!   state machine.
//! * *NO LOST EVENT*: a thread with an event for a process first puts it in (E1), then changes the
//!   word (E2), then wakes the task if E2 requires it (E3). The runner first changes the word
//!   (`begin`, R1), then takes the events out (R2), steps (R3), and changes the word again (`end`,
//!   R4). All changes of the word have one total order. If E2 comes before R1, R2 finds the event,
//!   since R1 acquires what E2 released. If E2 comes between R1 and R4, R4 finds the flag, and the
//!   process is READY again. If E2 comes after R4, it finds BLOCKED or IDLE, and requires E3. E2 is
//!   a read-modify-write even if it changes nothing; a load would have no place in that order.
//! * *MAIL DOES NOT DISTURB*: a message does not step a BLOCKED process. It stays in the mailbox
//!   until another event, such as a completed yield, steps the process, and MAIL stays set. That
//!   step receives the message, too.
//! * *ONE END*: exactly one call of `complete` returns true.
//!
//! # Rejected
//!
//! One flag for both WOKEN and MAIL. A message that arrives in the middle of a step that ends
//! BLOCKED would step the process again for nothing; one that arrives a moment later would not.

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
const EXIT: u32 = 1 << 10;

/// The state word of a process. See the module's documentation.
#[derive(Debug)]
pub(crate) struct State(AtomicU32);

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifecycle {
    /// Its task is queued, and a step follows.
    Ready,
    /// A worker runs its step.
    Running,
    /// It waits for one of its yields to complete.
    Blocked,
    /// It waits for any event.
    Idle,
    /// It has exited.
    Complete,
}

/// One value of the state word.
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

    /// Whether this lifecycle and these flags can occur together: the first table of the module's
    /// documentation.
    fn is_possible(self) -> bool {
        match self.lifecycle() {
            READY | RUNNING | COMPLETE => true,
            BLOCKED => !self.has(WOKEN | EXIT),
            IDLE => !self.has(WOKEN | MAIL | EXIT),
            _ => false,
        }
    }

    /// Whether a transition to `next` is allowed: the second table of the module's documentation.
    fn is_legal(self, next: Word) -> bool {
        let arrow = match (self.lifecycle(), next.lifecycle()) {
            (COMPLETE, _) => self == next,
            (from, to) if from == to => true,
            (READY, RUNNING) => !next.has(WOKEN | MAIL | EXIT),
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
            .field("must_exit", &self.has(EXIT))
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

/// The action of the runner after `begin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a process that is to step and does not is lost"]
pub(crate) enum Begin {
    /// Run a step.
    Step,
    /// Exit instead: EXIT is set.
    Exit,
    /// Nothing. There is no event; the task was polled for another reason.
    Rest,
    /// Return. A shutdown has completed the process.
    Complete,
}

/// The event that a process waits for after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Nothing: it steps again.
    // Used only by the runner, which the loom models leave out.
    #[cfg_attr(loom, allow(dead_code))]
    Again,
    /// One of its yields.
    Completed,
    /// Any event.
    Event,
}

/// The action of the runner after `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a process that is to step again and does not is lost"]
pub(crate) enum End {
    /// Nothing. The process waits, and the next event for it wakes its task.
    Rest,
    /// Have the task polled again: the process is READY.
    Again,
    /// Return. A shutdown has completed the process during the step.
    Complete,
}

impl State {
    /// Returns the state of a new process: READY, its task is queued.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(READY))
    }

    /// R1. Called by the runner only.
    pub(crate) fn begin(&self) -> Begin {
        let before = self.change(|word| match word.lifecycle() {
            READY if !word.has(EXIT) => Some(word.with_lifecycle(RUNNING).without(WOKEN | MAIL)),
            _ => None,
        });
        match before.lifecycle() {
            COMPLETE => Begin::Complete,
            _ if before.has(EXIT) => Begin::Exit,
            READY => Begin::Step,
            _ => Begin::Rest,
        }
    }

    /// R4. Called by the runner only.
    pub(crate) fn end(&self, until: Until) -> End {
        let mut end = End::Complete;
        self.change(|word| {
            let (next, rest) = match (word.lifecycle(), until) {
                (COMPLETE, _) => {
                    end = End::Complete;
                    return None;
                }
                _ if word.has(WOKEN | EXIT) => (READY, false),
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

    /// E2 for every event other than a message. Returns true if the caller must wake the task (E3).
    #[must_use = "a process that is READY and whose task is not woken is lost"]
    pub(crate) fn wake(&self) -> bool {
        self.event(WOKEN, |lifecycle| matches!(lifecycle, BLOCKED | IDLE))
    }

    /// E2 for a message. Returns true if the caller must wake the task (E3).
    #[must_use = "a process that is READY and whose task is not woken is lost"]
    pub(crate) fn mail(&self) -> bool {
        self.event(MAIL, |lifecycle| lifecycle == IDLE)
    }

    /// Requires the process to exit before its next step. Returns true if the caller must wake the
    /// task.
    #[must_use = "a process that is READY and whose task is not woken is lost"]
    pub(crate) fn request_exit(&self) -> bool {
        self.event(EXIT, |lifecycle| matches!(lifecycle, BLOCKED | IDLE))
    }

    /// Marks the process as exited. Returns true for exactly one caller, which then notifies the
    /// monitors and links.
    #[must_use = "the caller that completes a process must notify its monitors and links"]
    pub(crate) fn complete(&self) -> bool {
        let before = self.change(|word| match word.lifecycle() {
            COMPLETE => None,
            _ => Some(word.with_lifecycle(COMPLETE)),
        });
        before.lifecycle() != COMPLETE
    }

    /// Returns the current lifecycle.
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        // ORDERING: Relaxed; the value is only displayed, and no decision depends on it.
        named(self.0.load(Ordering::Relaxed) & LIFECYCLE)
    }

    /// Sets `flag`, and makes the process READY if `wakes` is true for its lifecycle.
    fn event(&self, flag: u32, wakes: fn(u32) -> bool) -> bool {
        let before = self.change(|word| match word.lifecycle() {
            COMPLETE => None,
            lifecycle if wakes(lifecycle) => Some(word.with(flag).with_lifecycle(READY)),
            _ => Some(word.with(flag)),
        });
        wakes(before.lifecycle())
    }

    /// Replaces the word with the result of `next`, or leaves it if that is `None`. Returns the
    /// word before.
    fn change(&self, mut next: impl FnMut(Word) -> Option<Word>) -> Word {
        // ORDERING: Relaxed; only a first guess for the compare-exchange below.
        let mut word = Word(self.0.load(Ordering::Relaxed));
        loop {
            let wanted = next(word).unwrap_or(word);
            debug_assert!(word.is_legal(wanted), "{word:?} to {wanted:?}");
            // ORDERING: AcqRel, even if nothing changes. Release: the `begin` that follows sees
            // what was put in before (E1), and the next step sees what this step wrote. Acquire:
            // the other half of both. Relaxed on failure: the value is only used for another
            // attempt.
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

    /// Every word that can occur, and some that cannot.
    fn words() -> impl Iterator<Item = Word> {
        (READY..=COMPLETE + 1).flat_map(|lifecycle| (0..8).map(move |flags| Word(flags << 8 | lifecycle)))
    }

    /// The transitions of the second table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum By {
        Begin,
        End(Until),
        Wake,
        Mail,
        RequestExit,
        Complete,
    }

    const TRANSITIONS: [By; 8] = [
        By::Begin,
        By::End(Until::Again),
        By::End(Until::Completed),
        By::End(Until::Event),
        By::Wake,
        By::Mail,
        By::RequestExit,
        By::Complete,
    ];

    /// The transition in the tables: the word after the transition, and whether the caller must
    /// act, that is: step, rest, wake the task, or notify.
    fn wanted(word: Word, by: By) -> (Word, bool) {
        let lifecycle = word.lifecycle();
        let stays = (word, false);
        match by {
            By::Begin if lifecycle == READY && !word.has(EXIT) => {
                (word.without(WOKEN | MAIL).with_lifecycle(RUNNING), true)
            }
            By::Begin => stays,
            By::End(_) if lifecycle == COMPLETE => stays,
            By::End(Until::Completed) if !word.has(WOKEN | EXIT) => (word.with_lifecycle(BLOCKED), true),
            By::End(Until::Event) if !word.has(WOKEN | EXIT | MAIL) => (word.with_lifecycle(IDLE), true),
            By::End(_) => (word.with_lifecycle(READY), false),
            By::Complete => (word.with_lifecycle(COMPLETE), lifecycle != COMPLETE),
            _ if lifecycle == COMPLETE => stays,
            By::Wake | By::RequestExit | By::Mail => {
                let flag = match by {
                    By::Wake => WOKEN,
                    By::RequestExit => EXIT,
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
            By::RequestExit => state.request_exit(),
            By::Complete => state.complete(),
        };
        (Word(state.0.load(Ordering::Relaxed)), acts)
    }

    // With literal values, since the other tests compute their expectations with the same methods.
    #[test]
    fn the_parts_of_the_word_are_read_and_changed_separately() {
        assert_eq!([LIFECYCLE, WOKEN, MAIL, EXIT], [0xff, 0x100, 0x200, 0x400]);
        for flags in [0, WOKEN, MAIL, EXIT, WOKEN | MAIL | EXIT] {
            let word = Word(flags | BLOCKED);
            assert_eq!(word.lifecycle(), BLOCKED);
            assert_eq!(
                [WOKEN, MAIL, EXIT].map(|flag| word.has(flag)),
                [WOKEN, MAIL, EXIT].map(|flag| flags & flag == flag)
            );
            assert_eq!(word.with_lifecycle(IDLE), Word(flags | IDLE));
            assert_eq!(word.with(MAIL), Word(flags | MAIL | BLOCKED));
            assert_eq!(word.without(WOKEN | MAIL), Word(flags & EXIT | BLOCKED));
        }
    }

    #[test]
    fn only_the_words_of_the_table_are_possible() {
        let possible =
            |lifecycle| (0..8).filter(|flags| Word(flags << 8 | lifecycle).is_possible()).collect::<Vec<_>>();
        let any: Vec<_> = (0..8).collect();
        assert_eq!([READY, RUNNING, COMPLETE].map(possible), [any.clone(), any.clone(), any]);
        assert_eq!([BLOCKED, IDLE, COMPLETE + 1].map(possible), [vec![0, 2], vec![0], vec![]]);
    }

    #[test]
    fn the_lifecycle_is_shown_without_the_flags() {
        use Lifecycle::*;
        let shown = [READY, RUNNING, BLOCKED, IDLE, COMPLETE]
            .map(|lifecycle| State(AtomicU32::new(MAIL | lifecycle)).lifecycle());
        assert_eq!(shown, [Ready, Running, Blocked, Idle, Complete]);
    }

    #[test]
    fn every_transition_of_every_word_is_that_of_the_table() {
        for word in words().filter(|word| word.is_possible()) {
            for by in TRANSITIONS {
                // The runner calls `end` only in a step, and `begin` only outside of one.
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
