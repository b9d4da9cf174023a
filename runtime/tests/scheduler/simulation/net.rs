//! Simulated connections: delays, order, resets, partitions. Simulated datagrams: losses,
//! duplicates, order.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::sim::net::{Listener, Net, Socket, Stream};
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
fn a_write_that_waits_is_reset_once_there_is_room() {
    watched(|| {
        check(0..20, || async {
            let net = Net::new();
            let mut listener = net.listen("server").unwrap();
            let [mut client, mut server] = connected(&net, &mut listener).await;
            client.write_all(&[0; 64 * 1024]).await.unwrap();
            let _every_write_is_reset = net.reset_ratio(1.0);
            let mut write = pin!(client.write(b"x"));
            for _ in 0..3 {
                assert!(timeout(MS, write.as_mut()).await.is_err(), "the pipe is full");
            }
            server.read_u8().await.unwrap();
            assert_eq!(write.await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        });
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
fn no_news_crosses_a_partition() {
    watched(|| {
        check(0..20, || async {
            let net = Net::new().latency(10 * MS..=10 * MS);
            let mut listener = net.listen("server").unwrap();
            let [client, mut server] = connected(&net, &mut listener).await;
            let connecting = volt::spawn({
                let net = net.clone();
                async move { net.connect("client", "server").await }
            });
            sleep(5 * MS).await;
            net.partition("client", "server");
            drop(client);
            sleep(Duration::from_secs(1)).await;
            server.write_all(b"x").await.expect("the server does not know that the client was dropped");
            let accepted = timeout(Duration::from_secs(1), listener.accept()).await;
            assert!(accepted.is_err() && !connecting.is_finished());
            net.heal("client", "server");
            server.write_all(b"x").await.expect("the news takes the latency");
            let _client = connecting.await.unwrap().expect("the partition has ended");
            sleep(MS).await;
            assert_eq!(server.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            net.partition("client", "server");
            assert_eq!(server.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn a_write_that_waits_fails_once_the_drop_is_known() {
    watched(|| {
        for (is_shut_down, is_partitioned) in [(false, false), (true, false), (false, true), (true, true)] {
            check(0..20, || async {
                let net = Net::new().latency(10 * MS..=10 * MS);
                let mut listener = net.listen("server").unwrap();
                let [mut client, mut server] = connected(&net, &mut listener).await;
                let writer = volt::spawn(async move { server.write_all(&[0; 300_000]).await });
                if is_shut_down {
                    client.shutdown().await.unwrap();
                    sleep(Duration::from_secs(1)).await;
                    assert!(!writer.is_finished(), "the client may still read");
                }
                sleep(MS).await;
                if is_partitioned {
                    net.partition("client", "server");
                }
                drop(client);
                if is_partitioned {
                    sleep(Duration::from_secs(1)).await;
                    assert!(!writer.is_finished(), "the news does not arrive");
                    net.heal("client", "server");
                }
                let began = Instant::now();
                assert_eq!(writer.await.unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
                assert_eq!(began.elapsed(), 10 * MS);
            });
        }
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

/// Binds sockets to `client` and to `server`.
fn sockets(net: &Net) -> [Socket; 2] {
    ["client", "server"].map(|host| net.bind(host).unwrap())
}

/// Receives until no datagram comes for a second, and returns their first bytes.
async fn received(socket: &Socket) -> Vec<u8> {
    let (mut numbers, mut buf) = (Vec::new(), [0; 4]);
    while let Ok(datagram) = timeout(Duration::from_secs(1), socket.recv_from(&mut buf)).await {
        assert_eq!(datagram.unwrap(), (1, "client".to_owned()));
        numbers.push(buf[0]);
    }
    numbers
}

#[test]
fn datagrams_arrive_whole_and_in_any_order() {
    watched(|| {
        let order = |seed| {
            let order = Mutex::new(Vec::new());
            check([seed], || async {
                let net = Net::new().latency(10 * MS..=30 * MS);
                let [client, server] = sockets(&net);
                let began = Instant::now();
                for number in 0..4 {
                    assert_eq!(client.send_to(&[number], "server").await.unwrap(), 1);
                }
                assert_eq!(began.elapsed(), Duration::ZERO, "a send does not wait");
                *order.lock().unwrap() = received(&server).await;
                let began = Instant::now();
                client.send_to(b"longer than the buffer", "server").await.unwrap();
                assert_eq!(server.recv_from(&mut [0; 4]).await.unwrap().0, 4, "the rest is lost");
                assert!((10 * MS..=30 * MS).contains(&began.elapsed()), "{:?}", began.elapsed());
                let error = client.send_to(&[0; 65_508], "server").await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
            });
            order.into_inner().unwrap()
        };
        let orders: BTreeSet<_> = (0..50).map(order).collect();
        assert!(orders.len() > 5, "{orders:?}");
        assert!(orders.iter().all(|order| BTreeSet::from_iter(order) == (0..4).collect::<Vec<_>>().iter().collect()));
    });
}

#[test]
fn datagrams_are_lost_or_duplicated_as_often_as_set() {
    watched(|| {
        check(0..20, || async {
            let net = Net::new().latency(MS..=5 * MS).loss_ratio(0.25).duplicate_ratio(0.5);
            let [client, server] = sockets(&net);
            for number in 0..200 {
                client.send_to(&[number], "server").await.unwrap();
            }
            let numbers = received(&server).await;
            let different = BTreeSet::from_iter(&numbers).len();
            assert!((110..190).contains(&different), "150 of 200 on average: {different}");
            let share = numbers.len() as f64 / different as f64;
            assert!((1.3..1.7).contains(&share), "1.5 on average: {share}");
        });
    });
}

#[test]
fn datagrams_without_a_way_or_a_receiver_are_lost() {
    watched(|| {
        check(0..20, || async {
            let net = Net::new();
            let client = net.bind("client").unwrap();
            assert_eq!(client.send_to(b"x", "nobody").await.unwrap(), 1);
            let server = net.bind("server").unwrap();
            assert_eq!(net.bind("server").unwrap_err().kind(), ErrorKind::AddrInUse);
            net.partition("server", "client");
            client.send_to(&[1], "server").await.unwrap();
            net.heal("client", "server");
            client.send_to(&[2], "server").await.unwrap();
            assert_eq!(received(&server).await, [2]);
            for number in 0..2_000_u32 {
                client.send_to(&[number as u8], "server").await.unwrap();
            }
            assert_eq!(received(&server).await.len(), 1024, "the others found the mailbox full");
            client.send_to(&[3], "server").await.unwrap();
            drop(server);
            assert!(received(&net.bind("server").unwrap()).await.is_empty(), "of a dropped socket");
        });
    });
}

#[test]
fn a_receiver_that_gives_up_takes_no_datagram() {
    watched(|| {
        check(0..50, || async {
            let net = Net::new().latency(MS..=20 * MS);
            let [client, server] = sockets(&net);
            for number in 0..10 {
                client.send_to(&[number], "server").await.unwrap();
            }
            let mut seen = BTreeSet::new();
            while seen.len() < 10 {
                let mut buf = [0; 4];
                if let Ok(datagram) = timeout(2 * MS, server.recv_from(&mut buf)).await {
                    assert!(datagram.is_ok() && seen.insert(buf[0]));
                }
            }
        });
    });
}
