//! The benchmark's peer for ractor, on a multi-threaded Tokio runtime.
//!
//! Mailboxes: unbounded; ractor has no others. Addresses: `ActorRef`, a pointer to the mailbox.

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::runtime::Runtime;

use crate::peer::{Order, Peer};
use crate::tally::{ARRIVED, BEGUN, ENDED, Seen};
use crate::tokio_runtime::{run, runtime};

pub(crate) struct Ractor(Runtime);

struct Idle;

impl Actor for Idle {
    type Msg = u64;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _myself: ActorRef<u64>, _: ()) -> Result<u64, ActorProcessingErr> {
        BEGUN.hit();
        Ok(0)
    }

    async fn handle(&self, _: ActorRef<u64>, _: u64, messages: &mut u64) -> Result<(), ActorProcessingErr> {
        *messages += 1;
        Ok(())
    }

    async fn post_stop(&self, _myself: ActorRef<u64>, _: &mut u64) -> Result<(), ActorProcessingErr> {
        ENDED.hit();
        Ok(())
    }
}

type NodeRef = ActorRef<NodeOrder>;
/// A separate type, because an order contains the node's reference.
pub(crate) struct NodeOrder(Order<NodeRef>);

struct Node;

#[derive(Default)]
struct NodeState {
    next: Option<NodeRef>,
    seen: Seen,
}

impl Actor for Node {
    type Msg = NodeOrder;
    type State = NodeState;
    type Arguments = ();

    async fn pre_start(&self, _myself: NodeRef, _: ()) -> Result<NodeState, ActorProcessingErr> {
        BEGUN.hit();
        Ok(NodeState::default())
    }

    async fn handle(&self, _: NodeRef, order: NodeOrder, node: &mut NodeState) -> Result<(), ActorProcessingErr> {
        match (order.0, &node.next) {
            (Order::Token(token), None) => node.seen.sink(token),
            (Order::Token(token), Some(next)) => {
                node.seen.pass();
                match token {
                    0 => ARRIVED.hit(),
                    _ => next.cast(NodeOrder(Order::Token(token - 1)))?,
                }
            }
            (Order::Burst(tokens), Some(next)) => {
                for token in (1..=tokens).rev() {
                    next.cast(NodeOrder(Order::Token(token)))?;
                }
            }
            (Order::Next(next), _) => node.next = Some(next),
            (Order::Expect(tokens), _) => node.seen.expect(tokens),
            (Order::Burst(_), None) => return Err("a sink sends nothing".into()),
        }
        Ok(())
    }
}

impl Ractor {
    fn spawn<A: Actor<Arguments = ()>>(&self, count: usize, actor: fn() -> A) -> Vec<ActorRef<A::Msg>> {
        run(&self.0, async move {
            let mut actors = Vec::with_capacity(count);
            for _ in 0..count {
                let (actor, _join) = Actor::spawn(None, actor(), ()).await.expect("it starts");
                actors.push(actor);
            }
            actors
        })
    }

    fn end<M: ractor::Message>(&self, actors: Vec<ActorRef<M>>) {
        run(&self.0, async move { actors.iter().for_each(|actor| actor.stop(None)) });
    }
}

impl Peer for Ractor {
    const NAME: &'static str = "ractor";
    type Idle = ActorRef<u64>;
    type Node = NodeRef;

    fn start(workers: usize) -> Self {
        Self(runtime(workers))
    }

    fn idle(&self, count: usize) -> Vec<ActorRef<u64>> {
        self.spawn(count, || Idle)
    }

    fn end_idle(&self, idle: Vec<ActorRef<u64>>) {
        self.end(idle);
    }

    fn nodes(&self, count: usize) -> Vec<NodeRef> {
        self.spawn(count, || Node)
    }

    fn end_nodes(&self, nodes: Vec<NodeRef>) {
        self.end(nodes);
    }

    fn send_orders(&self, orders: Vec<(NodeRef, Order<NodeRef>)>) {
        run(&self.0, async move {
            for (to, order) in orders {
                to.cast(NodeOrder(order)).expect("the node lives");
            }
        });
    }
}
