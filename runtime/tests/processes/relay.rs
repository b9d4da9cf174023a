//! Processes of several nodes in one program: what holds across nodes, what a loss does, and what a relay that misbehaves cannot do.

use crate::watchdog;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use volt::process::{
    self, Context, Event, Events, ExitReason, Failure, Hub, HubRelay, Incoming, Node, Output, Overflow, Payload, Peer,
    Pid, Process, Relay, RelayError, Reply, Spawn, System,
};
use volt::sync::mpsc;

const LONG: Duration = Duration::from_secs(50);

fn node(name: &str) -> Node {
    name.parse().unwrap()
}

fn system(relay: impl Relay) -> System {
    System::builder().relay(relay).build(&volt::Handle::current()).unwrap()
}

/// Two systems that reach each other, on one worker and on several.
fn with_two<F: Future<Output = ()>>(test: impl Fn(Hub, System, System) -> F) {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let hub = Hub::new();
            let (alpha, beta) = (system(hub.join(node("alpha"))), system(hub.join(node("beta"))));
            meet(&alpha, &beta).await;
            test(hub, alpha.clone(), beta.clone()).await;
            for system in [alpha, beta] {
                assert!(system.shutdown(Some(LONG)).await.forced.is_empty(), "every process ends when it is asked to");
                assert_eq!(system.nodes(), []);
            }
        });
    });
}

async fn meet(one: &System, other: &System) {
    one.wait_for_node(other.node()).await;
    other.wait_for_node(one.node()).await;
}

/// What a [`Probe`] was told, and whom it is told to watch.
enum Told {
    Message(Option<Pid>, Bytes),
    Down(Pid, ExitReason),
    Exit(Pid, ExitReason),
}

enum Order {
    Monitor(Pid),
    Link(Pid),
    Unlink(Pid),
    Fail,
}

/// Tells what happens to it, watches whom it is ordered to, and answers calls with what they carry.
struct Probe {
    context: Option<Context>,
    told: mpsc::UnboundedSender<Told>,
}

impl Process for Probe {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        self.context = Some(context.clone());
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let context = self.context.as_ref().unwrap();
        for event in events {
            let told = match event {
                Event::Message(message) => match (message.reply, message.payload.downcast::<Order>()) {
                    (_, Ok(Order::Monitor(pid))) => {
                        context.monitor(pid);
                        continue;
                    }
                    (_, Ok(Order::Link(pid))) => {
                        context.link(pid);
                        continue;
                    }
                    (_, Ok(Order::Unlink(pid))) => {
                        context.unlink(pid);
                        continue;
                    }
                    (_, Ok(Order::Fail)) => return Err(Failure::new("as it was told to")),
                    (Some(reply), Err(payload)) => {
                        reply.send(payload);
                        continue;
                    }
                    (None, Err(payload)) => {
                        Told::Message(message.from, payload.as_bytes().cloned().unwrap_or_default())
                    }
                },
                Event::Down { pid, reason, .. } => Told::Down(pid, reason),
                Event::Exit { pid, reason } => Told::Exit(pid, reason),
                Event::Cancel => {
                    out.done();
                    continue;
                }
                _ => continue,
            };
            drop(self.told.send(told));
        }
        Ok(())
    }
}

fn probe(system: &System) -> (Pid, mpsc::UnboundedReceiver<Told>) {
    let (told, hears) = mpsc::unbounded_channel();
    (system.spawn(Spawn::new(Probe { context: None, told }).trap_exits()).unwrap(), hears)
}

/// As [`probe`], but ends with those it is linked with.
fn mortal(system: &System) -> Pid {
    let (told, _) = mpsc::unbounded_channel();
    system.spawn(Spawn::new(Probe { context: None, told })).unwrap()
}

async fn order(system: &System, pid: Pid, order: Order) {
    system.send(pid, Payload::new(order)).await.unwrap();
    // It has carried the order out when it answers what comes after.
    system.call(pid, Payload::empty(), LONG).await.unwrap();
}

async fn echo(from: &System, to: Pid) -> Result<Payload, process::CallError> {
    from.call(to, Payload::bytes("echo"), LONG).await
}

fn number(bytes: &Bytes) -> u64 {
    u64::from_le_bytes(bytes[..].try_into().unwrap())
}

