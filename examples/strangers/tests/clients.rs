//! Tests of reqwest, sqlx and redis in Volt tasks.

mod within;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{AsyncTypedCommands, ErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use strangers::web::{bare, router};
use volt::io::AsyncReadExt;
use within::{Error, listen, on_volt};

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn reqwest_sends_parallel_requests_and_keeps_its_errors() {
    on_volt(LIMIT, async || {
        let (listener, address) = listen().await?;
        volt::spawn(async move { volt::axum::serve(listener, bare()).await });
        let client = reqwest::Client::builder().timeout(Duration::from_millis(200)).build()?;
        let asked = (0..200).map(|_| {
            let client = client.clone();
            volt::spawn(
                async move { client.get(format!("http://{address}/")).timeout(LIMIT).send().await?.text().await },
            )
        });
        for answer in join_all(asked).await {
            assert_eq!(answer??, "hello");
        }
        // First a port on which no server listens, then a server that never responds.
        let (listener, nowhere) = listen().await?;
        drop(listener);
        assert!(client.get(format!("http://{nowhere}/")).timeout(LIMIT).send().await.unwrap_err().is_connect());
        let (silent, address) = listen().await?;
        let asked = client.get(format!("http://{address}/")).send().await;
        assert!(asked.unwrap_err().is_timeout());
        drop(silent);
        Ok(())
    });
}

#[test]
fn work_that_a_library_gives_to_tokio_is_counted() {
    on_volt(LIMIT, async || {
        let (listener, address) = listen().await?;
        volt::spawn(async move {
            volt::axum::serve(listener, router().into_make_service_with_connect_info::<std::net::SocketAddr>()).await
        });
        let outside = || volt::Handle::current().snapshot().tokio.ok_or("no Tokio beside it");
        assert_eq!(outside()?.tasks, 0);
        // reqwest keeps the connection that it made, and drives it in a Tokio task.
        let client = reqwest::Client::new();
        client.get(format!("http://{address}/")).send().await?.text().await?;
        assert!(outside()?.tasks >= 1);
        drop(client);
        while outside()?.tasks > 0 {
            volt::task::yield_now().await;
        }
        Ok(())
    });
}

#[test]
fn sqlx_writes_reads_and_rolls_back() {
    let folder = std::env::temp_dir().join(format!("volt-strangers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let runs = std::cell::Cell::new(0);
    on_volt(LIMIT, || {
        runs.set(runs.get() + 1);
        let file = folder.join(format!("{}.sqlite", runs.get()));
        async move {
            let options = SqliteConnectOptions::new().filename(file).create_if_missing(true).busy_timeout(LIMIT);
            let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
            sqlx::query("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL)").execute(&pool).await?;
            let inserts = (0..200).map(|id| {
                let pool = pool.clone();
                volt::spawn(async move {
                    sqlx::query("INSERT INTO item VALUES (?, ?)")
                        .bind(id)
                        .bind(format!("item {id}"))
                        .execute(&pool)
                        .await
                })
            });
            for insert in join_all(inserts).await {
                insert??;
            }
            let mut transaction = pool.begin().await?;
            sqlx::query("DELETE FROM item").execute(&mut *transaction).await?;
            transaction.rollback().await?;
            // Cancelled in the middle: its uncommitted changes are not visible.
            let (begun, has_begun) = volt::sync::oneshot::channel();
            let cancelled = volt::spawn({
                let pool = pool.clone();
                async move {
                    let mut transaction = pool.begin().await?;
                    sqlx::query("DELETE FROM item").execute(&mut *transaction).await?;
                    let _told = begun.send(());
                    std::future::pending::<Result<(), sqlx::Error>>().await
                }
            });
            has_begun.await?;
            cancelled.abort();
            assert!(cancelled.await.unwrap_err().is_cancelled());
            let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM item").fetch_one(&pool).await?;
            assert_eq!(count, 200);
            let name: String = sqlx::query_scalar("SELECT name FROM item WHERE id = 123").fetch_one(&pool).await?;
            assert_eq!(name, "item 123");
            assert!(sqlx::query("INSERT INTO item VALUES (1, 'twice')").execute(&pool).await.is_err());
            pool.close().await;
            Ok(())
        }
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A real Redis server, on a socket in a separate directory; killed when this is dropped.
struct RedisServer {
    child: Child,
    folder: std::path::PathBuf,
}

impl RedisServer {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("volt-redis-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(folder.join("redis.sock"))
            .stdout(Stdio::null());
        let child = command.spawn().expect("redis-server is needed: install Debian's package of that name");
        Self { child, folder }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn redis_sets_gets_counts_and_publishes() {
    let server = RedisServer::start();
    let url = format!("redis+unix://{}", server.folder.join("redis.sock").display());
    on_volt(LIMIT, || async {
        let client = redis::Client::open(url.as_str())?;
        // It takes a moment until the server listens.
        let mut connection = loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => break connection,
                Err(error) if error.kind() == ErrorKind::Io => volt::time::sleep(Duration::from_millis(10)).await,
                Err(error) => return Err(error.into()),
            }
        };
        connection.set("greeting", "hello").await?;
        assert_eq!(connection.get("greeting").await?.as_deref(), Some("hello"));
        connection.del("count").await?;
        let counts = (0..500).map(|_| {
            let mut connection = connection.clone();
            volt::spawn(async move { connection.incr("count", 1).await })
        });
        for count in join_all(counts).await {
            count??;
        }
        assert_eq!(connection.get_int("count").await?, Some(500));

        let (mut told, mut words) = client.get_async_pubsub().await?.split();
        told.subscribe("news").await?;
        connection.publish("news", "extra").await?;
        let word = futures_util::StreamExt::next(&mut words).await.ok_or("closed")?;
        assert_eq!(word.get_payload::<String>()?, "extra");
        Ok::<_, Error>(())
    });
}

#[test]
fn a_library_that_was_let_down_leaves_nothing_behind() {
    on_volt(LIMIT, async || {
        // The server closes the connection in the middle of its response.
        let (listener, address) = listen().await?;
        volt::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _read = stream.read(&mut [0; 1024]).await;
                let _sent = volt::io::AsyncWriteExt::write_all(
                    &mut stream,
                    b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
                )
                .await;
            }
        });
        let client = reqwest::Client::new();
        for _ in 0..20 {
            let answer = client.get(format!("http://{address}/")).send().await?;
            assert!(answer.text().await.is_err());
        }
        drop(client);
        while volt::Handle::current().snapshot().tokio.ok_or("no Tokio beside it")?.tasks > 0 {
            volt::task::yield_now().await;
        }
        Ok(())
    });
}
