//! The house: who supervises whom, and who lets guests in.
//!
//! ```text
//! chat (one for one)
//! ├── keeper        what rooms remember
//! ├── rooms         (one for one) lobby, and those that guests open: permanent
//! ├── guests        (one for one) a process a connection: temporary
//! └── listener      accepts
//! ```
//! Order matters at the end: the listener goes first, then guests, who say good-bye, then rooms,
//! then the keeper.

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

/// Rooms that guests may open, all together.
const ROOMS_MAX: usize = 1000;
/// Connections at once; one more is told so and closed.
const GUESTS_MAX: usize = 10_000;
/// Messages that wait for a connection; a room drops what is beyond.
const GUEST_MAILBOX: usize = 256;
/// Messages that wait for the keeper: all rooms' memory, when it is told everything anew.
const KEEPER_MAILBOX: usize = ROOMS_MAX * words::HISTORY_MAX;
/// After an accept that failed, as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Names of supervisors.
const ROOMS: &str = "rooms";
const GUESTS: &str = "guests";

/// What the processes of the chat share.
pub(crate) struct House {
    pub(crate) system: System,
    pub(crate) tally: Arc<Tally>,
    chaos: Arc<Chaos>,
    rooms: SupervisorRef,
    guests: SupervisorRef,
    next_guest: AtomicU64,
}

/// Starts it all; gives who supervises everybody.
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
    /// One for one; with chaos, as many restarts at once as that brings about.
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

    /// Opens a room; `None` if it is there already, and on its way back.
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
        // ORDERING: Relaxed; a count.
        self.tally.accepted.fetch_add(1, Ordering::Relaxed);
        if self.system.process_count() > GUESTS_MAX + ROOMS_MAX {
            // Whoever does not take this at once has seen the end of the stream instead.
            drop(stream.try_write(b"* the house is full\n"));
            return;
        }
        // ORDERING: Relaxed; only unique.
        let number = self.next_guest.fetch_add(1, Ordering::Relaxed);
        // Lines are short, and somebody waits for each.
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
