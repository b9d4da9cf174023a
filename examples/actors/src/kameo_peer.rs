//! The benchmark's peer for kameo, on a multi-threaded Tokio runtime.
//!
//! Mailboxes: 64 messages, and a sender waits for room; this is the default of `Spawn::spawn`.
//! Addresses: `ActorRef`, a pointer to the mailbox and five more pointers.

use std::convert::Infallible;

use kameo::Actor;
use kameo::actor::{ActorRef, Spawn, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::message::{Context, Message};
use tokio::runtime::Runtime;

use crate::peer::{Order, Peer};
use crate::tally::{ARRIVED, BEGUN, ENDED, Seen};
use crate::tokio_runtime::{run, runtime};

pub(crate) struct Kameo(Runtime);

pub(crate) struct Idle {
    messages: u64,
}

impl Actor for Idle {
    type Args = ();
    type Error = Infallible;

    async fn on_start(_: (), _: ActorRef<Self>) -> Result<Self, Infallible> {
        BEGUN.hit();
        Ok(Self { messages: 0 })
    }

    async fn on_stop(&mut self, _: WeakActorRef<Self>, _: ActorStopReason) -> Result<(), Infallible> {
        ENDED.hit();
        Ok(())
    }
}

impl Message<u64> for Idle {
    type Reply = ();

    async fn handle(&mut self, _: u64, _: &mut Context<Self, ()>) {
        self.messages += 1;
    }
}

#[derive(Default)]
pub(crate) struct Node {
    next: Option<ActorRef<Node>>,
    seen: Seen,
}

impl Actor for Node {
    type Args = ();
    type Error = Infallible;

    async fn on_start(_: (), _: ActorRef<Self>) -> Result<Self, Infallible> {
        BEGUN.hit();
        Ok(Self::default())
    }
}

struct Token(u64);

impl Message<Token> for Node {
    type Reply = ();

    async fn handle(&mut self, Token(token): Token, _: &mut Context<Self, ()>) {
        match &self.next {
            None => self.seen.sink(token),
            Some(next) => {
                self.seen.pass();
                match token {
                    0 => ARRIVED.hit(),
                    _ => next.tell(Token(token - 1)).await.expect("the node lives"),
                }
            }
        }
    }
}

impl Message<Order<ActorRef<Node>>> for Node {
    type Reply = ();

    async fn handle(&mut self, order: Order<ActorRef<Node>>, _: &mut Context<Self, ()>) {
        match order {
            Order::Next(next) => self.next = Some(next),
            Order::Expect(tokens) => self.seen.expect(tokens),
            Order::Burst(tokens) => {
                let next = self.next.as_ref().expect("a sink sends nothing");
                for token in (1..=tokens).rev() {
                    next.tell(Token(token)).await.expect("the node lives");
                }
            }
            Order::Token(_) => unreachable!("a token is a separate message"),
        }
    }
}

impl Kameo {
    fn spawn<A: Actor<Args = ()>>(&self, count: usize) -> Vec<ActorRef<A>> {
        run(&self.0, async move { (0..count).map(|_| A::spawn(())).collect() })
    }

    fn end<A: Actor>(&self, actors: Vec<ActorRef<A>>) {
        run(&self.0, async move {
            for actor in actors {
                actor.stop_gracefully().await.expect("it lives");
            }
        });
    }
}

impl Peer for Kameo {
    const NAME: &'static str = "kameo";
    type Idle = ActorRef<Idle>;
    type Node = ActorRef<Node>;

    fn start(workers: usize) -> Self {
        Self(runtime(workers))
    }

    fn idle(&self, count: usize) -> Vec<ActorRef<Idle>> {
        self.spawn(count)
    }

    fn end_idle(&self, idle: Vec<ActorRef<Idle>>) {
        self.end(idle);
    }

    fn nodes(&self, count: usize) -> Vec<ActorRef<Node>> {
        self.spawn(count)
    }

    fn end_nodes(&self, nodes: Vec<ActorRef<Node>>) {
        self.end(nodes);
    }

    fn send_orders(&self, orders: Vec<(ActorRef<Node>, Order<ActorRef<Node>>)>) {
        run(&self.0, async move {
            for (to, order) in orders {
                match order {
                    Order::Token(token) => to.tell(Token(token)).await.expect("the node lives"),
                    order => to.tell(order).await.expect("the node lives"),
                }
            }
        });
    }
}
