//! An example program: two nodes that play ping-pong. Start a server, then a node that replies,
//! then a node that calls:
//!
//! ```text
//! nats-server &
//! cargo run --release --bin ping -- 127.0.0.1:4222 beta &
//! cargo run --release --bin ping -- 127.0.0.1:4222 alpha beta 10000
//! ```
//! `ping loopback COUNT` runs both nodes in this program, without a server. The node that replies
//! runs until ^C. The other one exits after COUNT round trips, and prints how long they took.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use volt_process::{Hub, Inbox, Node, Payload, Pid, Spawn, System};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The time limit of a call.
const LIMIT: Duration = Duration::from_secs(10);
/// The number of concurrent calls when round trips per second are measured.
const AT_ONCE: u32 = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["loopback", count] if count.parse::<u32>().is_ok_and(|count| count > 0) => loopback(count.parse().unwrap_or(1)),
        [server, node] => run(server, node, None),
        [server, node, peer] => run(server, node, Some((peer, 5))),
        [server, node, peer, count] if count.parse::<u32>().is_ok_and(|count| count > 0) => {
            run(server, node, count.parse().ok().map(|count| (peer, count)))
        }
        _ => Err("usage: ping SERVER NODE [PEER [COUNT]] | ping loopback COUNT, for example: ping 127.0.0.1:4222 alpha beta 10000".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ping: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(server: &str, node: &str, peer: Option<(&str, u32)>) -> Result<(), Error> {
    let runtime = volt::Builder::new_multi_thread().tokio_compat(true).build()?;
    runtime.block_on(async {
        let relay = volt_nats::Options::new("ping", node.parse()?).connect(server).await?;
        let system = System::builder().relay(relay).build(&volt::Handle::current())?;
        serve(&system)?;
        println!("{node} is there");
        let played = match peer {
            Some((peer, count)) => play(&system, peer.parse()?, count).await,
            None => volt::signal::ctrl_c().await.map_err(Error::from),
        };
        // Sends a goodbye, so that the other nodes do not have to wait until this one counts as
        // lost.
        system.shutdown(None).await;
        played
    })
}

fn serve(system: &System) -> Result<(), Error> {
    system.spawn(Spawn::new(volt_process::from_fn(pong)).name("pong"))?;
    Ok(())
}

/// Runs both nodes in this program.
fn loopback(count: u32) -> Result<(), Error> {
    let runtime = volt::Builder::new_multi_thread().build()?;
    runtime.block_on(async {
        let (hub, beta) = (Hub::new(), "beta".parse()?);
        let here = System::builder().relay(hub.join("alpha".parse()?)).build(&volt::Handle::current())?;
        let there = System::builder().relay(hub.join(beta)).build(&volt::Handle::current())?;
        serve(&there)?;
        play(&here, beta, count).await
    })
}

/// Replies to calls with their payload, and to messages with the same message.
async fn pong(mut inbox: Inbox, _input: Payload) -> Result<Payload, volt_process::Failure> {
    while let Some(message) = inbox.recv().await {
        match (message.reply, message.from) {
            (Some(reply), _) => reply.send(message.payload),
            // This process must not wait for the sender. A sender that cannot be reached gets no
            // reply.
            (None, Some(sender)) => drop(inbox.context().try_send(sender, message.payload)),
            (None, None) => {}
        }
    }
    Ok(Payload::empty())
}

async fn play(system: &System, peer: Node, count: u32) -> Result<(), Error> {
    system.wait_for_node(peer).await;
    let pong = system.whereis_on(peer, "pong").await?.ok_or("no process is named pong there")?;
    let mut took = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        ping(system, pong).await?;
        took.push(start.elapsed());
    }
    took.sort();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    println!("{count} round trips one by one: median {:?}, 99th percentile {:?}", at(50), at(99));
    let start = Instant::now();
    let (each, players) = (count.div_ceil(AT_ONCE), count.min(AT_ONCE));
    let tasks: Vec<_> = (0..players).map(|_| volt::spawn(play_alone(system.clone(), pong, each))).collect();
    for task in tasks {
        task.await??;
    }
    let per_second = f64::from(each * players) / start.elapsed().as_secs_f64();
    println!("{} round trips, {players} concurrently: {per_second:.0} per second", each * players);
    Ok(())
}

async fn play_alone(system: System, pong: Pid, count: u32) -> Result<(), Error> {
    for _ in 0..count {
        ping(&system, pong).await?;
    }
    Ok(())
}

async fn ping(system: &System, pong: Pid) -> Result<(), Error> {
    system.call(pong, Payload::bytes(&b"12345678"[..]), LIMIT).await?;
    Ok(())
}
