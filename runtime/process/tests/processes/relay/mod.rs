//! Tests of processes on several nodes in one program: the guarantees across nodes, the loss of a
//! node, and relays that misbehave.

mod faulty;
mod lost;

use crate::watchdog;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use volt::sync::mpsc;
use volt_process::{
    self, Context, Event, Events, ExitReason, Failure, Hub, HubRelay, Incoming, Node, Output, Overflow, Payload, Peer,
    Pid, Process, Relay, RelayError, Reply, Spawn, System,
};

const LONG: Duration = Duration::from_secs(50);

fn node(name: &str) -> Node {
    name.parse().unwrap()
}

fn system(relay: impl Relay) -> System {
    System::builder().relay(relay).build(&volt::Handle::current()).unwrap()
}

/// Runs `test` with two systems that reach each other, with one worker and with several.
fn with_two<F: Future<Output = ()>>(test: impl Fn(Hub, System, System) -> F) {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let hub = Hub::new();
            let (alpha, beta) = (system(hub.join(node("alpha"))), system(hub.join(node("beta"))));
            meet(&alpha, &beta).await;
            test(hub, alpha.clone(), beta.clone()).await;
            for system in [alpha, beta] {
                assert!(
                    system.shutdown(Some(LONG)).await.forced.is_empty(),
                    "every process exits when it is cancelled"
                );
                assert_eq!(system.nodes(), []);
            }
        });
    });
}

async fn meet(one: &System, other: &System) {
    one.wait_for_node(other.node()).await;
    other.wait_for_node(one.node()).await;
}

/// An event that a [`Probe`] received.
enum Received {
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

/// Reports the events that it receives, executes [`Order`]s, and replies to calls with their
/// payload.
struct Probe {
    context: Option<Context>,
    report: mpsc::UnboundedSender<Received>,
}

impl Process for Probe {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        self.context = Some(context.clone());
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let context = self.context.as_ref().unwrap();
        for event in events {
            let report = match event {
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
                    (_, Ok(Order::Fail)) => return Err(Failure::new("as requested")),
                    (Some(reply), Err(payload)) => {
                        reply.send(payload);
                        continue;
                    }
                    (None, Err(payload)) => {
                        Received::Message(message.from, payload.as_bytes().cloned().unwrap_or_default())
                    }
                },
                Event::Down { pid, reason, .. } => Received::Down(pid, reason),
                Event::Exit { pid, reason } => Received::Exit(pid, reason),
                Event::Cancel => {
                    out.done();
                    continue;
                }
                _ => continue,
            };
            drop(self.report.send(report));
        }
        Ok(())
    }
}

fn probe(system: &System) -> (Pid, mpsc::UnboundedReceiver<Received>) {
    let (report, reports) = mpsc::unbounded_channel();
    (system.spawn(Spawn::new(Probe { context: None, report }).trap_exits()).unwrap(), reports)
}

/// Like [`probe`], but does not trap exits.
fn mortal(system: &System) -> Pid {
    let (report, _) = mpsc::unbounded_channel();
    system.spawn(Spawn::new(Probe { context: None, report })).unwrap()
}

async fn order(system: &System, pid: Pid, order: Order) {
    system.send(pid, Payload::new(order)).await.unwrap();
    // It has executed the order when it replies to the next message.
    system.call(pid, Payload::empty(), LONG).await.unwrap();
}

async fn echo(from: &System, to: Pid) -> Result<Payload, volt_process::CallError> {
    from.call(to, Payload::bytes("echo"), LONG).await
}

fn number(bytes: &Bytes) -> u64 {
    u64::from_le_bytes(bytes[..].try_into().unwrap())
}

#[test]
fn messages_of_one_sender_arrive_in_their_order_on_another_node() {
    with_two(async |_hub, alpha, beta| {
        let (pid, mut reports) = probe(&beta);
        for n in 0..1000_u64 {
            alpha.send(pid, Payload::bytes(n.to_le_bytes().to_vec())).await.unwrap();
            if n % 100 == 99 {
                echo(&alpha, pid).await.unwrap();
            }
        }
        for n in 0..1000 {
            let Some(Received::Message(from, bytes)) = reports.recv().await else { panic!("message {n}") };
            assert_eq!((from, number(&bytes)), (None, n));
        }
    });
}

