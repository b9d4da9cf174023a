//! A shop's backend on Tokio and axum. It has three faults that starve services in production:
//!
//! * `/report` computes for long without an await.
//! * `/order` holds a std `Mutex` while it writes to a slow log.
//! * `/transfer` locks two accounts in the order of its arguments, so two requests can deadlock.
//!
//! It has no dependency on Volt. `cargo run --release` runs it on Tokio, and
//! `cargo volt run --release` on Volt; then `volt-console doctor` names the lines.
//!
//! Usage: `service [ADDRESS]`. The default is 127.0.0.1:3000.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use serde::Deserialize;

/// How long a report computes, and how long the log takes to write a line.
const REPORT: Duration = Duration::from_millis(400);
const LOG: Duration = Duration::from_millis(200);

#[derive(Clone, Default)]
struct Shop {
    orders: Arc<Mutex<Vec<u64>>>,
    accounts: Arc<[tokio::sync::Mutex<i64>; 2]>,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let shop = Router::new()
        .route("/", get(async || "open\n"))
        .route("/report", get(report))
        .route("/order", get(order))
        .route("/transfer", get(transfer))
        .with_state(Shop::default());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, shop).await
}

async fn report() -> String {
    let (start, mut hasher) = (Instant::now(), DefaultHasher::new());
    while start.elapsed() < REPORT {
        (0..10_000u32).for_each(|order| order.hash(&mut hasher));
    }
    format!("{:x}\n", hasher.finish())
}

async fn order(State(shop): State<Shop>) -> String {
    let mut orders = shop.orders.lock().unwrap();
    let number = orders.len() as u64 + 1;
    orders.push(number);
    write_to_log(number);
    format!("order {number}\n")
}

/// Stands for a write to a log on a slow disk.
fn write_to_log(_order: u64) {
    std::thread::sleep(LOG);
}

#[derive(Deserialize)]
struct Transfer {
    from: usize,
    to: usize,
    amount: i64,
}

async fn transfer(State(shop): State<Shop>, Query(transfer): Query<Transfer>) -> &'static str {
    let [from, to] = [transfer.from, transfer.to].map(|account| account % shop.accounts.len());
    if from == to {
        return "nothing to do\n";
    }
    let mut from = shop.accounts[from].lock().await;
    // Other requests run while this one waits for the bank.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut to = shop.accounts[to].lock().await;
    *from -= transfer.amount;
    *to += transfer.amount;
    "transferred\n"
}
