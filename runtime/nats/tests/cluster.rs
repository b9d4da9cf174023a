//! Tests of nodes in separate programs, with a real server between them.

mod server;

use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use futures_util::{StreamExt, future};
use rustix::process::Signal;
use server::{Flood, Program, Server, on_volt};
use volt_nats::{Counts, HEARTBEAT, LOSS, Options};
use volt_process::{ExitReason, Node, Payload, Pid, Spawn, System};

const LONG: Duration = Duration::from_secs(100);

fn node(name: &str) -> Node {
    name.parse().unwrap()
}

async fn join(server: &Server, name: &str) -> (System, Counts) {
    join_with(Options::new("ping", node(name)), server).await
}

async fn join_with(options: Options, server: &Server) -> (System, Counts) {
    let relay = options.connect(&server.address).await.unwrap();
    let counts = relay.counts();
    (System::builder().relay(relay).build(&volt::Handle::current()).unwrap(), counts)
}

async fn pong(system: &System, name: &str) -> Pid {
    system.wait_for_node(node(name)).await;
    system.whereis_on(node(name), "pong").await.unwrap().unwrap()
}

async fn call(system: &System, pid: Pid) -> Result<Payload, volt_process::CallError> {
    system.call(pid, Payload::bytes("ping"), LONG).await
}

/// Repeats a call until there is an answer.
async fn answers(system: &System, pid: Pid) {
    while call(system, pid).await.is_err() {
        system.wait_for_node(pid.node()).await;
    }
}

#[test]
fn two_programs_exchange_calls_messages_and_ends() {
    on_volt(async || {
        let server = Server::start();
        let mut beta = Program::ping(&server.address, "beta");
        let (alpha, _) = join(&server, "alpha").await;
        let pong = pong(&alpha, "beta").await;
        assert_eq!(call(&alpha, pong).await.unwrap().as_bytes().unwrap(), "ping".as_bytes());
        let numbers = volt_process::from_fn(async move |mut inbox, _input| {
            for n in 0..1000_u32 {
                inbox.context().send(pong, Payload::bytes(n.to_le_bytes().to_vec())).await?;
                if n % 100 == 99 {
                    inbox.context().call(pong, Payload::empty(), LONG).await?;
                }
            }
            for n in 0..1000_u32 {
                let message = inbox.recv().await.ok_or_else(|| volt_process::Failure::new("cancelled"))?;
                if message.payload.as_bytes().unwrap()[..] != n.to_le_bytes() || message.from != Some(pong) {
                    return Err(volt_process::Failure::new(format_args!("message {n} is not what comes")));
                }
            }
            Ok(Payload::empty())
        });
        alpha.exec(Spawn::new(numbers)).await.unwrap();
        let nobody = alpha.whereis_on(node("beta"), "nobody").await.unwrap();
        assert_eq!(nobody, None);
        // The program is interrupted: it shuts down, reports the exit of its process, and leaves.
        let ends = alpha.wait(pong);
        call(&alpha, pong).await.unwrap();
        beta.signal(Signal::INT);
        assert_eq!(ends.await, ExitReason::Shutdown);
        beta.wait();
        alpha.shutdown(None).await;
    });
}

#[test]
fn a_node_that_is_killed_is_lost_in_the_stated_time() {
    on_volt(async || {
        let server = Server::start();
        let beta = Program::ping(&server.address, "beta");
        let (alpha, _) = join(&server, "alpha").await;
        let pong = pong(&alpha, "beta").await;
        let ends = alpha.wait(pong);
        call(&alpha, pong).await.unwrap();
        let killed = Instant::now();
        beta.signal(Signal::KILL);
        assert_eq!(ends.await, ExitReason::NoConnection);
        let took = killed.elapsed();
        println!("lost {took:?} after it was killed");
        // Its last message may be one heartbeat old. A busy machine may detect the loss later than
        // documented, and never earlier.
        assert!(took >= LOSS - 2 * HEARTBEAT, "{took:?}");
        assert!(call(&alpha, pong).await.unwrap_err().is_no_connection());
        // Its next incarnation has other processes.
        let _beta = Program::ping(&server.address, "beta");
        let next = self::pong(&alpha, "beta").await;
        assert_ne!(next, pong);
        assert!(call(&alpha, pong).await.unwrap_err().is_no_process());
        call(&alpha, next).await.unwrap();
        alpha.shutdown(None).await;
    });
}