#[test]
fn messages_of_one_sender_arrive_in_their_order_on_another_node() {
    with_two(async |_hub, alpha, beta| {
        let (pid, mut hears) = probe(&beta);
        for n in 0..1000_u64 {
            alpha.send(pid, Payload::bytes(n.to_le_bytes().to_vec())).await.unwrap();
            if n % 100 == 99 {
                echo(&alpha, pid).await.unwrap();
            }
        }
        for n in 0..1000 {
            let Some(Told::Message(from, bytes)) = hears.recv().await else { panic!("message {n}") };
            assert_eq!((from, number(&bytes)), (None, n));
        }
    });
}

#[test]
fn a_process_is_found_by_name_called_and_told_who_calls() {
    with_two(async |_hub, alpha, beta| {
        let who = process::from_fn(async |mut inbox, _input| {
            while let Some(message) = inbox.recv().await {
                let from = message.from.map_or("nobody".to_owned(), |pid| pid.to_string());
                message.reply.into_iter().for_each(|reply| reply.send(Payload::bytes(from.clone())));
            }
            Ok(Payload::empty())
        });
        let pid = beta.spawn(Spawn::new(who).name("who")).unwrap();
        assert_eq!(alpha.whereis_on(beta.node(), "who").await.unwrap(), Some(pid));
        assert_eq!(alpha.whereis_on(beta.node(), "nobody").await.unwrap(), None);
        assert_eq!(alpha.whereis_on(alpha.node(), "who").await.unwrap(), None);
        let answer = alpha.call(pid, Payload::empty(), LONG).await.unwrap();
        assert_eq!(answer.as_bytes().unwrap(), "nobody".as_bytes());
        let asks =
            process::from_fn(async move |inbox, _input| Ok(inbox.context().call(pid, Payload::empty(), LONG).await?));
        let answer = alpha.exec(Spawn::new(asks)).await.unwrap();
        assert!(answer.as_bytes().unwrap().starts_with(b"alpha:"), "{answer:?}");
    });
}

#[test]
fn only_bytes_and_nothing_cross_and_the_rest_is_refused_before_it_is_sent() {
    with_two(async |_hub, alpha, beta| {
        let (pid, _hears) = probe(&beta);
        let sent = alpha.relay_counts().unwrap().sent;
        let refused = alpha.send(pid, Payload::new(7_u32)).await.unwrap_err();
        assert!(refused.is_unfit() && refused.to_string().contains("Payload::bytes"), "{refused}");
        assert_eq!(refused.into_message().downcast::<u32>().unwrap(), 7);
        assert!(alpha.call(pid, Payload::new("text"), LONG).await.unwrap_err().is_unfit());
        let large = Payload::bytes(vec![0; process::FRAME_BYTES_MAX]);
        assert!(alpha.try_send(pid, large).unwrap_err().is_unfit());
        assert_eq!(alpha.relay_counts().unwrap().sent, sent);
        let value = process::from_fn(async |mut inbox, _input| {
            while let Some(message) = inbox.recv().await {
                message.reply.into_iter().for_each(|reply| reply.send(Payload::new(1_u8)));
            }
            Ok(Payload::empty())
        });
        let value = beta.spawn(Spawn::new(value)).unwrap();
        assert!(alpha.call(value, Payload::empty(), LONG).await.unwrap_err().is_unfit());
    });
}

#[test]
fn the_dead_of_another_node_answer_at_once() {
    with_two(async |_hub, alpha, beta| {
        let dead = mortal(&beta);
        assert!(beta.kill(dead));
        beta.wait(dead).await;
        assert!(echo(&alpha, dead).await.unwrap_err().is_no_process());
        assert_eq!(alpha.wait(dead).await, ExitReason::NoProcess);
        let (watcher, mut hears) = probe(&alpha);
        order(&alpha, watcher, Order::Monitor(dead)).await;
        order(&alpha, watcher, Order::Link(dead)).await;
        assert!(matches!(hears.recv().await, Some(Told::Down(pid, ExitReason::NoProcess)) if pid == dead));
        assert!(matches!(hears.recv().await, Some(Told::Exit(pid, ExitReason::NoProcess)) if pid == dead));
    });
}

