//! A connection: what somebody types goes to a room, what is said there goes to them. One process,
//! an async function.
//!
//! Shape: one buffer in, one out, both bounded. Nothing is read while an answer is outstanding or
//! much is still to be written, so that who types faster than the room hears is slowed down. What
//! others say is put into `output`, or dropped if it is full, counted, and told once there is room
//! again; so is what the mailbox dropped before.
//!
//! The room is watched. When it ends, the connection searches for its successor, opens the room if
//! there is none, and comes in again; what was said and not heard by then is told as doubtful.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::TcpStream;
use volt::time::{now, sleep_until, timeout};
use volt_process::{Context, Event, Failure, Inbox, MonitorId, Payload, Pid};

use crate::room::Room;
use crate::server::House;
use crate::words::{ToGuest, ToRoom};

/// Bytes that a line may have.
const LINE_MAX: usize = 1024;
/// Bytes that wait for a reader; a few seconds of a busy room.
const OUTPUT_MAX: usize = 64 * 1024;
/// Bytes of a nick, or of a room's name.
const NAME_MAX: usize = 32;
/// Between two searches for a room that is being started again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long a room may take to answer before it is asked again: the answer may have found the
/// mailbox full.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long a room may be away before somebody is told.
const AWAY_MAX: Duration = Duration::from_secs(10);
/// How long the last words may take.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// See the header of this file.
struct Connection {
    context: Context,
    house: Arc<House>,
    nick: Arc<str>,
    place: Place,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Lines that found no room in `output`, and those of them, and of the mailbox, that the reader
    /// has been told of.
    dropped: u64,
    told: u64,
    /// What was said to the room and has not come back.
    unheard: u32,
    has_quit: bool,
}

/// Where somebody is.
enum Place {
    Nowhere,
    /// The room is to be found at `next`, or has been asked, and is asked again then.
    Seeking {
        room: Arc<str>,
        asked: Option<(Pid, MonitorId)>,
        since: Instant,
        next: Instant,
    },
    In {
        room: Arc<str>,
        pid: Pid,
        monitor: MonitorId,
    },
}

/// What the connection waited for.
enum Happened {
    Event(Event),
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Retry,
}

/// Serves a connection until either side ends it.
pub(crate) async fn serve(
    mut inbox: Inbox,
    mut stream: TcpStream,
    house: Arc<House>,
    number: u64,
) -> Result<Payload, Failure> {
    let mut connection = Connection {
        context: inbox.context().clone(),
        house,
        nick: format!("guest{number}").into(),
        place: Place::Nowhere,
        input: Vec::new(),
        output: Vec::new(),
        dropped: 0,
        told: 0,
        unheard: 0,
        has_quit: false,
    };
    connection
        .write(&format!("* you are {}: /nick NAME, /join ROOM, /who, /quit; anything else is said", connection.nick));
    loop {
        match connection.next(&mut inbox, &mut stream).await {
            Happened::Event(Event::Cancel) => {
                connection.write("* the server is shutting down");
                break;
            }
            Happened::Event(event) => connection.hear(event),
            Happened::Read(Ok(0)) => break,
            Happened::Read(Ok(_)) | Happened::Retry => {}
            Happened::Wrote(Ok(count)) => {
                connection.output.drain(..count);
                connection.tell_of_dropped();
            }
            // Whoever was there has gone.
            Happened::Read(Err(_)) | Happened::Wrote(Err(_)) => return Ok(Payload::empty()),
        }
        connection.seek().await;
        connection.obey().await;
        if connection.has_quit {
            break;
        }
    }
    // Who does not read them has gone, or is not in need of them.
    let _farewell = timeout(FAREWELL_LIMIT, stream.write_all(&connection.output)).await;
    Ok(Payload::empty())
}

