//! The other side: clients that talk in rooms, and check what they hear.
//!
//! A client says a numbered line and waits for it to come back, for a while, before it says the
//! next. From everybody, itself included, it must hear numbers that grow: a number that does not is
//! a line out of order, or twice. A line that does not come back is lost, which happens when a room
//! or a connection fails, and at no other time. A connection that ends is opened anew.
//!
//! At the end somebody new goes into each room and has to hear themselves there: a room where that
//! fails is lost.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use volt::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use volt::net::TcpStream;
use volt::task::JoinSet;
use volt::time::{now, sleep, timeout};

/// How long a line may take to come back before it counts as lost.
const ECHO_LIMIT: Duration = Duration::from_secs(2);
/// Between two lines of a client.
const PAUSE: Duration = Duration::from_millis(5);
/// Before a connection is opened anew.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);
/// How often somebody tries to hear themselves in a room at the end, and how long each time.
const CHECKS_MAX: u32 = 50;

/// Who loads what.
pub(crate) struct Load {
    pub(crate) chat: SocketAddr,
    pub(crate) clients: u32,
    pub(crate) rooms: u32,
}

/// What became of it.
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
        // A chat that is not there is an error, not a load that finds nothing.
        drop(TcpStream::connect(self.chat).await.map_err(|error| format!("--load {}: {error}", self.chat))?);
        let end = now() + duration;
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
                while now() < end {
                    life += 1;
                    // Why a connection ended does not matter: it is opened anew.
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

    /// Whether somebody new hears themselves in `room`, and what was said before.
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
    /// The last number of everybody.
    last: HashMap<u32, u64>,
    outcome: Outcome,
}

impl Client {
    /// One connection, until it ends or the time is over.
    async fn talk(&mut self, life: u32, end: std::time::Instant) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.outcome.connections += 1;
        // The name of a life before may still be taken.
        let nick = format!("c{}.{life}", self.id);
        let opened = Line::open(self.chat, &nick, &self.room, |_| {});
        let mut line = timeout(ECHO_LIMIT, opened).await??;
        while now() < end {
            self.outcome.said += 1;
            let number = self.outcome.said;
            line.write(&format!("{} {number}", self.id)).await?;
            timeout(ECHO_LIMIT, self.hear(&mut line, number)).await??;
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Listens until its own `number` comes back, or is known to be lost.
    async fn hear(&mut self, line: &mut Line, number: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        loop {
            let text = line.read().await?;
            if let Some(dropped) =
                text.strip_prefix("* ").and_then(|text| text.strip_suffix(" lines were dropped: you read too slowly"))
            {
                self.outcome.dropped += dropped.parse::<u64>()?;
            }
            if text.ends_with("of your lines may be lost") || text.starts_with("* that was not said") {
                return Ok(());
            }
            // `[room] nick: id number`; what was said before this client came begins with a dash.
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
    /// Connects and goes into a room; `seen` is shown what comes before.
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
    /// Every room answers, and nobody's lines were out of order.
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
