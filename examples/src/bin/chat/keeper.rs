//! Keeps what rooms need after a restart: their last lines.
//!
//! It does nothing else, so there is little that can fail. If it fails anyway, its successor starts
//! empty. Each room notices that and sends its lines again. A line is lost only if a room and the
//! keeper are down at the same time.

use std::collections::HashMap;
use std::sync::Arc;

use volt_process::{Context, Event, Events, Failure, Output, Payload, Process};

use crate::words::{History, ToKeeper, remember};

/// The name under which rooms find it.
pub(crate) const NAME: &str = "keeper";

/// The history of each room. See the header of this file.
#[derive(Default)]
pub(crate) struct Keeper {
    rooms: HashMap<Arc<str>, History>,
}

impl Process for Keeper {
    fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        for event in events {
            match event {
                Event::Cancel => out.done(),
                Event::Message(message) => match (message.payload.downcast(), message.reply) {
                    (Ok(ToKeeper::Keep { room, line }), _) => remember(self.rooms.entry(room).or_default(), line),
                    (Ok(ToKeeper::KeepAll { room, history }), _) => _ = self.rooms.insert(room, history),
                    (Ok(ToKeeper::Fetch { room }), Some(reply)) => {
                        reply.send(Payload::new(self.rooms.get(&room).cloned().unwrap_or_default()));
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(())
    }
}