#[test]
fn a_stopped_node_is_lost_until_it_continues() {
    on_volt(async || {
        let server = Server::start();
        let beta = Program::ping(&server.address, "beta");
        let (alpha, _) = join(&server, "alpha").await;
        let pong = pong(&alpha, "beta").await;
        let ends = alpha.wait(pong);
        call(&alpha, pong).await.unwrap();
        beta.signal(Signal::STOP);
        assert_eq!(ends.await, ExitReason::NoConnection);
        assert_eq!(alpha.nodes(), []);
        beta.signal(Signal::CONT);
        alpha.wait_for_node(node("beta")).await;
        answers(&alpha, pong).await;
        alpha.shutdown(None).await;
    });
}

#[test]
fn a_server_that_is_restarted_is_connected_to_again() {
    on_volt(async || {
        let mut server = Server::start();
        let _beta = Program::ping(&server.address, "beta");
        let (alpha, counts) = join(&server, "alpha").await;
        let pong = pong(&alpha, "beta").await;
        call(&alpha, pong).await.unwrap();
        server.restart();
        while counts.reconnects() == 0 {
            volt::time::sleep(Duration::from_millis(10)).await;
        }
        alpha.wait_for_node(node("beta")).await;
        // Frames that were sent while there was no server may be lost. The call then fails or times
        // out.
        while alpha.call(pong, Payload::empty(), Duration::from_secs(1)).await.is_err() {}
        alpha.shutdown(None).await;
    });
}

#[test]
fn a_second_node_of_one_name_is_refused() {
    on_volt(async || {
        let server = Server::start();
        let beta = Program::ping(&server.address, "beta");
        let error = Options::new("ping", node("beta")).connect(&server.address).await.unwrap_err().to_string();
        assert!(error.contains("cluster ping has a node beta already"), "{error}");
        // A node that is stopped still has its name.
        beta.signal(Signal::STOP);
        let error = Options::new("ping", node("beta")).connect(&server.address).await.unwrap_err().to_string();
        assert!(error.contains("has a node beta already"), "{error}");
        // Other clusters have separate names.
        Options::new("pong", node("beta")).connect(&server.address).await.unwrap();
    });
}

#[test]
fn a_failed_connection_has_its_cause_and_a_remedy() {
    on_volt(async || {
        let error = Options::new("ping", node("a")).connect("127.0.0.1:1").await.unwrap_err().to_string();
        assert!(error.contains("no NATS server at 127.0.0.1:1") && error.contains("start one"), "{error}");
        let error = Options::new("a.b", node("a")).connect("127.0.0.1:1").await.unwrap_err().to_string();
        assert!(error.contains("is not a cluster name"), "{error}");
    });
    let without = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let error = without.block_on(Options::new("ping", node("a")).connect("127.0.0.1:1")).unwrap_err().to_string();
    assert!(error.contains("tokio_compat(true)"), "{error}");
}

#[test]
fn a_request_without_a_response_is_no_taken_name() {
    on_volt(async || {
        let alpha = |client| Options::new("ping", node("alpha")).client(client);
        // It connects in the background, to a server that does not exist.
        let patient = alpha(ConnectOptions::new().retry_on_initial_connect());
        // The server accepts the connection, but no message.
        let server = Server::start_with(
            "authorization { users: [{ user: a, password: b, permissions: { publish: { deny: \">\" } } }] }",
        );
        let denied = alpha(ConnectOptions::with_user_and_password("a".into(), "b".into()));
        let errors = future::join(patient.connect("127.0.0.1:1"), denied.connect(&server.address)).await;
        let [absent, denied] = <[_; 2]>::from(errors).map(|connected| connected.unwrap_err().to_string());
        assert!(absent.contains("no NATS server at 127.0.0.1:1 (no response within 5s)"), "{absent}");
        let why = "does not allow node alpha to send requests: Permissions Violation for Publish";
        assert!(denied.contains(why), "{denied}");
    });
}

