//! The tree of supervisors of the chat, and the listener that accepts guests.
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
    ChildSpec, Event, Failure, Inbox, Overflow, Payload, Pid, Spawn, SpawnError, SupervisorError, SupervisorRef, System,
};

use crate::chaos::Chaos;
use crate::house::{House, ROOMS_MAX};
use crate::keeper::{self, Keeper};
use crate::tally::Tally;
use crate::{connection, words};

/// The maximum number of simultaneous connections if there are [`ROOMS_MAX`] rooms; connections may
/// use the places of missing rooms. Further ones get a message and are closed.
const GUESTS_MAX: usize = 10_000;
/// The capacity of a connection's mailbox; a room drops further messages.
const GUEST_MAILBOX: usize = 256;
/// The capacity of the keeper's mailbox: as many messages as all rooms have lines.
const KEEPER_MAILBOX: usize = ROOMS_MAX * words::HISTORY_MAX;
/// Time to wait after a failed accept, for example when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The names of the supervisors.
const ROOMS: &str = "rooms";
const GUESTS: &str = "guests";

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

async fn let_in(house: &Arc<House>, stream: TcpStream, peer: SocketAddr) {
    // ORDERING: Relaxed; a counter.
    house.tally.accepted.fetch_add(1, Ordering::Relaxed);
    if house.system.process_count() > GUESTS_MAX + ROOMS_MAX {
        // If the message cannot be sent immediately, the client only sees the end of the
        // stream.
        drop(stream.try_write(b"* the server is full\n"));
        return;
    }
    // ORDERING: Relaxed; the value must only be unique.
    let number = house.next_guest.fetch_add(1, Ordering::Relaxed);
    // Lines are short, and a user waits for each.
    drop(stream.set_nodelay(true));
    let for_guest = house.clone();
    let serving =
        volt_process::from_fn(async move |inbox, _| connection::serve(inbox, stream, for_guest, number).await);
    let name = format!("guest.{number}");
    let guest = Spawn::new(house.chaos.wrap(serving)).name(name.clone()).mailbox(GUEST_MAILBOX, Overflow::DropNewest);
    if let Err(error) = house.guests.start_child(ChildSpec::temporary(name, guest)).await {
        not_let_in(peer, &error);
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
            Ok((stream, peer)) => let_in(&house, stream, peer).await,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
