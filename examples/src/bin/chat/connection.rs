//! A connection of the chat: sends the lines that its user types to a room, and the lines of others
//! there to the user. It is one process, written as an async function.
//!
//! # Shape
//!
//! There are one input and one output buffer, both bounded. Nothing is read while an answer is
//! outstanding or much output is still to be written. A user who types faster than the room can
//! receive is therefore slowed down. Lines from others are put into `output`. If it is full, they
//! are dropped and counted, and the user is informed once there is room again. The same applies to
//! messages that the mailbox dropped.
//!
//! The connection monitors the room. When the room ends, the connection searches for its successor,
//! opens the room if there is none, and joins again. Lines that were sent and had not come back by
//! then are reported as possibly lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::TcpStream;
use volt::time::{Instant, sleep_until, timeout};
use volt_process::{Context, Event, Failure, Inbox, MonitorId, Payload, Pid};

use crate::house::House;
use crate::room::Room;
use crate::words::{ToGuest, ToRoom};

/// The maximum length of a line in bytes.
const LINE_MAX: usize = 1024;
/// The maximum output that waits for the reader, in bytes: a few seconds of a busy room.
const OUTPUT_MAX: usize = 64 * 1024;
/// The maximum length of a nick or of a room's name, in bytes.
const NAME_MAX: usize = 32;
/// Time between two searches for a room that is being restarted.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long a room may take to reply before the request is repeated: the reply may have been
/// dropped because the mailbox was full.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long a room may be missing before the user is informed.
const MISSING_MAX: Duration = Duration::from_secs(10);
/// Time limit for writing the last lines.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// The state of a connection. See the header of this file.
struct Connection {
    context: Context,
    house: Arc<House>,
    nick: Arc<str>,
    place: Place,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The number of lines that found no room in `output`, and the number of these and of the
    /// mailbox's that were reported to the user.
    dropped: u64,
    reported: u64,
    /// The number of lines that were sent to the room and have not come back.
    unechoed: u32,
    has_quit: bool,
}

/// The room that the user is in.
enum Place {
    Nowhere,
    /// Searches for the room at `next`, or repeats the request to join then.
    Seeking {
        room: Arc<str>,
        requested: Option<(Pid, MonitorId)>,
        since: Instant,
        next: Instant,
    },
    In {
        room: Arc<str>,
        pid: Pid,
        monitor: MonitorId,
    },
}

/// The event that ended the connection's wait.
enum Happened {
    Event(Event),
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Retry,
}

