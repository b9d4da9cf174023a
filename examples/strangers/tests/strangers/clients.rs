//! Tests of reqwest, sqlx and redis.

use std::time::Duration;

use futures_util::future::join_all;
use redis::AsyncTypedCommands;
use strangers::servers::{Postgres, Redis};
use strangers::stores;
use strangers::web::router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;

use crate::within::{Error, listen, on_runtimes};

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn reqwest_sends_parallel_requests_and_keeps_its_errors() {
    on_runtimes(LIMIT, async || {
        let (listener, address) = listen().await?;
        tokio::spawn(async move { axum::serve(listener, router()).await });
        let client = reqwest::Client::builder().timeout(Duration::from_millis(200)).build()?;
        let requests = (0..200).map(|_| {
            let client = client.clone();
            tokio::spawn(
                async move { client.get(format!("http://{address}/")).timeout(LIMIT).send().await?.text().await },
            )
        });
        for answer in join_all(requests).await {
            assert_eq!(answer??, "hello");
        }
        // First a port on which no server listens, then a server that never responds.
        let (listener, nowhere) = listen().await?;
        drop(listener);
        assert!(client.get(format!("http://{nowhere}/")).timeout(LIMIT).send().await.unwrap_err().is_connect());
        let (silent, address) = listen().await?;
        let requests = client.get(format!("http://{address}/")).send().await;
        assert!(requests.unwrap_err().is_timeout());
        drop(silent);
        Ok(())
    });
}

/// Writes, reads, rolls back and cancels with a pool of connections to an empty database.
macro_rules! write_read_and_roll_back {
    ($pool:expr) => {{
        let pool = $pool;
        let inserts = (0..200_i64).map(|id| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let insert = sqlx::query("INSERT INTO item VALUES ($1, $2)");
                insert.bind(id).bind(format!("item {id}")).execute(&pool).await
            })
        });
        for insert in join_all(inserts).await {
            insert??;
        }
        let mut transaction = pool.begin().await?;
        sqlx::query("DELETE FROM item").execute(&mut *transaction).await?;
        transaction.rollback().await?;
        // Cancelled in the middle: its uncommitted changes are not visible.
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let cancelled = tokio::spawn({
            let pool = pool.clone();
            async move {
                let mut transaction = pool.begin().await?;
                sqlx::query("DELETE FROM item").execute(&mut *transaction).await?;
                let _received = begun.send(());
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
        sqlx::query("DROP TABLE item").execute(&pool).await?;
        pool.close().await;
    }};
}

#[test]
fn sqlite_writes_reads_and_rolls_back() {
    let file = std::env::temp_dir().join(format!("strangers-{}.sqlite", std::process::id()));
    on_runtimes(LIMIT, async || {
        write_read_and_roll_back!(stores::sqlite(&file).await?);
        Ok(())
    });
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn postgres_writes_reads_and_rolls_back() {
    let server = Postgres::start();
    on_runtimes(LIMIT, async || {
        write_read_and_roll_back!(server.connect().await?);
        Ok(())
    });
}

#[test]
fn redis_sets_gets_counts_and_publishes() {
    let server = Redis::start();
    on_runtimes(LIMIT, || async {
        let mut connection = server.connect().await?;
        connection.set("greeting", "hello").await?;
        assert_eq!(connection.get("greeting").await?.as_deref(), Some("hello"));
        connection.del("count").await?;
        let counts = (0..500).map(|_| {
            let mut connection = connection.clone();
            tokio::spawn(async move { connection.incr("count", 1).await })
        });
        for count in join_all(counts).await {
            count??;
        }
        assert_eq!(connection.get_int("count").await?, Some(500));

        let (mut told, mut words) = redis::Client::open(server.url())?.get_async_pubsub().await?.split();
        told.subscribe("news").await?;
        connection.publish("news", "extra").await?;
        let word = futures_util::StreamExt::next(&mut words).await.ok_or("closed")?;
        assert_eq!(word.get_payload::<String>()?, "extra");
        Ok::<_, Error>(())
    });
}

#[test]
fn a_library_that_was_let_down_leaves_nothing_behind() {
    on_runtimes(LIMIT, async || {
        // The server closes the connection in the middle of its response.
        let (listener, address) = listen().await?;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _read = stream.read(&mut [0; 1024]).await;
                let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
            }
        });
        let client = reqwest::Client::new();
        for _ in 0..20 {
            let answer = client.get(format!("http://{address}/")).send().await?;
            assert!(answer.text().await.is_err());
        }
        drop(client);
        // Only the server's task remains.
        while Handle::current().metrics().num_alive_tasks() > 1 {
            tokio::task::yield_now().await;
        }
        Ok(())
    });
}