impl Connection {
    async fn next(&mut self, inbox: &mut Inbox, stream: &mut TcpStream) -> Happened {
        let is_listening =
            matches!(self.place, Place::Nowhere | Place::In { .. }) && self.output.len() < OUTPUT_MAX / 2;
        let is_writing = !self.output.is_empty();
        let retry = if let Place::Seeking { next, .. } = self.place { Some(next) } else { None };
        let (mut reader, mut writer) = stream.split();
        volt::select! {
            event = inbox.next() => Happened::Event(event),
            read = reader.read_buf(&mut self.input), if is_listening => Happened::Read(read),
            wrote = writer.write(&self.output), if is_writing => Happened::Wrote(wrote),
            () = async { if let Some(at) = retry { sleep_until(at).await } }, if retry.is_some() => Happened::Retry,
        }
    }

    /// Another process has said or done something.
    fn hear(&mut self, event: Event) {
        let words = match event {
            Event::Message(message) => message.payload.downcast(),
            Event::Down { monitor, .. } => return self.room_ended(monitor),
            _ => return,
        };
        match words {
            Ok(ToGuest::Line { text, is_own }) => {
                self.unheard -= u32::from(is_own && self.unheard > 0);
                self.write_or_drop(&text);
            }
            Ok(ToGuest::Earlier(text)) => self.write_or_drop(&format!("- {text}")),
            Ok(ToGuest::Notice(text)) => self.write_or_drop(&text),
            Ok(ToGuest::Joined) => self.come_in(),
            Ok(ToGuest::Renamed(nick)) => self.nick = nick,
            Ok(ToGuest::Refused(why)) => self.refused(&why),
            Ok(ToGuest::NotIn) => self.write("* that was not said: the room did not know you yet"),
            Err(_) => {}
        }
    }

    fn come_in(&mut self) {
        if let Place::Seeking { room, asked: Some((pid, monitor)), .. } = &self.place {
            let (room, pid, monitor) = (room.clone(), *pid, *monitor);
            self.write(&format!("* you are in {room}"));
            self.place = Place::In { room, pid, monitor };
        }
    }

    fn refused(&mut self, why: &str) {
        self.write(why);
        if let Place::Seeking { .. } = self.place {
            self.give_up();
        }
    }

    fn room_ended(&mut self, ended: MonitorId) {
        match &mut self.place {
            Place::In { room, monitor, .. } if *monitor == ended => {
                let (room, since) = (room.clone(), now());
                let unheard = std::mem::take(&mut self.unheard);
                if unheard > 0 {
                    let lost = format!("* {room} is being started again: up to {unheard} of your lines may be lost");
                    self.write_or_drop(&lost);
                }
                self.place = Place::Seeking { room, asked: None, since, next: since };
            }
            Place::Seeking { asked, next, .. } if asked.is_some_and(|(_, monitor)| monitor == ended) => {
                *asked = None;
                *next = now();
            }
            _ => {}
        }
    }

    /// Searches for a room that is wanted, and asks to be let in, when it is time.
    async fn seek(&mut self) {
        let Place::Seeking { room, since, next, .. } = &self.place else { return };
        if *next > now() {
            return;
        }
        let (room, since) = (room.clone(), *since);
        if now() - since > AWAY_MAX {
            self.give_up();
            return self.write(&format!("* {room} does not answer: try /join {room} again"));
        }
        let pid = match self.context.system().whereis(&Room::process_name(&room)) {
            Some(pid) => Some(pid),
            None => match self.house.open_room(&room).await {
                Ok(pid) => pid,
                Err(why) => {
                    self.give_up();
                    return self.write(&format!("* {room} cannot be opened: {why}"));
                }
            },
        };
        self.stop_asking();
        let Some(pid) = pid else {
            self.place = Place::Seeking { room, asked: None, since, next: now() + RETRY_PAUSE };
            return;
        };
        // Watched before it is asked: its end is told whatever becomes of the question.
        let asked = Some((pid, self.context.monitor(pid)));
        self.say_to(pid, ToRoom::Join { nick: self.nick.clone() }).await;
        self.place = Place::Seeking { room, asked, since, next: now() + ANSWER_LIMIT };
    }

    fn stop_asking(&mut self) -> Option<Pid> {
        let Place::Seeking { asked, .. } = &mut self.place else { return None };
        let (pid, monitor) = asked.take()?;
        self.context.demonitor(monitor);
        Some(pid)
    }

