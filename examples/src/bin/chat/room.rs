//! A room of the chat: its guests, and its last lines.
//!
//! A room never waits. It sends each line to the mailbox of each connection, which drops it if
//! there is no room, and to the keeper in the same way. The room monitors its guests, so that the
//! end of a guest's process, of whatever kind, counts as a leave.
//!
//! A restarted room has no guests: connections monitor the room, and join again by themselves. It
//! requests its earlier lines from the keeper, and works without them until they arrive.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use volt_process::{Context, Event, Events, Failure, Message, MonitorId, Output, Payload, Pid, Process};

use crate::keeper;
use crate::tally::Tally;
use crate::words::{HISTORY_MAX, History, ToGuest, ToKeeper, ToRoom, remember};

/// The tags of the outputs that it yields.
const FETCH: u64 = 0;
const RETRY: u64 = 1;
/// How long the keeper may take to reply before the request is repeated.
const FETCH_LIMIT: Duration = Duration::from_secs(1);
/// Time between two searches for a missing keeper.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The state of a room. See the header of this file.
pub(crate) struct Room {
    name: Arc<str>,
    tally: Arc<Tally>,
    context: Option<Context>,
    guests: HashMap<Pid, Guest>,
    history: History,
    /// Whether the lines from before the start were fetched.
    is_restored: bool,
    keeper: Option<(Pid, MonitorId)>,
    has_begun: bool,
}

struct Guest {
    nick: Arc<str>,
    monitor: MonitorId,
}

impl Room {
    pub(crate) fn new(name: Arc<str>, tally: Arc<Tally>) -> Self {
        Self {
            name,
            tally,
            context: None,
            guests: HashMap::new(),
            history: History::new(),
            is_restored: false,
            keeper: None,
            has_begun: false,
        }
    }

    /// Returns the name of the room's process.
    pub(crate) fn process_name(room: &str) -> String {
        format!("room.{room}")
    }

    fn handle(&mut self, context: &Context, message: Message) {
        let (Some(from), Ok(words)) = (message.from, message.payload.downcast()) else { return };
        match words {
            ToRoom::Join { nick } => self.join(context, from, nick),
            ToRoom::Leave => self.leave(context, from),
            ToRoom::Rename { nick } => self.rename(context, from, nick),
            ToRoom::Say(text) => self.say(context, from, &text),
            ToRoom::Who => {
                let mut nicks: Vec<&str> = self.guests.values().map(|guest| &*guest.nick).collect();
                nicks.sort_unstable();
                let text = format!("* in {}: {}", self.name, nicks.join(", "));
                self.send(context, from, ToGuest::Notice(text.into()));
            }
        }
    }

    fn join(&mut self, context: &Context, from: Pid, nick: Arc<str>) {
        if let Some(refusal) = self.refusal(from, &nick) {
            return self.send(context, from, ToGuest::Refused(refusal));
        }
        self.send(context, from, ToGuest::Joined);
        for line in &self.history {
            self.send(context, from, ToGuest::Earlier(line.clone()));
        }
        self.send_all(context, &format!("* {nick} has come into {}", self.name).into());
        let monitor = self.guests.get(&from).map_or_else(|| context.monitor(from), |guest| guest.monitor);
        self.guests.insert(from, Guest { nick, monitor });
    }

    fn leave(&mut self, context: &Context, from: Pid) {
        if let Some(guest) = self.guests.remove(&from) {
            context.demonitor(guest.monitor);
            self.send_all(context, &format!("* {} has left {}", guest.nick, self.name).into());
        }
    }

    fn rename(&mut self, context: &Context, from: Pid, nick: Arc<str>) {
        if let Some(refusal) = self.refusal(from, &nick) {
            return self.send(context, from, ToGuest::Refused(refusal));
        }
        let Some(guest) = self.guests.get_mut(&from) else { return self.send(context, from, ToGuest::NotIn) };
        let before = std::mem::replace(&mut guest.nick, nick.clone());
        self.send(context, from, ToGuest::Renamed(nick.clone()));
        self.send_all(context, &format!("* {before} is {nick} now").into());
    }