/// Serves a connection until either side closes it.
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
        reported: 0,
        unechoed: 0,
        has_quit: false,
    };
    connection.write(&format!(
        "* you are {}: /nick NAME, /join ROOM, /who, /quit; anything else is sent to the room",
        connection.nick
    ));
    loop {
        match connection.next(&mut inbox, &mut stream).await {
            Happened::Event(Event::Cancel) => {
                connection.write("* the server is shutting down");
                break;
            }
            Happened::Event(event) => connection.handle(event),
            Happened::Read(Ok(0)) => break,
            Happened::Read(Ok(_)) | Happened::Retry => {}
            Happened::Wrote(Ok(count)) => {
                connection.output.drain(..count);
                connection.report_dropped();
            }
            // The user has closed the connection.
            Happened::Read(Err(_)) | Happened::Wrote(Err(_)) => return Ok(Payload::empty()),
        }
        connection.seek().await;
        connection.obey().await;
        if connection.has_quit {
            break;
        }
    }
    // A user who does not read them has disconnected, or does not need them.
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

    /// Handles an event from another process.
    fn handle(&mut self, event: Event) {
        let words = match event {
            Event::Message(message) => message.payload.downcast(),
            Event::Down { monitor, .. } => return self.room_ended(monitor),
            _ => return,
        };
        match words {
            Ok(ToGuest::Line { text, is_own }) => {
                self.unechoed -= u32::from(is_own && self.unechoed > 0);
                self.write_or_drop(&text);
            }
            Ok(ToGuest::Earlier(text)) => self.write_or_drop(&format!("- {text}")),
            Ok(ToGuest::Notice(text)) => self.write_or_drop(&text),
            Ok(ToGuest::Joined) => self.come_in(),
            Ok(ToGuest::Renamed(nick)) => self.nick = nick,
            Ok(ToGuest::Refused(why)) => self.refused(&why),
            Ok(ToGuest::NotIn) => self.write("* that was not sent: you had not joined the room yet"),
            Err(_) => {}
        }
    }

    fn come_in(&mut self) {
        if let Place::Seeking { room, requested: Some((pid, monitor)), .. } = &self.place {
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
                let (room, since) = (room.clone(), Instant::now());
                let unechoed = std::mem::take(&mut self.unechoed);
                if unechoed > 0 {
                    let lost = format!("* {room} is being started again: up to {unechoed} of your lines may be lost");
                    self.write_or_drop(&lost);
                }
                self.place = Place::Seeking { room, requested: None, since, next: since };
            }
            Place::Seeking { requested, next, .. } if requested.is_some_and(|(_, monitor)| monitor == ended) => {
                *requested = None;
                *next = Instant::now();
            }
            _ => {}
        }
    }

    /// Searches for the wanted room and requests to join it, if that is due.
    async fn seek(&mut self) {
        let Place::Seeking { room, since, next, .. } = &self.place else { return };
        if *next > Instant::now() {
            return;
        }
        let (room, since) = (room.clone(), *since);
        if since.elapsed() > MISSING_MAX {
            self.give_up();
            return self.write(&format!("* {room} does not respond: try /join {room} again"));
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
        self.stop_requesting();
        let Some(pid) = pid else {
            self.place = Place::Seeking { room, requested: None, since, next: Instant::now() + RETRY_PAUSE };
            return;
        };
        // Monitored before the request, so that the room's end is reported whatever happens to the
        // request.
        let requested = Some((pid, self.context.monitor(pid)));
        self.send_to(pid, ToRoom::Join { nick: self.nick.clone() }).await;
        self.place = Place::Seeking { room, requested, since, next: Instant::now() + ANSWER_LIMIT };
    }

    fn stop_requesting(&mut self) -> Option<Pid> {
        let Place::Seeking { requested, .. } = &mut self.place else { return None };
        let (pid, monitor) = requested.take()?;
        self.context.demonitor(monitor);
        Some(pid)
    }

    /// Stops searching for the room, and leaves it in case it has accepted the join.
    fn give_up(&mut self) {
        if let Some(pid) = self.stop_requesting() {
            drop(self.context.try_send(pid, Payload::new(ToRoom::Leave)));
        }
        self.place = Place::Nowhere;
    }

    /// Executes the typed lines one by one, as far as possible now.
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
                Err(_) => self.write("* that was not UTF-8"),
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
                Some(room) => self.send_to(room, ToRoom::Rename { nick: argument.into() }).await,
                None => {
                    self.nick = argument.into();
                    self.write(&format!("* you are {argument}"));
                }
            },
            "/join" => {
                if let Place::In { pid, monitor, .. } = self.place {
                    self.context.demonitor(monitor);
                    self.send_to(pid, ToRoom::Leave).await;
                }
                self.unechoed = 0;
                let now = Instant::now();
                self.place = Place::Seeking { room: argument.into(), requested: None, since: now, next: now };
            }
            "/who" => match self.room() {
                Some(room) => self.send_to(room, ToRoom::Who).await,
                None => self.write("* you are in no room: /join ROOM"),
            },
            _ if command.starts_with('/') => {
                self.write(&format!("* there is no {command}: /nick NAME, /join ROOM, /who, /quit"));
            }
            _ => match self.room() {
                Some(room) => {
                    self.unechoed = self.unechoed.saturating_add(1);
                    self.send_to(room, ToRoom::Say(line.into())).await;
                }
                None => self.write("* you are in no room: /join ROOM"),
            },
        }
    }

    fn room(&self) -> Option<Pid> {
        if let Place::In { pid, .. } = self.place { Some(pid) } else { None }
    }

    /// Sends to the room, and waits while its mailbox is full, which slows a fast typist down. The
    /// monitor reports if the room has exited.
    async fn send_to(&self, room: Pid, words: ToRoom) {
        drop(self.context.send(room, Payload::new(words)).await);
    }

    /// Writes an answer. There is always room for it, because nothing is read while much output is
    /// waiting.
    fn write(&mut self, line: &str) {
        self.output.extend_from_slice(line.as_bytes());
        self.output.push(b'\n');
    }

    /// Writes a line from others, or drops it if there is no room.
    fn write_or_drop(&mut self, line: &str) {
        if self.output.len() + line.len() < OUTPUT_MAX {
            return self.write(line);
        }
        self.dropped += 1;
        // ORDERING: Relaxed; a counter.
        self.house.tally.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports how many lines were dropped, once the reader has caught up.
    fn report_dropped(&mut self) {
        if !self.output.is_empty() {
            return;
        }
        let in_mailbox = self.context.system().info(self.context.pid()).map_or(0, |info| info.dropped);
        let dropped = self.dropped + in_mailbox;
        if dropped > self.reported {
            self.write(&format!("* {} lines were dropped: you read too slowly", dropped - self.reported));
            self.reported = dropped;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let in_mailbox = self.context.system().info(self.context.pid()).map_or(0, |info| info.dropped);
        // ORDERING: Relaxed; a counter.
        self.house.tally.dropped.fetch_add(in_mailbox, Ordering::Relaxed);
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}