    /// The room is not sought any more, and is told so in case it has let the guest in.
    fn give_up(&mut self) {
        if let Some(pid) = self.stop_asking() {
            drop(self.context.try_send(pid, Payload::new(ToRoom::Leave)));
        }
        self.place = Place::Nowhere;
    }

    /// Does what was typed, line by line, as far as that can be done now.
    async fn obey(&mut self) {
        while matches!(self.place, Place::Nowhere | Place::In { .. })
            && self.output.len() < OUTPUT_MAX / 2
            && !self.has_quit
        {
            let Some(end) = self.input.iter().position(|&byte| byte == b'\n') else {
                if self.input.len() > LINE_MAX {
                    self.write(&format!("* a line has at most {LINE_MAX} bytes"));
                    self.has_quit = true;
                }
                return;
            };
            let line: Vec<u8> = self.input.drain(..=end).collect();
            match std::str::from_utf8(&line) {
                Ok(line) if line.len() <= LINE_MAX => self.obey_line(line.trim()).await,
                Ok(_) => self.write(&format!("* a line has at most {LINE_MAX} bytes")),
                Err(_) => self.write("* that was no UTF-8"),
            }
            self.seek().await;
        }
    }

    async fn obey_line(&mut self, line: &str) {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "" => {}
            "/quit" => {
                self.write("* good-bye");
                self.has_quit = true;
            }
            "/nick" | "/join" if !is_name(argument) => {
                self.write(&format!("* {command} takes a name: 1 to {NAME_MAX} letters, digits, - . and _"));
            }
            "/nick" => match self.room() {
                Some(room) => self.say_to(room, ToRoom::Rename { nick: argument.into() }).await,
                None => {
                    self.nick = argument.into();
                    self.write(&format!("* you are {argument}"));
                }
            },
            "/join" => {
                if let Place::In { pid, monitor, .. } = self.place {
                    self.context.demonitor(monitor);
                    self.say_to(pid, ToRoom::Leave).await;
                }
                self.unheard = 0;
                self.place = Place::Seeking { room: argument.into(), asked: None, since: now(), next: now() };
            }
            "/who" => match self.room() {
                Some(room) => self.say_to(room, ToRoom::Who).await,
                None => self.write("* you are in no room: /join ROOM"),
            },
            _ if command.starts_with('/') => {
                self.write(&format!("* there is no {command}: /nick NAME, /join ROOM, /who, /quit"));
            }
            _ => match self.room() {
                Some(room) => {
                    self.unheard = self.unheard.saturating_add(1);
                    self.say_to(room, ToRoom::Say(line.into())).await;
                }
                None => self.write("* you are in no room: /join ROOM"),
            },
        }
    }

    fn room(&self) -> Option<Pid> {
        if let Place::In { pid, .. } = self.place { Some(pid) } else { None }
    }

    /// Waits while the room has no room for more: who types too fast is slowed down. That the room
    /// has ended is told by its monitor.
    async fn say_to(&self, room: Pid, words: ToRoom) {
        drop(self.context.send(room, Payload::new(words)).await);
    }

    /// An answer: there is always room for it, since nothing is read while much is to be written.
    fn write(&mut self, line: &str) {
        self.output.extend_from_slice(line.as_bytes());
        self.output.push(b'\n');
    }

    /// What others say.
    fn write_or_drop(&mut self, line: &str) {
        if self.output.len() + line.len() < OUTPUT_MAX {
            return self.write(line);
        }
        self.dropped += 1;
        // ORDERING: Relaxed; a count.
        self.house.tally.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Says how many lines were dropped, once the reader has caught up.
    fn tell_of_dropped(&mut self) {
        if !self.output.is_empty() {
            return;
        }
        let in_mailbox = self.context.system().info(self.context.pid()).map_or(0, |info| info.dropped);
        let dropped = self.dropped + in_mailbox;
        if dropped > self.told {
            self.write(&format!("* {} lines were dropped: you read too slowly", dropped - self.told));
            self.told = dropped;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let in_mailbox = self.context.system().info(self.context.pid()).map_or(0, |info| info.dropped);
        // ORDERING: Relaxed; a count.
        self.house.tally.dropped.fetch_add(in_mailbox, Ordering::Relaxed);
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}
