//! The load generator of the chat: clients that talk in rooms, and check what they receive.
//!
//! A client sends a numbered line and waits a limited time for it to come back before it sends the
//! next. From every client, including itself, it must receive growing numbers. A number that does
//! not grow means a line that is out of order or duplicated. A line that does not come back is
//! lost, which happens only when a room or a connection fails. If a connection is closed, the
//! client opens a new one.
//!
//! At the end, a new client joins each room and must receive its own line there. A room in which
//! that fails is lost.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use volt::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use volt::net::TcpStream;
use volt::task::JoinSet;
use volt::time::{Instant, sleep, timeout};

/// How long a line may take to come back before it counts as lost.
const ECHO_LIMIT: Duration = Duration::from_secs(2);
/// Time between two lines of a client.
const PAUSE: Duration = Duration::from_millis(5);
/// Time before a client connects again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);
/// The maximum number of attempts of the final check of a room.
const CHECKS_MAX: u32 = 50;

/// The size and the target of the load.
pub(crate) struct Load {
    pub(crate) chat: SocketAddr,
    pub(crate) clients: u32,
    pub(crate) rooms: u32,
}

/// The counts of a run.
#[derive(Default)]
pub(crate) struct Outcome {
    said: u64,
    came_back: u64,
    heard: u64,
    out_of_order: u64,
    dropped: u64,
    connections: u64,
    rooms: u32,
    rooms_alive: u32,
    rooms_with_history: u32,
}

impl Load {
    pub(crate) async fn run(&self, duration: Duration) -> Result<Outcome, Box<dyn Error>> {
        // A chat that does not run is an error, not a load without results.
        drop(TcpStream::connect(self.chat).await.map_err(|error| format!("--load {}: {error}", self.chat))?);
        let end = Instant::now() + duration;
        let mut clients = JoinSet::new();
        for id in 0..self.clients {
            let mut client = Client {
                id,
                room: room(id % self.rooms),
                chat: self.chat,
                last: HashMap::new(),
                outcome: Outcome::default(),
            };
            clients.spawn(async move {
                let mut life = 0;
                while Instant::now() < end {
                    life += 1;
                    // The reason why a connection was closed does not matter: the client connects
                    // again.
                    drop(client.talk(life, end).await);
                    sleep(RECONNECT_PAUSE).await;
                }
                client.outcome
            });
        }
        let mut outcome = Outcome { rooms: self.rooms, ..Outcome::default() };
        while let Some(client) = clients.join_next().await {
            outcome += client?;
        }
        for index in 0..self.rooms {
            let (is_alive, has_history) = self.check(&room(index)).await;
            outcome.rooms_alive += u32::from(is_alive);
            outcome.rooms_with_history += u32::from(has_history);
        }
        Ok(outcome)
    }

    /// Returns whether a new client receives its own line in `room`, and whether it was shown
    /// earlier lines.
    async fn check(&self, room: &str) -> (bool, bool) {
        for attempt in 0..CHECKS_MAX {
            let mut has_history = false;
            let hears = async {
                let mut line = Line::open(self.chat, &format!("check{attempt}"), room, |line| {
                    has_history |= line.starts_with("- ")
                })
                .await?;
                let mark = format!("check {room} {attempt}");
                line.write(&mark).await?;
                while !line.read().await?.ends_with(&mark) {
                    has_history |= line.text.starts_with("- ");
                }
                Ok::<(), Box<dyn Error + Send + Sync>>(())
            };
            if let Ok(Ok(())) = timeout(ECHO_LIMIT, hears).await {
                return (true, has_history);
            }
            sleep(RECONNECT_PAUSE).await;
        }
        (false, false)
    }
}

fn room(index: u32) -> String {
    format!("load{index}")
}

struct Client {
    id: u32,
    room: String,
    chat: SocketAddr,
    /// The last number received from each client.
    last: HashMap<u32, u64>,
    outcome: Outcome,
}

impl Client {
    /// Runs one connection, until it is closed or the time is over.
    async fn talk(&mut self, life: u32, end: Instant) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.outcome.connections += 1;
        // The name of the previous connection may still be taken.
        let nick = format!("c{}.{life}", self.id);
        let opened = Line::open(self.chat, &nick, &self.room, |_| {});
        let mut line = timeout(ECHO_LIMIT, opened).await??;
        while Instant::now() < end {
            self.outcome.said += 1;
            let number = self.outcome.said;
            line.write(&format!("{} {number}", self.id)).await?;
            timeout(ECHO_LIMIT, self.hear(&mut line, number)).await??;
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Reads until the client's own `number` comes back, or is known to be lost.
    async fn hear(&mut self, line: &mut Line, number: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        loop {
            let text = line.read().await?;
            if let Some(dropped) =
                text.strip_prefix("* ").and_then(|text| text.strip_suffix(" lines were dropped: you read too slowly"))
            {
                self.outcome.dropped += dropped.parse::<u64>()?;
            }
            if text.ends_with("of your lines may be lost") || text.starts_with("* that was not sent") {
                return Ok(());
            }
            // `[room] nick: id number`; lines that were said before this client joined begin with a
            // dash.
            let Some((_, said)) = text.split_once(": ").filter(|_| text.starts_with('[')) else { continue };
            let Some((Ok(who), Ok(what))) = said.split_once(' ').map(|(who, what)| (who.parse(), what.parse())) else {
                continue;
            };
            self.outcome.heard += 1;
            let last = self.last.entry(who).or_default();
            self.outcome.out_of_order += u64::from(what <= *last);
            *last = what;
            if (who, what) == (self.id, number) {
                self.outcome.came_back += 1;
                return Ok(());
            }
        }
    }
}

/// A connection to the chat, line by line.
struct Line {
    stream: BufReader<TcpStream>,
    text: String,
}

impl Line {
    /// Connects and joins a room; calls `seen` for each line before that.
    async fn open(
        chat: SocketAddr,
        nick: &str,
        room: &str,
        mut seen: impl FnMut(&str),
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(chat).await?;
        stream.set_nodelay(true)?;
        let mut line = Self { stream: BufReader::new(stream), text: String::new() };
        line.write(&format!("/nick {nick}\n/join {room}")).await?;
        let inside = format!("* you are in {room}");
        while line.read().await? != inside {
            seen(&line.text);
        }
        Ok(line)
    }

    async fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.stream.write_all(format!("{text}\n").as_bytes()).await
    }

    async fn read(&mut self) -> Result<&str, Box<dyn Error + Send + Sync>> {
        self.text.clear();
        if self.stream.read_line(&mut self.text).await? == 0 {
            return Err("the chat has closed the connection".into());
        }
        self.text.truncate(self.text.trim_end().len());
        Ok(&self.text)
    }
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.said += other.said;
        self.came_back += other.came_back;
        self.heard += other.heard;
        self.out_of_order += other.out_of_order;
        self.dropped += other.dropped;
        self.connections += other.connections;
    }
}

impl Outcome {
    /// Returns whether every room responds and no line was out of order.
    pub(crate) fn is_well(&self) -> bool {
        self.rooms_alive == self.rooms && self.out_of_order == 0 && self.came_back > 0
    }

    pub(crate) fn as_json(&self) -> String {
        serde_json::json!({
            "said": self.said,
            "came_back": self.came_back,
            "heard": self.heard,
            "out_of_order": self.out_of_order,
            "dropped": self.dropped,
            "connections": self.connections,
            "rooms": self.rooms,
            "rooms_alive": self.rooms_alive,
            "rooms_with_history": self.rooms_with_history,
        })
        .to_string()
    }
}