#[test]
fn a_stopped_server_fills_the_queue_without_blocking_senders() {
    on_volt(async || {
        let server = Server::start();
        let _beta = Program::ping(&server.address, "beta");
        // Long enough that no node counts as lost.
        let options = Options::new("ping", node("alpha")).presence(HEARTBEAT, LONG).queue(4);
        let (alpha, counts) = join_with(options, &server).await;
        let pong = pong(&alpha, "beta").await;
        server.program.signal(Signal::STOP);
        let refused = loop {
            if let Err(refused) = alpha.send(pong, Payload::bytes(vec![0; 4096])).await {
                break refused;
            }
            volt::task::yield_now().await;
        };
        assert!(refused.is_full(), "{refused}");
        assert!(counts.refused() > 0);
        server.program.signal(Signal::CONT);
        answers(&alpha, pong).await;
        alpha.shutdown(None).await;
    });
}

#[test]
fn invalid_messages_are_counted_and_a_double_makes_a_node_leave() {
    on_volt(async || {
        let server = Server::start();
        let (alpha, counts) = join(&server, "alpha").await;
        let (beta, _) = join(&server, "beta").await;
        beta.wait_for_node(node("alpha")).await;
        let mallory = async_nats::connect(&server.address).await.unwrap();
        let me = "volt.ping.frame.mallory.0000000000000001";
        let mine = "volt.ping.frame.alpha.0000000000000001";
        for reply in ["", me, "volt.ping.frame.mallory.x", mine, "x"] {
            for payload in ["", "up", "bye", "up and away"] {
                if reply.is_empty() {
                    mallory.publish("volt.ping.presence", payload.into()).await.unwrap();
                } else {
                    mallory.publish_with_reply("volt.ping.presence", reply, payload.into()).await.unwrap();
                }
            }
        }
        mallory.flush().await.unwrap();
        while counts.rejected() < 10 {
            volt::time::sleep(Duration::from_millis(10)).await;
        }
        // An incarnation with alpha's own name was there earlier: alpha has to leave, since two
        // nodes cannot have the same name.
        while !alpha.nodes().is_empty() {
            volt::time::sleep(Duration::from_millis(10)).await;
        }
        // It sends a goodbye, and then nothing more, except a heartbeat that was already on its
        // way.
        let mut presence = mallory.subscribe("volt.ping.presence").await.unwrap();
        let mut beats = 0;
        while beats < 4 {
            let message = presence.next().await.unwrap();
            let from = message.reply.unwrap();
            beats += usize::from(from.contains(".beta."));
            assert!(beats == 0 || !from.contains(".alpha."), "{from} goes on");
        }
        assert_eq!(beta.nodes(), []);
    });
}

#[test]
fn a_silent_node_is_lost_even_under_a_flood() {
    on_volt(async || {
        let server = Server::start();
        let beta = Program::ping(&server.address, "beta");
        let (alpha, _) = join(&server, "alpha").await;
        let pong = pong(&alpha, "beta").await;
        let ends = alpha.wait(pong);
        call(&alpha, pong).await.unwrap();
        let flood = Flood::of(&server.address, "alpha");
        beta.signal(Signal::KILL);
        let killed = Instant::now();
        assert_eq!(ends.await, ExitReason::NoConnection);
        println!("lost {:?} after it was killed, under {} hellos", killed.elapsed(), flood.end());
    });
}

#[test]
fn a_node_that_leaves_is_lost_even_under_a_flood() {
    on_volt(async || {
        let server = Server::start();
        let beta = Program::ping(&server.address, "beta");
        let (alpha, _) = join(&server, "alpha").await;
        let pong = pong(&alpha, "beta").await;
        call(&alpha, pong).await.unwrap();
        let flood = Flood::of(&server.address, "alpha");
        // It shuts down, and announces that.
        beta.signal(Signal::INT);
        while alpha.nodes().contains(&node("beta")) {
            volt::time::sleep(Duration::from_millis(10)).await;
        }
        println!("lost under {} hellos", flood.end());
        alpha.shutdown(None).await;
    });
}