#[test]
fn ends_are_told_across_nodes_and_spread_over_links() {
    with_two(async |_hub, alpha, beta| {
        let (watched, watched_hears) = probe(&beta);
        drop(watched_hears);
        let (watcher, mut hears) = probe(&alpha);
        order(&alpha, watcher, Order::Monitor(watched)).await;
        order(&alpha, watcher, Order::Link(watched)).await;
        let here = mortal(&alpha);
        order(&alpha, here, Order::Link(watched)).await;
        let ends_here = alpha.wait(here);
        echo(&alpha, watched).await.unwrap();
        assert_eq!(beta.info(watched).unwrap().link_count, 2);
        assert_eq!(beta.info(watched).unwrap().monitor_count, 1);
        beta.send(watched, Payload::new(Order::Fail)).await.unwrap();
        let mut told = [false; 2];
        for _ in 0..2 {
            match hears.recv().await.unwrap() {
                Told::Down(pid, ExitReason::Failed(why)) if pid == watched => {
                    assert_eq!(why.to_string(), "as it was told to");
                    told[0] = true;
                }
                Told::Exit(pid, ExitReason::Failed(_)) if pid == watched => told[1] = true,
                _ => panic!("told of something else"),
            }
        }
        assert_eq!(told, [true; 2]);
        assert!(matches!(ends_here.await, ExitReason::Failed(_)));
        assert_eq!(alpha.info(watcher).unwrap().link_count, 0);
    });
}

#[test]
fn a_link_that_was_taken_away_ties_no_more() {
    with_two(async |_hub, alpha, beta| {
        let (one, other) = (mortal(&alpha), mortal(&beta));
        order(&alpha, one, Order::Link(other)).await;
        order(&alpha, one, Order::Unlink(other)).await;
        echo(&alpha, other).await.unwrap();
        assert_eq!(beta.info(other).unwrap().link_count, 0);
        alpha.kill(one);
        alpha.wait(one).await;
        echo(&alpha, other).await.unwrap();
    });
}

#[test]
fn processes_of_another_node_are_ended_from_here() {
    with_two(async |_hub, alpha, beta| {
        let polite = mortal(&beta);
        assert_eq!(alpha.terminate(polite, LONG).await, ExitReason::Shutdown);
        let stubborn = process::from_fn(async |_inbox, _input| std::future::pending().await);
        let stubborn = beta.spawn(Spawn::new(stubborn)).unwrap();
        assert_eq!(alpha.terminate(stubborn, Duration::ZERO).await, ExitReason::Killed);
    });
}

#[test]
fn a_lost_node_ends_calls_watches_and_links_and_nothing_of_it_stays() {
    with_two(async |hub, alpha, beta| {
        let silent = process::from_fn(async |mut inbox, _input| {
            let mut held: Vec<Option<Reply>> = Vec::new();
            while let Some(message) = inbox.recv().await {
                held.push(message.reply);
            }
            Ok(Payload::empty())
        });
        let silent = beta.spawn(Spawn::new(silent)).unwrap();
        let (there, mut there_hears) = probe(&beta);
        let (watcher, mut hears) = probe(&alpha);
        for watched in [silent, there] {
            order(&alpha, watcher, Order::Monitor(watched)).await;
        }
        order(&beta, there, Order::Link(watcher)).await;
        echo(&beta, watcher).await.unwrap();
        let caller = alpha.clone();
        let call = volt::spawn(async move { caller.call(silent, Payload::empty(), LONG).await });
        while beta.info(silent).unwrap().mailbox_high_water == 0 {
            volt::task::yield_now().await;
        }
        hub.cut(alpha.node(), beta.node());
        assert!(call.await.unwrap().unwrap_err().is_no_connection());
        let mut downs = Vec::new();
        for _ in 0..3 {
            match hears.recv().await.unwrap() {
                Told::Down(pid, ExitReason::NoConnection) => downs.push(pid),
                Told::Exit(pid, ExitReason::NoConnection) => assert_eq!(pid, there),
                _ => panic!("told of something else"),
            }
        }
        downs.sort();
        let mut watched = [silent, there];
        watched.sort();
        assert_eq!(downs, watched);
        assert!(matches!(there_hears.recv().await, Some(Told::Exit(pid, ExitReason::NoConnection)) if pid == watcher));
        for (system, pid) in [(&beta, silent), (&beta, there), (&alpha, watcher)] {
            let info = system.info(pid).unwrap();
            assert_eq!((info.link_count, info.monitor_count), (0, 0));
        }
        // What is tried now fails at once.
        assert!(alpha.send(there, Payload::empty()).await.unwrap_err().is_no_connection());
        assert!(echo(&alpha, there).await.unwrap_err().is_no_connection());
        assert_eq!(alpha.wait(there).await, ExitReason::NoConnection);
        assert!(alpha.whereis_on(beta.node(), "x").await.unwrap_err().is_no_connection());
        order(&alpha, watcher, Order::Monitor(there)).await;
        assert!(matches!(hears.recv().await, Some(Told::Down(pid, ExitReason::NoConnection)) if pid == there));
        // It lives on, and is reached again.
        hub.mend(alpha.node(), beta.node());
        meet(&alpha, &beta).await;
        echo(&alpha, there).await.unwrap();
        order(&alpha, watcher, Order::Monitor(there)).await;
        echo(&alpha, there).await.unwrap();
        beta.kill(there);
        assert!(matches!(hears.recv().await, Some(Told::Down(pid, ExitReason::Killed)) if pid == there));
    });
}