#[test]
fn a_process_is_found_by_name_and_receives_its_caller() {
    with_two(async |_hub, alpha, beta| {
        let who = volt_process::from_fn(async |mut inbox, _input| {
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
        let caller = volt_process::from_fn(async move |inbox, _input| {
            Ok(inbox.context().call(pid, Payload::empty(), LONG).await?)
        });
        let answer = alpha.exec(Spawn::new(caller)).await.unwrap();
        assert!(answer.as_bytes().unwrap().starts_with(b"alpha:"), "{answer:?}");
    });
}

#[test]
fn only_byte_payloads_of_limited_size_are_sent_to_other_nodes() {
    with_two(async |_hub, alpha, beta| {
        let (pid, _hears) = probe(&beta);
        let sent = alpha.relay_counts().unwrap().sent;
        let refused = alpha.send(pid, Payload::new(7_u32)).await.unwrap_err();
        assert!(refused.is_unfit() && refused.to_string().contains("Payload::bytes"), "{refused}");
        assert_eq!(refused.into_message().downcast::<u32>().unwrap(), 7);
        assert!(alpha.call(pid, Payload::new("text"), LONG).await.unwrap_err().is_unfit());
        let large = Payload::bytes(vec![0; volt_process::FRAME_BYTES_MAX]);
        assert!(alpha.try_send(pid, large).unwrap_err().is_unfit());
        assert_eq!(alpha.relay_counts().unwrap().sent, sent);
        let value = volt_process::from_fn(async |mut inbox, _input| {
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
fn calls_to_exited_processes_of_another_node_fail_quickly() {
    with_two(async |_hub, alpha, beta| {
        let dead = mortal(&beta);
        assert!(beta.kill(dead));
        beta.wait(dead).await;
        assert!(echo(&alpha, dead).await.unwrap_err().is_no_process());
        assert_eq!(alpha.wait(dead).await, ExitReason::NoProcess);
        let (watcher, mut reports) = probe(&alpha);
        order(&alpha, watcher, Order::Monitor(dead)).await;
        order(&alpha, watcher, Order::Link(dead)).await;
        assert!(matches!(reports.recv().await, Some(Received::Down(pid, ExitReason::NoProcess)) if pid == dead));
        assert!(matches!(reports.recv().await, Some(Received::Exit(pid, ExitReason::NoProcess)) if pid == dead));
    });
}

#[test]
fn exits_are_reported_across_nodes_and_spread_over_links() {
    with_two(async |_hub, alpha, beta| {
        let (watched, watched_hears) = probe(&beta);
        drop(watched_hears);
        let (watcher, mut reports) = probe(&alpha);
        order(&alpha, watcher, Order::Monitor(watched)).await;
        order(&alpha, watcher, Order::Link(watched)).await;
        let here = mortal(&alpha);
        order(&alpha, here, Order::Link(watched)).await;
        let ends_here = alpha.wait(here);
        echo(&alpha, watched).await.unwrap();
        assert_eq!(beta.info(watched).unwrap().link_count, 2);
        assert_eq!(beta.info(watched).unwrap().monitor_count, 1);
        beta.send(watched, Payload::new(Order::Fail)).await.unwrap();
        let mut report = [false; 2];
        for _ in 0..2 {
            match reports.recv().await.unwrap() {
                Received::Down(pid, ExitReason::Failed(why)) if pid == watched => {
                    assert_eq!(why.to_string(), "as requested");
                    report[0] = true;
                }
                Received::Exit(pid, ExitReason::Failed(_)) if pid == watched => report[1] = true,
                _ => panic!("another message than a report of the exit"),
            }
        }
        assert_eq!(report, [true; 2]);
        assert!(matches!(ends_here.await, ExitReason::Failed(_)));
        assert_eq!(alpha.info(watcher).unwrap().link_count, 0);
    });
}

#[test]
fn a_removed_link_to_another_node_has_no_effect() {
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
        let stubborn = volt_process::from_fn(async |_inbox, _input| std::future::pending().await);
        let stubborn = beta.spawn(Spawn::new(stubborn)).unwrap();
        assert_eq!(alpha.terminate(stubborn, Duration::ZERO).await, ExitReason::Killed);
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
fn a_full_mailbox_refuses_remote_messages_without_blocking() {
    with_two(async |_hub, alpha, beta| {
        for (overflow, undelivered) in [(Overflow::Block, 3), (Overflow::DropNewest, 6)] {
            let (open, gate) = volt::sync::oneshot::channel::<()>();
            let slow = volt_process::from_fn(async move |mut inbox: volt_process::Inbox, _input| {
                inbox.recv().await.and_then(|message| message.reply).unwrap().send(Payload::empty());
                gate.await.map_err(|_| Failure::new("never opened"))?;
                while inbox.recv().await.is_some() {}
                Ok(Payload::empty())
            });
            let slow = beta.spawn(Spawn::new(slow).mailbox(2, overflow)).unwrap();
            let (quick, _hears) = probe(&beta);
            // From here on, the process waits for the gate, and messages accumulate.
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
fn three_nodes_carry_many_concurrent_calls() {
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
