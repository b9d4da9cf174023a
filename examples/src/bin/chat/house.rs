//! The state that the processes of the chat share, and how supervisors and rooms are made.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use volt_process::{Backoff, ChildSpec, Pid, Spawn, Strategy, Supervisor, SupervisorRef, System};

use crate::chaos::Chaos;
use crate::room::Room;
use crate::tally::Tally;

/// The maximum number of rooms.
pub(crate) const ROOMS_MAX: usize = 1000;

/// The state that the processes of the chat share.
pub(crate) struct House {
    pub(crate) system: System,
    pub(crate) tally: Arc<Tally>,
    pub(crate) chaos: Arc<Chaos>,
    pub(crate) rooms: SupervisorRef,
    pub(crate) guests: SupervisorRef,
    pub(crate) next_guest: AtomicU64,
}

impl House {
    /// Returns a one-for-one supervisor. With chaos, it allows as many restarts as the chaos
    /// causes.
    pub(crate) fn supervisor(&self) -> Supervisor {
        let supervisor = Supervisor::new(Strategy::OneForOne);
        if !self.chaos.is_on() {
            return supervisor.backoff(Backoff::new(Duration::from_millis(50), Duration::from_secs(10)));
        }
        let soon = Backoff::new(Duration::from_millis(2), Duration::from_millis(50));
        supervisor.backoff(soon).intensity(1000, Duration::from_secs(1))
    }

    pub(crate) fn room(self: &Arc<Self>, name: &Arc<str>) -> ChildSpec {
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
}
