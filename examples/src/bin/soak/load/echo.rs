//! A server over loopback connections: every byte comes back, once and in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use volt::Handle;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};

use crate::part::{Part, pause};
use crate::random::Random;

const CLIENTS: u64 = 12;
const MESSAGE_MAX: u64 = 16 * 1024;
const MESSAGES_MAX: u64 = 12;
const PAUSE_MAX: Duration = Duration::from_millis(20);

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).expect("a free port");
    let address = listener.local_addr().expect("the socket is bound");
    drop(runtime.spawn(serve(part.clone(), listener)));
    for client in 0..CLIENTS {
        drop(runtime.spawn(converse(part.clone(), address, client)));
    }
}

async fn serve(part: Arc<Part>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(volt::spawn(async move {
                // The client sees a connection that ends early.
                let _ = echo(stream).await;
            })),
            Err(error) => part.error(&error, "accept"),
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 4_096];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..read]).await?;
    }
}

async fn converse(part: Arc<Part>, address: SocketAddr, seed: u64) {
    let mut random = Random::new(seed);
    while !part.is_over() {
        if let Err(error) = connection(&part, address, &mut random).await {
            part.error(&error, "a connection");
        }
        pause(&mut random, PAUSE_MAX).await;
    }
}

async fn connection(part: &Part, address: SocketAddr, random: &mut Random) -> io::Result<()> {
    let stream = TcpStream::connect(address).await?;
    let (mut reader, mut writer) = stream.into_split();
    for _ in 0..=random.below(MESSAGES_MAX) {
        let first = random.next() as u8;
        let sent: Vec<u8> = (0..=random.below(MESSAGE_MAX)).map(|at| first.wrapping_add(at as u8)).collect();
        let mut got = vec![0; sent.len()];
        // At the same time: the message may be larger than the buffers of the connection.
        let (written, read) = volt::join!(writer.write_all(&sent), reader.read_exact(&mut got));
        written?;
        read?;
        part.verify(got == sent, "other bytes came back");
        pause(random, PAUSE_MAX).await;
    }
    Ok(())
}
