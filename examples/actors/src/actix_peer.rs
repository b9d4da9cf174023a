//! The benchmark's peer for actix, with one arbiter (a thread with its own runtime) for each
//! worker. An actor stays on the arbiter that started it.
//!
//! Each arbiter starts its share of the actors itself, at the same time as the others. A share is a
//! block of neighbours, so the two actors of a pair are on one thread, and a token moves between
//! threads only at the end of a block.
//!
//! Mailboxes: 16 messages; `do_send` does not wait for room. Addresses: `Addr`, a pointer to the
//! mailbox.

use std::ops::Range;
use std::sync::mpsc;

use actix::{Actor, ActorContext, Addr, Arbiter, Context, Handler, Message, System, SystemRunner};

use crate::peer::{Order, Peer};
use crate::tally::{ARRIVED, BEGUN, ENDED, Seen};

pub(crate) struct Actix {
    arbiters: Vec<Arbiter>,
    /// Not used otherwise: arbiters must belong to a system.
    _system: SystemRunner,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Token(u64);

/// actix has no built-in message for this.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct End;

#[derive(Message)]
#[rtype(result = "()")]
struct Ordered(Order<Addr<Node>>);

pub(crate) struct Idle {
    messages: u64,
}

impl Actor for Idle {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        BEGUN.hit();
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        ENDED.hit();
    }
}

impl Handler<Token> for Idle {
    type Result = ();

    fn handle(&mut self, _: Token, _: &mut Context<Self>) {
        self.messages += 1;
    }
}

#[derive(Default)]
pub(crate) struct Node {
    next: Option<Addr<Node>>,
    seen: Seen,
}

impl Actor for Node {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        BEGUN.hit();
    }
}

impl Handler<Token> for Node {
    type Result = ();

    fn handle(&mut self, Token(token): Token, _: &mut Context<Self>) {
        match &self.next {
            None => self.seen.sink(token),
            Some(next) => {
                self.seen.pass();
                match token {
                    0 => ARRIVED.hit(),
                    _ => next.do_send(Token(token - 1)),
                }
            }
        }
    }
}

impl Handler<Ordered> for Node {
    type Result = ();

    fn handle(&mut self, Ordered(order): Ordered, _: &mut Context<Self>) {
        match order {
            Order::Next(next) => self.next = Some(next),
            Order::Expect(tokens) => self.seen.expect(tokens),
            Order::Burst(tokens) => {
                let next = self.next.as_ref().expect("a sink sends nothing");
                (1..=tokens).rev().for_each(|token| next.do_send(Token(token)));
            }
            Order::Token(_) => unreachable!("a token is a separate message"),
        }
    }
}

impl Handler<End> for Idle {
    type Result = ();

    fn handle(&mut self, _: End, context: &mut Context<Self>) {
        context.stop();
    }
}

impl Handler<End> for Node {
    type Result = ();

    fn handle(&mut self, _: End, context: &mut Context<Self>) {
        context.stop();
    }
}

impl Actix {
    /// Runs `run` in each arbiter at the same time, and returns the results in order.
    fn each<T: Send + 'static, U: Send + 'static>(&self, shares: Vec<T>, run: fn(T) -> U) -> Vec<U> {
        let started = shares.into_iter().zip(&self.arbiters).map(|(share, arbiter)| {
            let (done, is_done) = mpsc::channel();
            arbiter.spawn_fn(move || done.send(run(share)).expect("the bench waits"));
            is_done
        });
        let started: Vec<_> = started.collect();
        started.into_iter().map(|is_done| is_done.recv().expect("no actor panics")).collect()
    }

    /// Returns the range of actors for each arbiter. Pairs are not separated.
    fn shares(&self, count: usize) -> Vec<Range<usize>> {
        let arbiters = self.arbiters.len();
        let bound = |at: usize| (count.div_ceil(2) * at / arbiters * 2).min(count);
        (0..arbiters).map(|at| bound(at)..bound(at + 1)).collect()
    }

    fn spawn<A: Actor<Context = Context<A>>>(
        &self,
        count: usize,
        start: fn(Range<usize>) -> Vec<Addr<A>>,
    ) -> Vec<Addr<A>> {
        self.each(self.shares(count), start).into_iter().flatten().collect()
    }

    fn end<A: Actor<Context = Context<A>> + Handler<End>>(&self, actors: Vec<Addr<A>>) {
        let shares = self.shares(actors.len());
        let mut actors = actors.into_iter();
        let shares = shares.into_iter().map(|share| actors.by_ref().take(share.len()).collect::<Vec<_>>());
        self.each(shares.collect(), |actors| actors.iter().for_each(|actor| actor.do_send(End)));
    }
}

impl Peer for Actix {
    const NAME: &'static str = "actix";
    type Idle = Addr<Idle>;
    type Node = Addr<Node>;

    fn start(workers: usize) -> Self {
        let system = System::new();
        Self { arbiters: (0..workers).map(|_| Arbiter::new()).collect(), _system: system }
    }

    fn idle(&self, count: usize) -> Vec<Addr<Idle>> {
        self.spawn(count, |share| share.map(|_| Idle { messages: 0 }.start()).collect())
    }

    fn end_idle(&self, idle: Vec<Addr<Idle>>) {
        self.end(idle);
    }

    fn nodes(&self, count: usize) -> Vec<Addr<Node>> {
        self.spawn(count, |share| share.map(|_| Node::default().start()).collect())
    }

    fn end_nodes(&self, nodes: Vec<Addr<Node>>) {
        self.end(nodes);
    }

    fn send_orders(&self, orders: Vec<(Addr<Node>, Order<Addr<Node>>)>) {
        self.each(vec![orders], |orders| {
            for (to, order) in orders {
                match order {
                    Order::Token(token) => to.do_send(Token(token)),
                    order => to.do_send(Ordered(order)),
                }
            }
        });
    }
}

impl Drop for Actix {
    fn drop(&mut self) {
        for arbiter in self.arbiters.drain(..) {
            arbiter.stop();
            arbiter.join().expect("an arbiter ends");
        }
    }
}