#[test]
fn a_node_that_did_not_notice_its_own_loss_is_told_when_it_is_back() {
    with_two(async |hub, alpha, beta| {
        let (here, _here_hears) = probe(&alpha);
        let (there, mut hears) = probe(&beta);
        order(&beta, there, Order::Monitor(here)).await;
        echo(&beta, here).await.unwrap();
        assert_eq!(alpha.info(here).unwrap().monitor_count, 1);
        hub.lose(alpha.node(), beta.node());
        while alpha.info(here).unwrap().monitor_count > 0 {
            volt::task::yield_now().await;
        }
        assert_eq!(alpha.nodes(), []);
        hub.mend(alpha.node(), beta.node());
        assert!(matches!(hears.recv().await, Some(Told::Down(pid, ExitReason::NoConnection)) if pid == here));
        meet(&alpha, &beta).await;
        echo(&beta, here).await.unwrap();
        echo(&alpha, there).await.unwrap();
    });
}

#[test]
fn a_pid_of_an_earlier_life_of_a_node_reaches_nobody_in_the_next() {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let hub = Hub::new();
            let alpha = system(hub.join(node("alpha")));
            let beta = system(hub.join(node("beta")));
            alpha.wait_for_node(node("beta")).await;
            let old = mortal(&beta);
            let ends = alpha.wait(old);
            echo(&alpha, old).await.unwrap();
            beta.shutdown(Some(LONG)).await;
            // It ended before its node did, and both are told in that order.
            assert_eq!(ends.await, ExitReason::Shutdown);
            while !alpha.nodes().is_empty() {
                volt::task::yield_now().await;
            }
            let beta = system(hub.join(node("beta")));
            alpha.wait_for_node(node("beta")).await;
            let new: Vec<Pid> = (0..256).map(|_| mortal(&beta)).collect();
            assert!(new.iter().any(|pid| pid.index() == old.index()), "its place is used again");
            assert!(!new.contains(&old));
            assert!(echo(&alpha, old).await.unwrap_err().is_no_process());
            for system in [alpha, beta] {
                system.shutdown(Some(LONG)).await;
            }
        });
    });
}

#[test]
fn a_second_node_of_one_name_is_refused_and_named() {
    watchdog::with_one_worker(|runtime| {
        runtime.block_on(async {
            let hub = Hub::new();
            let _alpha = system(hub.join(node("alpha")));
            let error = System::builder().relay(hub.join(node("alpha"))).build(&volt::Handle::current()).unwrap_err();
            assert!(error.to_string().contains("has a node alpha already"), "{error}");
            let error = System::builder().relay(hub.join(Node::LOCAL)).build(&volt::Handle::current()).unwrap_err();
            assert!(error.to_string().contains("needs a name"), "{error}");
        });
    });
}

