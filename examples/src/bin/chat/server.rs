//! The house: the tree of supervisors of the chat, and the listener that accepts guests.
//!
//! ```text
//! chat (one for one)
//! ├── keeper        the last lines of the rooms
//! ├── rooms         (one for one) lobby, and those that guests open: permanent
//! ├── guests        (one for one) a process per connection: temporary
//! └── listener      accepts connections
//! ```
//! The order matters at shutdown: the listener ends first, then the guests, which send a last line,
//! then the rooms, then the keeper.

use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use volt::net::{TcpListener, TcpStream};
use volt::time::sleep;
use volt_process::{
    Backoff, ChildSpec, Event, Failure, Inbox, Overflow, Payload, Pid, Spawn, SpawnError, Strategy, Supervisor,
    SupervisorError, SupervisorRef, System,
};

use crate::chaos::Chaos;
use crate::keeper::{self, Keeper};
use crate::room::Room;
use crate::tally::Tally;
use crate::{connection, words};

/// The maximum number of rooms.
const ROOMS_MAX: usize = 1000;
/// The maximum number of simultaneous connections. Further ones get a message and are closed.
const GUESTS_MAX: usize = 10_000;
/// The capacity of a connection's mailbox; a room drops further messages.
const GUEST_MAILBOX: usize = 256;
/// The capacity of the keeper's mailbox: the lines of all rooms, when they are sent again.
const KEEPER_MAILBOX: usize = ROOMS_MAX * words::HISTORY_MAX;
/// Time to wait after a failed accept, for example when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The names of the supervisors.
const ROOMS: &str = "rooms";
const GUESTS: &str = "guests";

/// The state that the processes of the chat share.
pub(crate) struct House {
    pub(crate) system: System,
    pub(crate) tally: Arc<Tally>,
    chaos: Arc<Chaos>,
    rooms: SupervisorRef,
    guests: SupervisorRef,
    next_guest: AtomicU64,
}

/// Starts all processes, and returns the top supervisor.
pub(crate) fn open(
    system: &System,
    listener: net::TcpListener,
    chaos: Arc<Chaos>,
    tally: Arc<Tally>,
) -> Result<Pid, SpawnError> {
    let house = Arc::new(House {
        system: system.clone(),
        tally,
        chaos,
        rooms: SupervisorRef::named(system, ROOMS),
        guests: SupervisorRef::named(system, GUESTS),
        next_guest: AtomicU64::new(1),
    });
    let [for_keeper, for_rooms, for_guests, for_listener] = std::array::from_fn(|_| house.clone());
    let root = house
        .supervisor()
        .child(ChildSpec::permanent(keeper::NAME, move || {
            let keeper = for_keeper.chaos.wrap(Keeper::default());
            Spawn::new(keeper).name(keeper::NAME).mailbox(KEEPER_MAILBOX, Overflow::DropNewest)
        }))
        .child(ChildSpec::permanent(ROOMS, move || {
            for_rooms.supervisor().child(for_rooms.room(&"lobby".into())).into_spawn().name(ROOMS)
        }))
        .child(ChildSpec::permanent(GUESTS, move || for_guests.supervisor().into_spawn().name(GUESTS)))
        .child(ChildSpec::permanent("listener", move || {
            let (house, listener) = (for_listener.clone(), listener.try_clone());
            let accepting = volt_process::from_fn(async move |inbox, _| accept(inbox, listener?, house).await);
            Spawn::new(for_listener.chaos.wrap(accepting)).name("listener")
        }));
    system.spawn(root.into_spawn().name("chat"))
}

impl House {
    /// Returns a one-for-one supervisor. With chaos, it allows as many restarts as the chaos
    /// causes.
    fn supervisor(&self) -> Supervisor {
        let supervisor = Supervisor::new(Strategy::OneForOne);
        if !self.chaos.is_on() {
            return supervisor.backoff(Backoff::new(Duration::from_millis(50), Duration::from_secs(10)));
        }
        let soon = Backoff::new(Duration::from_millis(2), Duration::from_millis(50));
        supervisor.backoff(soon).intensity(1000, Duration::from_secs(1))
    }

    fn room(self: &Arc<Self>, name: &Arc<str>) -> ChildSpec {
        let (house, name) = (self.clone(), name.clone());
        ChildSpec::permanent(name.to_string(), move || {
            let room = Room::new(name.clone(), house.tally.clone());
            Spawn::new(house.chaos.wrap(room)).name(Room::process_name(&name))
        })
    }

    /// Opens a room. Returns `None` if it exists already, possibly while it is being restarted.
    pub(crate) async fn open_room(self: &Arc<Self>, name: &Arc<str>) -> Result<Option<Pid>, String> {
        match self.rooms.children().await {
            Ok(rooms) if rooms.len() >= ROOMS_MAX => return Err(format!("there are {ROOMS_MAX} rooms already")),
            _ => {}
        }
        match self.rooms.start_child(self.room(name)).await {
            Ok(pid) => Ok(Some(pid)),
            Err(error) if error.is_duplicate() || error.is_ended() || error.is_not_started() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn let_in(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        // ORDERING: Relaxed; a counter.
        self.tally.accepted.fetch_add(1, Ordering::Relaxed);
        if self.system.process_count() > GUESTS_MAX + ROOMS_MAX {
            // If the message cannot be sent immediately, the client only sees the end of the
            // stream.
            drop(stream.try_write(b"* the server is full\n"));
            return;
        }
        // ORDERING: Relaxed; the value must only be unique.
        let number = self.next_guest.fetch_add(1, Ordering::Relaxed);
        // Lines are short, and a user waits for each.
        drop(stream.set_nodelay(true));
        let house = self.clone();
        let serving =
            volt_process::from_fn(async move |inbox, _| connection::serve(inbox, stream, house, number).await);
        let name = format!("guest.{number}");
        let guest =
            Spawn::new(self.chaos.wrap(serving)).name(name.clone()).mailbox(GUEST_MAILBOX, Overflow::DropNewest);
        if let Err(error) = self.guests.start_child(ChildSpec::temporary(name, guest)).await {
            not_let_in(peer, &error);
        }
    }
}

fn not_let_in(peer: SocketAddr, error: &SupervisorError) {
    tracing::debug!(%peer, %error, "closing a new connection");
}

async fn accept(mut inbox: Inbox, listener: net::TcpListener, house: Arc<House>) -> Result<Payload, Failure> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let accepted = volt::select! {
            event = inbox.next() => match event {
                Event::Cancel => return Ok(Payload::empty()),
                _ => continue,
            },
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => house.let_in(stream, peer).await,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
