//! Simulated connections: delays, order, resets, partitions.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::sim::net::{Listener, Net, Stream};
use volt::sim::{check, first_failure};
use volt::time::{Instant, sleep, timeout};

use crate::watchdog::watched;

const MS: Duration = Duration::from_millis(1);

/// Connects `client` to `server`, and returns both ends.
async fn connected(net: &Net, listener: &mut Listener) -> [Stream; 2] {
    let (client, server) = tokio::join!(net.connect("client", "server"), listener.accept());
    [client.unwrap(), server.0]
}

#[test]
fn bytes_arrive_in_order_and_delayed() {
    watched(|| {
        check(0..50, || async {
            let net = Net::new().latency(10 * MS..=30 * MS);
            let mut listener = net.listen("server").unwrap();
            let [mut client, mut server] = connected(&net, &mut listener).await;
            assert_eq!((client.local_host(), client.peer_host()), ("client", "server"));
            assert_eq!((server.local_host(), server.peer_host()), ("server", "client"));
            let began = Instant::now();
            for number in 0..20_u8 {
                client.write_all(&[number]).await.unwrap();
            }
            drop(client);
            let mut bytes = Vec::new();
            server.read_to_end(&mut bytes).await.unwrap();
            assert!(bytes.into_iter().eq(0..20));
            assert!((10 * MS..=30 * MS).contains(&began.elapsed()), "{:?}", began.elapsed());
            assert_eq!(server.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn connections_overtake_each_other_under_some_seed() {
    watched(|| {
        let overtakes = |seed| {
            first_failure([seed], || async {
                let net = Net::new().latency(MS..=20 * MS);
                let mut listener = net.listen("server").unwrap();
                let [mut first, mut first_end] = connected(&net, &mut listener).await;
                let [mut second, mut second_end] = connected(&net, &mut listener).await;
                first.write_all(b"1").await.unwrap();
                second.write_all(b"2").await.unwrap();
                let is_first = volt::select! {
                    _ = first_end.read_u8() => true,
                    _ = second_end.read_u8() => false,
                };
                assert!(is_first);
            })
            .is_some()
        };
        assert_eq!((0..50).map(overtakes).collect::<BTreeSet<_>>(), BTreeSet::from([false, true]));
    });
}

#[test]
fn a_write_waits_while_the_pipe_is_full() {
    watched(|| {
        check(0..20, || async {
            let net = Net::new().latency(MS..=2 * MS);
            let mut listener = net.listen("server").unwrap();
            let [mut client, mut server] = connected(&net, &mut listener).await;
            let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
            let expected = sent.clone();
            let writer = volt::spawn(async move {
                client.write_all(&sent).await.unwrap();
                client.shutdown().await.unwrap();
                client
            });
            sleep(Duration::from_secs(1)).await;
            assert!(!writer.is_finished(), "300 kB do not fit");
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.unwrap();
            assert!(received == expected);
            let mut client = writer.await.unwrap();
            assert_eq!(client.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe, "after a shutdown");
        });
    });
}

#[test]
fn resets_occur_with_the_given_probability() {
    watched(|| {
        let is_reset = |ratio: f64, seed| {
            first_failure([seed], || async {
                let net = Net::new().reset_ratio(ratio);
                let mut listener = net.listen("server").unwrap();
                let [mut client, mut server] = connected(&net, &mut listener).await;
                let written = client.write_all(b"x").await;
                let read = server.read_u8().await;
                if let Err(error) = &written {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
                }
                assert!(written.is_ok());
            })
            .is_some()
        };
        let count = |ratio| (0..200).filter(|&seed| is_reset(ratio, seed)).count();
        assert_eq!((count(0.0), count(1.0)), (0, 200));
        assert!((20..100).contains(&count(0.3)), "{}", count(0.3));
    });
}

#[test]
fn a_partition_holds_bytes_back_until_it_ends() {
    watched(|| {
        check(0..50, || async {
            let net = Net::new().latency(MS..=5 * MS);
            let mut listener = net.listen("server").unwrap();
            let [mut client, mut server] = connected(&net, &mut listener).await;
            client.write_all(b"1").await.unwrap();
            net.partition("server", "client");
            client.write_all(b"2").await.unwrap();
            assert!(timeout(Duration::from_secs(60), server.read_u8()).await.is_err());
            let reader = volt::spawn(async move {
                let mut bytes = [0; 2];
                server.read_exact(&mut bytes).await.unwrap();
                bytes
            });
            volt::task::yield_now().await;
            let healed = Instant::now();
            net.heal("client", "server");
            assert_eq!(&reader.await.unwrap(), b"12");
            assert!((MS..=5 * MS).contains(&healed.elapsed()), "{:?}", healed.elapsed());
        });
    });
}

#[test]
fn a_connection_is_made_after_a_partition() {
    watched(|| {
        check(0..20, || async {
            let net = Net::new();
            let _listener = net.listen("server").unwrap();
            net.partition("client", "server");
            let waiting = volt::spawn({
                let net = net.clone();
                async move { net.connect("client", "server").await }
            });
            sleep(Duration::from_secs(60)).await;
            assert!(!waiting.is_finished());
            net.connect("other", "server").await.expect("others are not affected");
            net.heal("client", "server");
            waiting.await.unwrap().expect("the partition has ended");
            net.partition("client", "server");
            let error = net.connect("client", "server").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        });
    });
}

#[test]
fn a_host_without_a_listener_refuses_connections() {
    watched(|| {
        check(0..5, || async {
            let net = Net::new();
            let refused = async || net.connect("client", "server").await.unwrap_err().kind();
            assert_eq!(refused().await, ErrorKind::ConnectionRefused);
            let listener = net.listen("server").unwrap();
            assert_eq!(net.listen("server").unwrap_err().kind(), ErrorKind::AddrInUse);
            let streams: Vec<_> = {
                let mut streams = Vec::new();
                for _ in 0..128 {
                    streams.push(net.connect("client", "server").await.unwrap());
                }
                streams
            };
            assert_eq!(refused().await, ErrorKind::ConnectionRefused, "the backlog is full");
            drop((listener, streams));
            assert_eq!(refused().await, ErrorKind::ConnectionRefused);
            net.listen("server").expect("the former listener was dropped");
        });
    });
}

#[test]
fn a_reset_between_two_hosts_spares_others() {
    watched(|| {
        check(0..20, || async {
            let net = Net::new();
            let mut listener = net.listen("server").unwrap();
            let [mut client, mut server] = connected(&net, &mut listener).await;
            let mut other = net.connect("other", "server").await.unwrap();
            let (mut other_end, host) = listener.accept().await;
            assert_eq!(host, "other");
            let reading = volt::spawn(async move { server.read_u8().await });
            volt::task::yield_now().await;
            net.reset("server", "client");
            assert_eq!(reading.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
            assert_eq!(client.write_all(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
            other.write_all(b"x").await.unwrap();
            assert_eq!(other_end.read_u8().await.unwrap(), b'x');
        });
    });
}