#[test]
fn a_node_that_leaves_is_lost_at_once_and_its_last_words_come_first() {
    with_two(async |hub, alpha, _beta| {
        let gamma = system(hub.join(node("gamma")));
        meet(&alpha, &gamma).await;
        let (watcher, mut hears) = probe(&alpha);
        let (first, second) = (mortal(&gamma), mortal(&gamma));
        for pid in [first, second] {
            order(&alpha, watcher, Order::Monitor(pid)).await;
        }
        echo(&alpha, first).await.unwrap();
        gamma.shutdown(Some(LONG)).await;
        for _ in 0..2 {
            assert!(matches!(hears.recv().await, Some(Told::Down(_, ExitReason::Shutdown))));
        }
        while alpha.nodes().contains(&gamma.node()) {
            volt::task::yield_now().await;
        }
    });
}

#[test]
fn a_full_mailbox_refuses_what_comes_from_elsewhere_and_holds_nobody_up() {
    with_two(async |_hub, alpha, beta| {
        for (overflow, undelivered) in [(Overflow::Block, 3), (Overflow::DropNewest, 6)] {
            let (open, gate) = volt::sync::oneshot::channel::<()>();
            let slow = process::from_fn(async move |mut inbox: process::Inbox, _input| {
                inbox.recv().await.and_then(|message| message.reply).unwrap().send(Payload::empty());
                gate.await.map_err(|_| Failure::new("never opened"))?;
                while inbox.recv().await.is_some() {}
                Ok(Payload::empty())
            });
            let slow = beta.spawn(Spawn::new(slow).mailbox(2, overflow)).unwrap();
            let (quick, _hears) = probe(&beta);
            // From here on it waits for the gate, and messages for it.
            echo(&alpha, slow).await.unwrap();
            for _ in 0..5 {
                alpha.send(slow, Payload::empty()).await.unwrap();
            }
            let error = echo(&alpha, slow).await.unwrap_err();
            assert_eq!(
                (error.is_full(), error.is_no_reply()),
                (overflow == Overflow::Block, overflow != Overflow::Block)
            );
            echo(&alpha, quick).await.unwrap();
            assert_eq!(beta.relay_counts().unwrap().undelivered, undelivered);
            assert_eq!(beta.info(slow).unwrap().dropped, 4);
            open.send(()).unwrap();
        }
    });
}

