//! Volt's processes as async functions: `volt_process::from_fn`, which send with `Context::send`.

use volt_process::{Failure, Inbox, Payload, Pid, Process, from_fn};

use crate::peer::Order;
use crate::tally::{ARRIVED, BEGUN, ENDED, Seen};
use crate::volt_peer::Form;

pub(crate) struct Functions;

impl Form for Functions {
    const NAME: &'static str = "volt fn";

    fn idle() -> impl Process {
        from_fn(idle)
    }

    fn node() -> impl Process {
        from_fn(node)
    }
}

async fn idle(mut inbox: Inbox, _input: Payload) -> Result<Payload, Failure> {
    BEGUN.hit();
    let mut messages = 0_u64;
    while inbox.recv().await.is_some() {
        messages += 1;
    }
    ENDED.hit();
    Ok(Payload::new(messages))
}

async fn node(mut inbox: Inbox, _input: Payload) -> Result<Payload, Failure> {
    let (mut seen, mut next) = (Seen::default(), None);
    BEGUN.hit();
    while let Some(message) = inbox.recv().await {
        match message.payload.downcast::<u64>() {
            Ok(token) => match next {
                None => seen.sink(token),
                Some(next) => {
                    seen.pass();
                    match token {
                        0 => ARRIVED.hit(),
                        _ => inbox.context().send(next, Payload::new(token - 1)).await?,
                    }
                }
            },
            Err(payload) => match (payload.downcast::<Order<Pid>>(), next) {
                (Ok(Order::Next(to)), _) => next = Some(to),
                (Ok(Order::Expect(tokens)), _) => seen.expect(tokens),
                (Ok(Order::Burst(tokens)), Some(next)) => {
                    for token in (1..=tokens).rev() {
                        inbox.context().send(next, Payload::new(token)).await?;
                    }
                }
                _ => return Err(Failure::new("no such order")),
            },
        }
    }
    Ok(Payload::empty())
}