    fn say(&mut self, context: &Context, from: Pid, text: &str) {
        let Some(guest) = self.guests.get(&from) else { return self.send(context, from, ToGuest::NotIn) };
        // ORDERING: Relaxed; a counter.
        self.tally.said.fetch_add(1, Ordering::Relaxed);
        let text: Arc<str> = format!("[{}] {}: {text}", self.name, guest.nick).into();
        for &pid in self.guests.keys() {
            self.send(context, pid, ToGuest::Line { text: text.clone(), is_own: pid == from });
        }
        if let Some((keeper, _)) = self.keeper.filter(|_| self.is_restored) {
            // If the keeper has just ended, its successor gets all lines again.
            drop(
                context.try_send(keeper, Payload::new(ToKeeper::Keep { room: self.name.clone(), line: text.clone() })),
            );
        }
        remember(&mut self.history, text);
    }

    /// Returns why `from` cannot use the name `nick` here, if there is a reason.
    fn refusal(&self, from: Pid, nick: &str) -> Option<Arc<str>> {
        let is_taken = self.guests.iter().any(|(&pid, guest)| pid != from && *guest.nick == *nick);
        is_taken.then(|| format!("* {nick} is in {} already: take another name by /nick", self.name).into())
    }

    fn send(&self, context: &Context, guest: Pid, words: ToGuest) {
        // The mailbox drops and counts a message if it is full. If the guest's process has exited,
        // its monitor reports that.
        drop(context.try_send(guest, Payload::new(words)));
    }

    fn send_all(&self, context: &Context, notice: &Arc<str>) {
        self.guests.keys().for_each(|&guest| self.send(context, guest, ToGuest::Notice(notice.clone())));
    }

    fn find_keeper(&mut self, context: &Context, out: &mut Output) {
        let Some(keeper) = context.system().whereis(keeper::NAME) else { return out.sleep(RETRY, RETRY_PAUSE) };
        self.keeper = Some((keeper, context.monitor(keeper)));
        out.call(FETCH, keeper, Payload::new(ToKeeper::Fetch { room: self.name.clone() }), FETCH_LIMIT);
    }

    /// Handles the keeper's answer with the earlier lines.
    fn restore(&mut self, context: &Context, known: History) {
        if !self.is_restored {
            let said_meanwhile = std::mem::replace(&mut self.history, known);
            said_meanwhile.into_iter().for_each(|line| remember(&mut self.history, line));
            self.is_restored = true;
        }
        debug_assert!(self.history.len() <= HISTORY_MAX);
        if let Some((keeper, _)) = self.keeper {
            let all = ToKeeper::KeepAll { room: self.name.clone(), history: self.history.clone() };
            drop(context.try_send(keeper, Payload::new(all)));
        }
    }
}

impl Process for Room {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        self.context = Some(context.clone());
        context.waker().wake();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let Some(context) = self.context.clone() else { return Ok(()) };
        if !std::mem::replace(&mut self.has_begun, true) {
            self.find_keeper(&context, out);
        }
        for event in events {
            match event {
                Event::Message(message) => self.handle(&context, message),
                Event::Down { monitor, .. } if self.keeper.is_some_and(|(_, keeper)| keeper == monitor) => {
                    self.keeper = None;
                    out.cancel(FETCH);
                    self.find_keeper(&context, out);
                }
                Event::Down { pid, .. } => self.leave(&context, pid),
                Event::Completed { tag: RETRY, .. } => self.find_keeper(&context, out),
                Event::Completed { tag: FETCH, result } => match result.map(Payload::downcast) {
                    Ok(Ok(known)) => self.restore(&context, known),
                    // The keeper has not replied in time, or has exited, which its monitor reports.
                    _ => {
                        if let Some((keeper, _)) = self.keeper {
                            let fetch = ToKeeper::Fetch { room: self.name.clone() };
                            out.call(FETCH, keeper, Payload::new(fetch), FETCH_LIMIT);
                        }
                    }
                },
                Event::Cancel => out.done(),
                _ => {}
            }
        }
        Ok(())
    }
}
