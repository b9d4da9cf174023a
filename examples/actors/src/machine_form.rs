//! Volt's processes as state machines: `volt_process::Process`. They send with `Context::try_send`,
//! and yield if a mailbox is full.

use volt_process::{Context, Event, Events, Failure, Message, Output, Payload, Pid, Process};

use crate::peer::Order;
use crate::tally::{ARRIVED, BEGUN, ENDED, Seen};
use crate::volt_peer::Form;

pub(crate) struct Machines;

impl Form for Machines {
    const NAME: &'static str = "volt";

    fn idle() -> impl Process {
        Idle { messages: 0 }
    }

    fn node() -> impl Process {
        Node::default()
    }
}

struct Idle {
    messages: u64,
}

impl Process for Idle {
    fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        BEGUN.hit();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        for event in events {
            match event {
                Event::Message(_) => self.messages += 1,
                Event::Cancel => out.done(),
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        ENDED.hit();
    }
}

#[derive(Default)]
struct Node {
    context: Option<Context>,
    next: Option<Pid>,
    /// Tokens of a burst that are still to be sent.
    left: u64,
    seen: Option<Seen>,
}

impl Node {
    fn handle(&mut self, message: Message, out: &mut Output) -> Result<(), Failure> {
        match message.payload.downcast::<u64>() {
            Ok(token) => self.given(token, out),
            Err(payload) => match payload.downcast::<Order<Pid>>() {
                Ok(Order::Next(next)) => self.next = Some(next),
                Ok(Order::Expect(tokens)) => self.seen().expect(tokens),
                Ok(Order::Burst(tokens)) => {
                    self.left += tokens;
                    self.send_burst(out);
                }
                Ok(Order::Token(_)) | Err(_) => return Err(Failure::new("no such order")),
            },
        }
        Ok(())
    }

    fn given(&mut self, token: u64, out: &mut Output) {
        match self.next {
            None => self.seen().sink(token),
            Some(next) => {
                self.seen().pass();
                match token {
                    0 => ARRIVED.hit(),
                    _ => self.send(next, token - 1, out),
                }
            }
        }
    }

    /// Sends while there is room. If there is none, waits for room with the next token, and then
    /// continues.
    fn send_burst(&mut self, out: &mut Output) {
        let (Some(next), Some(context)) = (self.next, &self.context) else { return };
        while self.left > 0 {
            let sent = context.try_send(next, Payload::new(self.left));
            self.left -= 1;
            if let Err(error) = sent {
                out.send(0, next, error.into_message());
                out.wait();
                return;
            }
        }
    }

    fn send(&mut self, next: Pid, token: u64, out: &mut Output) {
        let Some(context) = &self.context else { return };
        if let Err(error) = context.try_send(next, Payload::new(token)) {
            out.send(0, next, error.into_message());
        }
    }

    fn seen(&mut self) -> &mut Seen {
        self.seen.get_or_insert_default()
    }
}

impl Process for Node {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        self.context = Some(context.clone());
        self.seen = Some(Seen::default());
        BEGUN.hit();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        for event in events {
            match event {
                Event::Message(message) => self.handle(message, out)?,
                Event::Completed { result, .. } => {
                    result?;
                    self.send_burst(out);
                }
                Event::Cancel => out.done(),
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.seen = None;
    }
}
