//! An echo server whose client is a thread of the same program.

use std::io;
use std::net;
use std::time::{Duration, Instant};

use super::client::Client;
use crate::meter::Meter;
use crate::quantile::quantile;
use crate::runtimes::sockets::Sockets;

/// A request, and its answer.
const MESSAGE: [u8; 64] = [7; 64];
/// The counted part of a round, after a warm-up of a quarter of it.
const COUNTED: Duration = Duration::from_millis(400);
const QUICK_COUNTED: Duration = Duration::from_millis(120);

async fn serve<P: Sockets>(listener: net::TcpListener, connections: usize) -> io::Result<()> {
    let listener = P::listener(listener)?;
    let mut tasks = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut stream = P::accept(&listener).await?;
        tasks.push(P::spawn(async move {
            let mut buffer = [0; 1024];
            loop {
                let count = P::read(&mut stream, &mut buffer).await?;
                if count == 0 {
                    return Ok(());
                }
                P::write_all(&mut stream, &buffer[..count]).await?;
            }
        }));
    }
    for task in tasks {
        P::join::<io::Result<()>>(task).await?;
    }
    Ok(())
}

fn echo<P: Sockets>(meter: &Meter, connections: usize) -> io::Result<Vec<f64>> {
    let peer = P::start(meter.workers);
    let listener = net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let server = peer.spawn_from_outside(serve::<P>(listener, connections));
    let mut client = Client::connect(address, connections, &MESSAGE, MESSAGE.len())?;
    let counted = if meter.is_quick { QUICK_COUNTED } else { COUNTED };
    client.run(counted / 4)?;
    let began = Instant::now();
    let mut took_us = client.run(counted)?;
    let cost_ns = began.elapsed().as_nanos() as f64 / took_us.len() as f64;
    drop(client);
    peer.block_on(P::join(server))?;
    Ok(vec![cost_ns, quantile(&mut took_us, 0.99)])
}

fn echo_or_panic<P: Sockets>(meter: &Meter, connections: usize) -> Vec<f64> {
    echo::<P>(meter, connections).expect("the loopback works, and the limit of open files allows it")
}

/// One connection: the elapsed time per request.
pub(super) fn echo_1<P: Sockets>(meter: &Meter) -> Vec<f64> {
    echo_or_panic::<P>(meter, 1)
}

/// 64 connections: the elapsed time divided by the requests of all.
pub(super) fn echo_64<P: Sockets>(meter: &Meter) -> Vec<f64> {
    echo_or_panic::<P>(meter, 64)
}

/// 512 connections, and the 99th percentile of the time of an answer.
pub(super) fn echo_512<P: Sockets>(meter: &Meter) -> Vec<f64> {
    echo_or_panic::<P>(meter, 512)
}