#[test]
fn three_nodes_and_many_calls_at_once() {
    with_two(async |hub, alpha, beta| {
        let gamma = system(hub.join(node("gamma")));
        for system in [&alpha, &beta] {
            meet(system, &gamma).await;
        }
        let callees: Vec<Pid> = [&alpha, &beta, &gamma].into_iter().map(mortal).collect();
        let callers = [&alpha, &beta, &gamma].into_iter().flat_map(|system| {
            callees.iter().map(move |&to| (system.clone(), to)).filter(|(system, to)| system.node() != to.node())
        });
        let tasks: Vec<_> = callers
            .map(|(system, to)| {
                volt::spawn(async move {
                    for n in 0..50_u64 {
                        let answer = system.call(to, Payload::bytes(n.to_le_bytes().to_vec()), LONG).await.unwrap();
                        assert_eq!(number(answer.as_bytes().unwrap()), n);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(gamma.shutdown(Some(LONG)).await.forced.is_empty());
    });
}

/// A relay that does to frames what it is told to.
struct Meddler {
    relay: HubRelay,
    deeds: Arc<Mutex<VecDeque<Deed>>>,
    held: Mutex<Option<Bytes>>,
    incoming: Arc<Mutex<Option<Incoming>>>,
}

enum Deed {
    Take,
    Lose,
    Double,
    /// Sends it after the next one.
    Hold,
    Refuse,
}

type Deeds = Arc<Mutex<VecDeque<Deed>>>;

impl Relay for Meddler {
    fn node(&self) -> Node {
        self.relay.node()
    }

    fn start(&self, incoming: Incoming) -> Result<(), RelayError> {
        *self.incoming.lock().unwrap() = Some(incoming.clone());
        self.relay.start(incoming)
    }

    fn send(&self, to: Peer, frame: Bytes) -> Result<(), RelayError> {
        let deed = self.deeds.lock().unwrap().pop_front();
        match deed {
            Some(Deed::Lose) => return Ok(()),
            Some(Deed::Refuse) => return Err(RelayError::full()),
            Some(Deed::Double) => self.relay.send(to, frame.clone())?,
            Some(Deed::Hold) => {
                *self.held.lock().unwrap() = Some(frame);
                return Ok(());
            }
            Some(Deed::Take) | None => {}
        }
        self.relay.send(to, frame)?;
        match self.held.lock().unwrap().take() {
            Some(held) => self.relay.send(to, held),
            None => Ok(()),
        }
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.relay.leave()
    }
}

/// As [`with_two`], with a relay that meddles with what alpha sends.
fn with_meddler<F: Future<Output = ()>>(test: impl Fn(Deeds, Incoming, System, System) -> F) {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let hub = Hub::new();
            let (deeds, incoming) = (Deeds::default(), Arc::default());
            let relay = Meddler {
                relay: hub.join(node("alpha")),
                deeds: deeds.clone(),
                held: Mutex::default(),
                incoming: Arc::clone(&incoming),
            };
            let (alpha, beta) = (system(relay), system(hub.join(node("beta"))));
            meet(&alpha, &beta).await;
            let incoming = incoming.lock().unwrap().clone().unwrap();
            test(deeds, incoming, alpha.clone(), beta.clone()).await;
            for system in [alpha, beta] {
                assert!(system.shutdown(Some(LONG)).await.forced.is_empty());
            }
        });
    });
}

#[test]
fn a_frame_that_comes_twice_is_taken_once() {
    with_meddler(async |deeds, _incoming, alpha, beta| {
        let (pid, mut hears) = probe(&beta);
        deeds.lock().unwrap().extend([Deed::Double, Deed::Double]);
        for n in 0..3_u64 {
            alpha.send(pid, Payload::bytes(n.to_le_bytes().to_vec())).await.unwrap();
        }
        for n in 0..3 {
            assert!(matches!(hears.recv().await, Some(Told::Message(None, bytes)) if number(&bytes) == n));
        }
        echo(&alpha, pid).await.unwrap();
        assert!(hears.try_recv().is_err());
        assert_eq!(beta.relay_counts().unwrap().duplicates, 2);
    });
}

#[test]
fn frames_that_change_places_are_never_taken_in_the_wrong_order() {
    with_meddler(async |deeds, _incoming, alpha, beta| {
        let (pid, mut hears) = probe(&beta);
        deeds.lock().unwrap().push_back(Deed::Hold);
        for n in 0..2_u64 {
            alpha.send(pid, Payload::bytes(n.to_le_bytes().to_vec())).await.unwrap();
        }
        // The second showed that the first was missing, and both are of a conversation that is no more.
        while beta.relay_counts().unwrap().lost == 0 {
            volt::task::yield_now().await;
        }
        meet(&beta, &alpha).await;
        while echo(&alpha, pid).await.is_err() {
            volt::task::yield_now().await;
        }
        assert!(hears.try_recv().is_err());
    });
}

#[test]
fn frames_that_are_lost_break_the_conversation_off_at_both_ends() {
    with_meddler(async |deeds, incoming, alpha, beta| {
        let (here, mut here_hears) = probe(&alpha);
        let (there, mut there_hears) = probe(&beta);
        order(&alpha, here, Order::Monitor(there)).await;
        order(&beta, there, Order::Monitor(here)).await;
        echo(&alpha, there).await.unwrap();
        echo(&beta, here).await.unwrap();
        // The end of `here` is told to nobody, and nothing follows it, until the relay says that something may be missing.
        deeds.lock().unwrap().push_back(Deed::Lose);
        alpha.kill(here);
        alpha.wait(here).await;
        incoming.interrupted();
        assert!(matches!(there_hears.recv().await, Some(Told::Down(pid, ExitReason::NoConnection)) if pid == here));
        assert!(here_hears.recv().await.is_none());
        assert!(beta.relay_counts().unwrap().lost > 0);
        meet(&alpha, &beta).await;
        while beta.info(there).unwrap().monitor_count > 0 {
            volt::task::yield_now().await;
        }
        while echo(&alpha, there).await.is_err() {
            volt::task::yield_now().await;
        }
    });
}

#[test]
fn a_full_relay_refuses_messages_and_keeps_the_news_of_ends() {
    with_meddler(async |deeds, _incoming, alpha, beta| {
        let (here, _here_hears) = probe(&alpha);
        let (there, mut hears) = probe(&beta);
        order(&beta, there, Order::Monitor(here)).await;
        echo(&beta, here).await.unwrap();
        deeds.lock().unwrap().extend((0..3).map(|_| Deed::Refuse));
        assert!(alpha.send(there, Payload::empty()).await.unwrap_err().is_full());
        alpha.kill(here);
        assert!(matches!(hears.recv().await, Some(Told::Down(pid, ExitReason::Killed)) if pid == here));
        assert_eq!(alpha.relay_counts().unwrap().refused, 3);
    });
}

#[test]
fn a_full_relay_keeps_watches_links_and_kills_of_the_living() {
    with_meddler(async |deeds, _incoming, alpha, beta| {
        let (watcher, mut hears) = probe(&alpha);
        let (there, _there_hears) = probe(&beta);
        for tie in [Order::Monitor(there), Order::Link(there)] {
            deeds.lock().unwrap().push_back(Deed::Refuse);
            order(&alpha, watcher, tie).await;
        }
        while beta.info(there).is_some_and(|info| (info.monitor_count, info.link_count) != (1, 1)) {
            volt::task::yield_now().await;
        }
        deeds.lock().unwrap().push_back(Deed::Refuse);
        assert!(alpha.kill(there));
        assert!(matches!(hears.recv().await, Some(Told::Down(pid, ExitReason::Killed)) if pid == there));
        assert!(matches!(hears.recv().await, Some(Told::Exit(pid, ExitReason::Killed)) if pid == there));
    });
}

#[test]
fn a_process_on_another_node_is_ended_though_the_relay_is_full() {
    with_meddler(async |deeds, _incoming, alpha, beta| {
        for refused in 0..3 {
            let stubborn = process::from_fn(async |_inbox, _input| std::future::pending().await);
            let stubborn = beta.spawn(Spawn::new(stubborn)).unwrap();
            // The watch, the request or the kill.
            deeds.lock().unwrap().extend((0..refused).map(|_| Deed::Take).chain([Deed::Refuse]));
            assert_eq!(alpha.terminate(stubborn, Duration::ZERO).await, ExitReason::Killed);
        }
    });
}

#[test]
fn hostile_frames_do_no_harm_and_are_counted() {
    with_meddler(async |_deeds, incoming, alpha, beta| {
        let (pid, _hears) = probe(&alpha);
        let known = Peer { node: beta.node(), incarnation: 7 };
        incoming.received(known, Bytes::from_static(b"x"));
        assert_eq!(alpha.relay_counts().unwrap().strangers, 1);
        let mallory = Peer { node: node("mallory"), incarnation: 1 };
        incoming.up(mallory);
        let frame = |kind: u8, session: u64, heard: u64, number: u64, body: &[u8]| {
            let mut frame = vec![1, kind];
            for part in [session, heard, number] {
                frame.extend(part.to_le_bytes());
            }
            frame.extend(body);
            Bytes::from(frame)
        };
        incoming.received(mallory, Bytes::from_static(b"rubbish"));
        incoming.received(mallory, vec![1; process::FRAME_BYTES_MAX + 1].into());
        // A number after which there is none, of a first conversation and of one that begins anew.
        incoming.received(mallory, frame(1, 3, 0, u64::MAX, b""));
        incoming.received(mallory, frame(1, 3, 0, 0, b""));
        incoming.received(mallory, frame(1, 4, 0, u64::MAX, b""));
        incoming.received(mallory, frame(1, 5, 0, 0, b""));
        // The session of a conversation is a small number, which a hostile node is told.
        let mut number = 1;
        for heard in 0..8 {
            for kind in 0..=255 {
                for body in [&b""[..], b"\x01", &[0; 8], &[0xff; 25], &[0xff; 4096]] {
                    incoming.received(mallory, frame(kind, 5, heard, number, body));
                    number += 1;
                }
            }
        }
        let counts = alpha.relay_counts().unwrap();
        assert!(counts.malformed > 2 && counts.unknown > 0 && counts.stale > 0, "{counts:?}");
        echo(&beta, pid).await.unwrap();
        incoming.down(mallory);
        assert_eq!(alpha.nodes(), [beta.node()]);
    });
}
